"""What a driver cannot say in Python: memory, calls through addresses, and what threads share.

Each is emitted into LLVM IR here, once for both ways in which drivers are compiled: as Numba's
intrinsics (`tilewise.kernels.native.language.words`, `tilewise.kernels.native.language.barrier`),
and without Numba (`tilewise.kernels.native.language.to_ir`). Values are i64; those that give none
back return None.
"""

from collections.abc import Sequence

import llvmlite.binding as ll
from llvmlite import ir

from tilewise.kernels.native.ir.vectors import I1, I8, I32, I64, VOID, Value, declare

WORD_BYTES = 8
IS_X86 = ll.get_process_triple().startswith(("x86", "i686"))


def emit_call_address(builder: ir.IRBuilder, address: Value, values: Sequence[Value]) -> None:
    """Call the void function at `address` with i64 arguments."""
    kind = ir.FunctionType(VOID, [I64] * len(values))
    builder.call(builder.inttoptr(address, kind.as_pointer()), values)


def emit_word(builder: ir.IRBuilder, address: Value, index: Value) -> Value:
    """The i64 at position `index` of those at `address`."""
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
    """Wait until stores past the caches are in memory; processors other than x86 need no wait."""
    if IS_X86:
        builder.call(declare(builder.module, "llvm.x86.sse.sfence", VOID, ()), ())


def emit_read_shared(builder: ir.IRBuilder, address: Value, index: Value) -> Value:
    """The i64 at position `index` of those at `address`, and all that was written before it."""
    return builder.load_atomic(word_pointer(builder, address, index), "acquire", WORD_BYTES)


def emit_write_shared(builder: ir.IRBuilder, address: Value, index: Value, value: Value) -> None:
    """Write an i64 for others to read, after all that was written before it."""
    builder.store_atomic(value, word_pointer(builder, address, index), "release", WORD_BYTES)


def emit_add_shared(builder: ir.IRBuilder, address: Value, index: Value, value: Value) -> Value:
    """Add to an i64 that others add to; what it was before."""
    return builder.atomic_rmw("add", word_pointer(builder, address, index), value, "acq_rel")


def emit_pause(builder: ir.IRBuilder) -> None:
    """Tell the core that it waits in a loop; nothing where there is no such instruction."""
    if IS_X86:
        builder.call(declare(builder.module, "llvm.x86.sse2.pause", VOID, ()), ())


def emit_offer_core(builder: ir.IRBuilder) -> None:
    """Let another thread run here, if one waits."""
    builder.call(declare(builder.module, "sched_yield", I32, ()), ())


def word_pointer(builder: ir.IRBuilder, address: Value, index: Value) -> Value:
    """A pointer to the i64 at position `index` of those at `address`."""
    at = builder.add(address, builder.mul(index, ir.Constant(I64, WORD_BYTES)))
    return builder.inttoptr(at, I64.as_pointer())
