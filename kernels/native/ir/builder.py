"""LLVM's instructions, written as text at once.

llvmlite's builder keeps an object of each, for those who look at what they built or change
it. Nobody here does, and the objects and their printing took most of the time before LLVM's
own. Types, constants, functions and blocks stay llvmlite's; the methods have the names and the
arguments of its `IRBuilder`, for `tilewise.kernels.native.language.primitives` is emitted through
either.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from tilewise.kernels.native.ir.cursor import Cursor
from tilewise.kernels.native.ir.values import Written, constant_of, typed

_I1, _I64 = ir.IntType(1), ir.IntType(64)
_COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class Builder(Cursor):
    """The instructions that are used here, written at a cursor."""

    # Arithmetic -----------------------------------------------------------------------------

    def add(self, x: Any, y: Any) -> Any:
        """The sum x + y of integers; constants are added up, for addresses have many."""
        known, more = constant_of(x), constant_of(y)
        if more is None:
            return self._binary("add", x, y) if known is None else self.add(y, x)
        if known is not None:
            return ir.Constant(x.type, known + more)
        base = x
        if isinstance(x, Written) and x.base is not None:
            base, more = x.base, x.more + more
        if more == 0:
            return base
        return self.write(x.type, f"add {typed(base)}, {more}", base, more)

    def sub(self, x: Any, y: Any) -> Any:
        """The difference x - y of integers."""
        return self._binary("sub", x, y)

    def mul(self, x: Any, y: Any) -> Any:
        """The product x * y of integers; not written where it is known, or x."""
        known, times = constant_of(x), constant_of(y)
        if times == 1:
            return x
        if known is not None and times is not None:
            return ir.Constant(x.type, known * times)
        return self._binary("mul", x, y)

    def sdiv(self, x: Any, y: Any) -> Any:
        """The quotient of signed integers, rounded to zero."""
        return self._binary("sdiv", x, y)

    def srem(self, x: Any, y: Any) -> Any:
        """The rest of `sdiv`, with the sign of x."""
        return self._binary("srem", x, y)

    def and_(self, x: Any, y: Any) -> Any:
        """Bits set in both."""
        return self._binary("and", x, y)

    def or_(self, x: Any, y: Any) -> Any:
        """Bits set in either."""
        return self._binary("or", x, y)

    def xor(self, x: Any, y: Any) -> Any:
        """Bits set in one."""
        return self._binary("xor", x, y)

    def shl(self, x: Any, y: Any) -> Any:
        """The value x shifted left."""
        return self._binary("shl", x, y)

    def ashr(self, x: Any, y: Any) -> Any:
        """The value x shifted right, its sign kept."""
        return self._binary("ashr", x, y)

    def fadd(self, x: Any, y: Any) -> Any:
        """The sum x + y of floats."""
        return self._binary("fadd", x, y)

    def fsub(self, x: Any, y: Any) -> Any:
        """The difference x - y of floats."""
        return self._binary("fsub", x, y)

    def fmul(self, x: Any, y: Any) -> Any:
        """The product x * y of floats."""
        return self._binary("fmul", x, y)

    def icmp_signed(self, sign: str, x: Any, y: Any) -> Written:
        """A comparison of signed integers."""
        order = "" if sign in ("==", "!=") else "s"
        return self._compare(f"icmp {order}", sign, x, y)

    def fcmp_ordered(self, sign: str, x: Any, y: Any) -> Written:
        """A comparison of floats, false where one is a NaN."""
        return self._compare("fcmp o", sign, x, y)

    def select(self, condition: Any, x: Any, y: Any) -> Written:
        """The value x where the condition holds, else y."""
        return self.write(x.type, f"select {typed(condition)}, {typed(x)}, {typed(y)}")

    # Conversions ----------------------------------------------------------------------------

    def trunc(self, value: Any, kind: Any) -> Any:
        """The low bits of integers."""
        return self._cast("trunc", value, kind)

    def zext(self, value: Any, kind: Any) -> Any:
        """Unsigned integers as wider ones."""
        return self._cast("zext", value, kind)

    def sext(self, value: Any, kind: Any) -> Any:
        """Signed integers as wider ones."""
        return self._cast("sext", value, kind)

    def fpext(self, value: Any, kind: Any) -> Any:
        """Floats as wider ones."""
        return self._cast("fpext", value, kind)

    def bitcast(self, value: Any, kind: Any) -> Any:
        """The same bits as another type."""
        return self._cast("bitcast", value, kind)

    def inttoptr(self, value: Any, kind: Any) -> Any:
        """An address as a pointer."""
        return self._cast("inttoptr", value, kind)

    def ptrtoint(self, pointer: Any) -> Written:
        """A pointer as an address."""
        return self.write(_I64, f"ptrtoint {typed(pointer)} to {_I64}")

    # Vectors --------------------------------------------------------------------------------

    def insert_element(self, vector: Any, element: Any, at: Any) -> Written:
        """The vector with one element replaced."""
        operands = f"{typed(vector)}, {typed(element)}, {typed(at)}"
        return self.write(vector.type, f"insertelement {operands}")

    def shuffle_vector(self, x: Any, y: Any, lanes: Any) -> Written:
        """Elements of x and y, in the order that the constant `lanes` says."""
        kind = ir.VectorType(x.type.element, lanes.type.count)
        return self.write(kind, f"shufflevector {typed(x)}, {typed(y)}, {typed(lanes)}")

    # Memory ---------------------------------------------------------------------------------

    def alloca(self, kind: Any) -> Written:
        """A place on the stack."""
        return self.write(kind.as_pointer(), f"alloca {kind}")

    def load(self, at: Any, align: int | None = None) -> Written:
        """What lies at a pointer."""
        kind = at.type.pointee
        return self.write(kind, f"load {kind}, {typed(at)}{_aligned(align)}")

    def store(self, value: Any, at: Any, align: int | None = None, marks: str = "") -> None:
        """Write to a pointer; `marks` are references to metadata, as they are printed."""
        self.put(f"store {typed(value)}, {typed(at)}{_aligned(align)}{marks}")

    def load_atomic(self, at: Any, ordering: str, align: int) -> Written:
        """What lies at a pointer that other threads write to."""
        kind = at.type.pointee
        return self.write(kind, f"load atomic {kind}, {typed(at)} {ordering}{_aligned(align)}")

    def store_atomic(self, value: Any, at: Any, ordering: str, align: int) -> None:
        """Write to a pointer that other threads read."""
        self.put(f"store atomic {typed(value)}, {typed(at)} {ordering}{_aligned(align)}")

    def atomic_rmw(self, operation: str, at: Any, value: Any, ordering: str) -> Written:
        """Change what lies at a pointer; what it was before."""
        text = f"atomicrmw {operation} {typed(at)}, {typed(value)} {ordering}"
        return self.write(value.type, text)

    # Calls ----------------------------------------------------------------------------------

    def call(self, function: Any, arguments: Sequence[Any]) -> Written | None:
        """Call a function, or what a pointer to one points to; nothing for a void one."""
        is_known = isinstance(function, ir.Function)
        gives = (function.function_type if is_known else function.type.pointee).return_type
        given = ", ".join([typed(argument) for argument in arguments])
        text = f"call {gives} {function.get_reference()}({given})"
        if isinstance(gives, ir.VoidType):
            self.put(text)
            return None
        return self.write(gives, text)

    def opaque(self, value: Any, register: str) -> Written:
        """The value, without how it came about: no instruction, but no pass looks behind it.

        `register` is the letter by which inline assembly names the kind that holds it.
        """
        text = f'call {value.type} asm "", "={register},0"({typed(value)})'
        return self.write(value.type, text)

    def _binary(self, name: str, x: Any, y: Any) -> Written:
        return self.write(x.type, f"{name} {typed(x)}, {y.get_reference()}")

    def _compare(self, how: str, sign: str, x: Any, y: Any) -> Written:
        kind = ir.VectorType(_I1, x.type.count) if isinstance(x.type, ir.VectorType) else _I1
        return self.write(kind, f"{how}{_COMPARISONS[sign]} {typed(x)}, {y.get_reference()}")

    def _cast(self, name: str, value: Any, kind: Any) -> Any:
        if value.type == kind:
            return value
        return self.write(kind, f"{name} {typed(value)} to {kind}")


def _aligned(align: int | None) -> str:
    return "" if align is None else f", align {align}"
