"""What a macro-kernel cannot say in Python: memory, calls through addresses, and shared words.

Each primitive is emitted into LLVM IR here, for both ways to compile a macro-kernel: as Numba's
intrinsics (`tilewise.kernels.native.language.intrinsics`), and without Numba
(`tilewise.kernels.native.language.compiler`). Values are i64; a primitive without one returns None.
"""

from collections.abc import Callable

import llvmlite.binding as ll
from llvmlite import ir

from tilewise.kernels.native.ir.vectors import I1, I8, I32, I64, VOID, Value, declare
from tilewise.kernels.native.language import shared_words

WORD_BYTES = 8
IS_X86 = ll.get_process_triple().startswith(("x86", "i686"))


def emit_call_address(builder: ir.IRBuilder, address: Value, *values: Value) -> None:
    """Call the void function at `address` with i64 arguments."""
    kind = ir.FunctionType(VOID, [I64] * len(values))
    builder.call(builder.inttoptr(address, kind.as_pointer()), values)


def emit_word(builder: ir.IRBuilder, address: Value, index: Value) -> Value:
    """Return the i64 at position `index` of those at `address`."""
    return builder.load(word_pointer(builder, address, index))


def emit_add_word(builder: ir.IRBuilder, address: Value, index: Value, value: Value) -> None:
    """Add to the i64 at position `index` of those at `address`."""
    pointer = word_pointer(builder, address, index)
    builder.store(builder.add(builder.load(pointer), value), pointer)


def emit_fill(builder: ir.IRBuilder, address: Value, size: Value, byte: Value) -> None:
    """Set `size` bytes at `address` to `byte`."""
    pointer = builder.inttoptr(address, I8.as_pointer())
    arguments = (pointer.type, I8, I64, I1)
    fn = declare(builder.module, "llvm.memset.p0.i64", VOID, arguments)
    builder.call(fn, (pointer, builder.trunc(byte, I8), size, ir.Constant(I1, 0)))


def emit_wait_for_stores(builder: ir.IRBuilder) -> None:
    """Wait until stores past the caches are in memory; only x86 needs that."""
    if IS_X86:
        builder.call(declare(builder.module, "llvm.x86.sse.sfence", VOID, ()), ())


def emit_read_shared(builder: ir.IRBuilder, address: Value, index: Value) -> Value:
    """Return an i64 that other threads write, with all that was written before it."""
    return builder.load_atomic(word_pointer(builder, address, index), "acquire", WORD_BYTES)


def emit_write_shared(builder: ir.IRBuilder, address: Value, index: Value, value: Value) -> None:
    """Write an i64 for other threads, after all that was written before it."""
    builder.store_atomic(value, word_pointer(builder, address, index), "release", WORD_BYTES)


def emit_add_shared(builder: ir.IRBuilder, address: Value, index: Value, value: Value) -> Value:
    """Add to an i64 that other threads add to; return what it was before."""
    return builder.atomic_rmw("add", word_pointer(builder, address, index), value, "acq_rel")


def emit_pause(builder: ir.IRBuilder) -> None:
    """Hint to the core that it waits in a loop; nothing where there is no such instruction."""
    if IS_X86:
        builder.call(declare(builder.module, "llvm.x86.sse2.pause", VOID, ()), ())


def emit_offer_core(builder: ir.IRBuilder) -> None:
    """Let another thread run here, if one waits."""
    builder.call(declare(builder.module, "sched_yield", I32, ()), ())


def word_pointer(builder: ir.IRBuilder, address: Value, index: Value) -> Value:
    """Return a pointer to the i64 at position `index` of those at `address`."""
    at = builder.add(address, builder.mul(index, ir.Constant(I64, WORD_BYTES)))
    return builder.inttoptr(at, I64.as_pointer())


PRIMITIVES: dict[str, Callable[..., Value]] = {
    "call_address": emit_call_address,
    "word": emit_word,
    "add_word": emit_add_word,
    "fill": emit_fill,
    "wait_for_stores": emit_wait_for_stores,
    "read_shared": emit_read_shared,
    "write_shared": emit_write_shared,
    "add_shared": emit_add_shared,
    "pause": emit_pause,
    "offer_core": emit_offer_core,
}
CONSTANTS: dict[str, int] = {
    name: value for name, value in vars(shared_words).items() if name.isupper()
}
"""The names that functions of the language read."""
