"""LLVM vector IR in the terms of a micro-kernel: splat, masked load and store, fma.

Addresses are i64 throughout: a macro-kernel computes them as plain integers and calls through them.
Nothing is stored inside a loop, and no aliasing fact is lost.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import llvmlite.binding as llvm
from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.target.cores import INTEGERS_ORDERED_FOR

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
VOID = ir.VoidType()
_BYTES = I8.as_pointer()
LINE_BYTES = 64
PREFETCH_READ, PREFETCH_WRITE, PREFETCH_DATA = 0, 1, 1
PREFETCH_LEVELS = {1: 3, 2: 2}

_REGISTERS = {"x86_64": "v", "i686": "v", "aarch64": "w", "arm64": "w"}
_REGISTER = _REGISTERS.get(llvm.get_process_triple().split("-")[0])
"""LLVM's letter for vector registers in inline assembly; None where it is unknown."""

Value = Any  # those of llvmlite, which have no static types, or `Written` ones


@dataclass(frozen=True)
class Element:
    """A dtype in IR: the type of a lane, its name in intrinsics, and bytes.

    bf16 is held in i16, because few instructions support it.
    """

    type: Any
    mangled: str
    bytes: int
    is_float: bool


ELEMENTS: dict[str, Element] = {
    "f32": Element(ir.FloatType(), "f32", 4, True),
    "f64": Element(ir.DoubleType(), "f64", 8, True),
    "i32": Element(I32, "i32", 4, False),
    "bf16": Element(I16, "i16", 2, True),
    "f16": Element(ir.HalfType(), "f16", 2, True),
    "i8": Element(I8, "i8", 1, False),
    "u8": Element(I8, "i8", 1, False),
    "i16": Element(I16, "i16", 2, False),
    "i64": Element(I64, "i64", 8, False),
}


@functools.lru_cache(maxsize=1024)
def const(value: int) -> Value:
    """Return an i64 constant."""
    return ir.Constant(I64, value)


class Vectors:
    """Emits vectors of `lanes` elements through one builder.

    Args:
        builder: where.
        element: of the vectors.
        lanes: elements of each.
        fma: whether `multiply_add` fuses, where the target can.
        fits: whether one of the target's registers holds a vector; LLVM makes two of a wider one.
    """

    def __init__(
        self, builder: Builder, element: Element, lanes: int, fma: bool = False, fits: bool = True
    ) -> None:
        self.builder = builder
        self.element = element
        self.lanes = lanes
        self.type = ir.VectorType(element.type, lanes)
        self.zero = ir.Constant(self.type, None)
        self._fma = fma
        self._register = _REGISTER if fits else None
        self._align = ir.Constant(I32, element.bytes)
        self._pointer_type = self.type.as_pointer()
        self._element_pointer = element.type.as_pointer()
        self._first = ir.Constant(I32, 0)
        self._every = ir.Constant(ir.VectorType(I32, lanes), None)  # the first lane, in each

    def offset(self, address: Value, elements: Value) -> Value:
        """Return `address` moved by a number of elements."""
        return self.builder.add(address, self.builder.mul(elements, const(self.element.bytes)))

    def at(self, address: Value, elements: int) -> Value:
        """Return `address` moved by a constant number of elements."""
        return self.builder.add(address, const(elements * self.element.bytes))

    def load(self, address: Value, mask: Value | None = None) -> Value:
        """Load a vector; lanes off in `mask` are zero and not touched."""
        pointer = self.builder.inttoptr(address, self._pointer_type)
        if mask is None:
            return self.builder.load(pointer, align=self.element.bytes)
        fn = self._intrinsic(
            "llvm.masked.load.{}.p0", self.type, (pointer.type, I32, mask.type, self.type)
        )
        return self.builder.call(fn, (pointer, self._align, mask, self.zero))

    def store(self, value: Value, address: Value, mask: Value | None = None) -> None:
        """Write a vector; lanes off in `mask` are not touched."""
        pointer = self.builder.inttoptr(address, self._pointer_type)
        if mask is None:
            self.builder.store(value, pointer, align=self.element.bytes)
            return
        fn = self._intrinsic(
            "llvm.masked.store.{}.p0", VOID, (self.type, pointer.type, I32, mask.type)
        )
        self.builder.call(fn, (value, pointer, self._align, mask))

    def store_past_caches(self, value: Value, address: Value) -> None:
        """Write a vector to memory, leaving no copy in the caches.

        `address` is a multiple of the vector's size. Other threads may see the vector late: call
        `wait_for_stores` before signalling them.
        """
        pointer = self.builder.inttoptr(address, self._pointer_type)
        mark = self.builder.module.add_metadata([ir.Constant(I32, 1)])
        size = self.element.bytes * self.lanes
        self.builder.store(value, pointer, size, f", !nontemporal {mark.get_reference()}")

    def wait_for_stores(self) -> None:
        """Wait until stores past the caches are in memory; only x86 needs that."""
        if _REGISTERS["x86_64"] == _REGISTER:
            self.builder.call(declare(self.builder.module, "llvm.x86.sse.sfence", VOID, ()), ())

    def gather(self, address: Value, stride: int, mask: Value) -> Value:
        """Load elements `stride` apart; lanes off in `mask` are as for `load`."""
        b, wide = self.builder, ir.VectorType(I64, self.lanes)
        steps = ir.Constant(wide, [i * stride * self.element.bytes for i in range(self.lanes)])
        pointers = ir.VectorType(self.element.type.as_pointer(), self.lanes)
        at = b.inttoptr(b.add(self.splat(address), steps), pointers)
        fn = self._intrinsic(
            f"llvm.masked.gather.{{}}.v{self.lanes}p0",
            self.type,
            (pointers, I32, mask.type, self.type),
        )
        return b.call(fn, (at, self._align, mask, self.zero))

    def load_splat(self, address: Value) -> Value:
        """Load one element to every lane."""
        pointer = self.builder.inttoptr(address, self._element_pointer)
        scalar = self.builder.load(pointer, align=self.element.bytes)
        return self.splat(scalar)

    def splat(self, scalar: Value) -> Value:
        """Return `scalar` in every lane; its type need not be the element's."""
        undefined = _undefined(scalar.type, self.lanes)
        one = self.builder.insert_element(undefined, scalar, self._first)
        return self.builder.shuffle_vector(one, undefined, self._every)

    def first_lanes(self, count: Value, skip: int) -> Value:
        """Return the mask of lanes l with skip + l < count, for an i64 `count`."""
        ids = ir.Constant(ir.VectorType(I32, self.lanes), list(range(skip, skip + self.lanes)))
        limit = self.splat(self.builder.trunc(count, I32))
        return self.builder.icmp_signed("<", ids, limit)

    def multiply_add(self, x: Value, y: Value, acc: Value) -> Value:
        """Return acc + x*y: one rounding where the target fuses; modulo 2**n for integers."""
        if not self.element.is_float:
            return self.add_in_order(acc, self.builder.mul(x, y))
        if not self._fma:
            return self.builder.fadd(acc, self.builder.fmul(x, y))
        fn = self._intrinsic("llvm.fma.{}", self.type, (self.type,) * 3)
        return self.builder.call(fn, (x, y, acc))

    def add(self, x: Value, y: Value) -> Value:
        """Return x + y."""
        return self.builder.fadd(x, y) if self.element.is_float else self.builder.add(x, y)

    def add_in_order(self, acc: Value, x: Value) -> Value:
        """Return acc + x of integers, computed before anything is added to it later.

        LLVM would make (acc + x) + y into acc + (x + y), which is ready sooner. Products of several
        unrolled steps then wait in registers that the accumulators need: a tile of 6x4 of i32,
        unrolled by four, had 52 of its 96 sums on the stack, and took 12 to 40% longer.
        """
        _order_alike(self.builder.block.function)
        kept = self.builder.opaque(acc, self._register) if self._register else acc
        return self.builder.add(kept, x)

    def relu(self, x: Value, ceiling: int | None = None) -> Value:
        """Return max(x, 0), and of floats at most `ceiling`; a NaN stays a NaN."""
        cut = self._cut(x, "<", self.zero)
        if ceiling is None:
            return cut
        limit = ir.Constant(self.type, [self.element.type(ceiling)] * self.lanes)
        return self._cut(cut, ">", limit)

    def _cut(self, x: Value, beyond: str, limit: Value) -> Value:
        """Replace lanes beyond the limit by it."""
        compare = self.builder.fcmp_ordered if self.element.is_float else self.builder.icmp_signed
        return self.builder.select(compare(beyond, x, limit), limit, x)

    def prefetch_for_write(self, address: Value) -> None:
        """Prefetch the line at `address` to L1, to be written."""
        self._prefetch(address, (PREFETCH_WRITE, PREFETCH_LEVELS[1], PREFETCH_DATA))

    def prefetch(self, address: Value, level: Literal[1, 2]) -> None:
        """Prefetch the line at `address` to L1 or L2, to be read; any address is allowed."""
        self._prefetch(address, (PREFETCH_READ, PREFETCH_LEVELS[level], PREFETCH_DATA))

    def _prefetch(self, address: Value, hints: tuple[int, int, int]) -> None:
        pointer = self.builder.inttoptr(address, _BYTES)
        fn = declare(self.builder.module, "llvm.prefetch.p0", VOID, (pointer.type, I32, I32, I32))
        self.builder.call(fn, (pointer, *(ir.Constant(I32, h) for h in hints)))

    def _intrinsic(self, pattern: str, result: Any, args: Sequence[Any]) -> Value:
        name = pattern.format(f"v{self.lanes}{self.element.mangled}")
        return declare(self.builder.module, name, result, args)


@functools.lru_cache(maxsize=64)
def _undefined(kind: Any, lanes: int) -> Value:
    return ir.Constant(ir.VectorType(kind, lanes), ir.Undefined)


def declare(module: ir.Module, name: str, result: Any, args: Sequence[Any]) -> Value:
    """Return the declaration of `name`, made once per module."""
    existing = module.globals.get(name)
    if existing is not None:
        return existing
    return ir.Function(module, ir.FunctionType(result, args), name)


def _order_alike(fn: ir.Function) -> None:
    """Have LLVM order instructions as for `INTEGERS_ORDERED_FOR`, on every x86-64."""
    if _REGISTERS["x86_64"] == _REGISTER:
        # llvmlite's own `add` allows only the names that it knows.
        set.add(fn.attributes, f'"tune-cpu"="{INTEGERS_ORDERED_FOR}"')


def begin_function(
    module: ir.Module, name: str, arguments: Sequence[str] = ()
) -> tuple[ir.Function, Builder, dict[str, Value]]:
    """Add a module-private void function of i64 arguments, kept out of line.

    Return it, a builder in its first block, and its arguments by name.

    `optsize` keeps LLVM from unrolling the reduction loop once more, which spills
    accumulators (half the speed was seen for bf16 12x2, on Zen 4).
    """
    fn = ir.Function(module, ir.FunctionType(VOID, [I64] * len(arguments)), name)
    fn.linkage = "internal"
    for attribute in ("noinline", "nounwind", "optsize"):
        fn.attributes.add(attribute)
    return fn, Builder(fn.append_basic_block("entry")), dict(zip(arguments, fn.args, strict=True))
