"""LLVM's instructions, written as text at once.

llvmlite's builder keeps an object of each, for those who look at what they built or change
it. Nobody here does, and the objects and their printing took most of the time before LLVM's
own. Types, constants, functions and blocks stay llvmlite's; the methods have the names and the
arguments of its `IRBuilder`, for `kernels.native.language.primitives` is emitted through either.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from llvmlite import ir

_I1 = ir.IntType(1)
_COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class Written:
    """The value of an instruction.

    Attributes:
        type: its type.
        reference: how others refer to it.
        typed: the type and the reference.
        base: what it is the sum of, with the integer `more`; None for anything but such a sum.
    """

    __slots__ = ("base", "more", "reference", "type", "typed")

    def __init__(self, kind: Any, reference: str, base: Any = None, more: int = 0) -> None:
        self.type = kind
        self.reference = reference
        self.typed = f"{kind} {reference}"
        self.base = base
        self.more = more

    def get_reference(self) -> str:
        """As llvmlite asks its own values."""
        return self.reference


class Phi(Written):
    """A value that depends on the block from which its own was reached; complete when printed."""

    __slots__ = ("_incoming",)

    def __init__(self, kind: Any, reference: str) -> None:
        super().__init__(kind, reference)
        self._incoming: list[str] = []

    def add_incoming(self, value: Any, block: ir.Block) -> None:
        """`value` where `block` was the one before."""
        self._incoming.append(f"[{value.get_reference()}, {block.get_reference()}]")

    def __str__(self) -> str:
        return f"{self.reference} = phi {self.type} {', '.join(self._incoming)}"


class Builder:
    """Writes instructions at the end of a block; another for the same function is `beside` it.

    Attributes:
        block: which; `position_at_end` goes on at another of the same function.
    """

    def __init__(self, block: ir.Block, names: Iterator[int] | None = None) -> None:
        self.block = block
        self._names = count() if names is None else names

    def beside(self, block: ir.Block) -> "Builder":
        """A second builder for the function, which knows the names of the first."""
        return Builder(block, self._names)

    @property
    def module(self) -> ir.Module:
        """What the function belongs to."""
        return self.block.function.module

    def append_basic_block(self, name: str = "") -> ir.Block:
        """A new block of the function."""
        return self.block.function.append_basic_block(name)

    def position_at_end(self, block: ir.Block) -> None:
        """Go on at the end of `block`."""
        self.block = block

    @contextmanager
    def if_then(self, condition: Any) -> Iterator[None]:
        """What is written within happens under the condition."""
        then, after = self.append_basic_block("if"), self.append_basic_block("endif")
        self.cbranch(condition, then, after)
        self.position_at_end(then)
        yield
        if not self.block.is_terminated:
            self.branch(after)
        self.position_at_end(after)

    # Arithmetic -----------------------------------------------------------------------------

    def add(self, x: Any, y: Any) -> Any:
        """The sum x + y of integers; constants are added up, for addresses have many."""
        known, more = _known(x), _known(y)
        if more is None:
            return self._binary("add", x, y) if known is None else self.add(y, x)
        if known is not None:
            return ir.Constant(x.type, known + more)
        base = x
        if isinstance(x, Written) and x.base is not None:
            base, more = x.base, x.more + more
        if more == 0:
            return base
        return self._write(x.type, f"add {_typed(base)}, {more}", base, more)

    def sub(self, x: Any, y: Any) -> Any:
        """The difference x - y of integers."""
        return self._binary("sub", x, y)

    def mul(self, x: Any, y: Any) -> Any:
        """The product x * y of integers; not written where it is known, or x."""
        known, times = _known(x), _known(y)
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
        return self._write(x.type, f"select {_typed(condition)}, {_typed(x)}, {_typed(y)}")

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

    # Vectors --------------------------------------------------------------------------------

    def insert_element(self, vector: Any, element: Any, at: Any) -> Written:
        """The vector with one element replaced."""
        operands = f"{_typed(vector)}, {_typed(element)}, {_typed(at)}"
        return self._write(vector.type, f"insertelement {operands}")

    def shuffle_vector(self, x: Any, y: Any, lanes: Any) -> Written:
        """Elements of x and y, in the order that the constant `lanes` says."""
        kind = ir.VectorType(x.type.element, lanes.type.count)
        return self._write(kind, f"shufflevector {_typed(x)}, {_typed(y)}, {_typed(lanes)}")

    # Memory ---------------------------------------------------------------------------------

    def alloca(self, kind: Any) -> Written:
        """A place on the stack."""
        return self._write(kind.as_pointer(), f"alloca {kind}")

    def load(self, at: Any, align: int | None = None) -> Written:
        """What lies at a pointer."""
        kind = at.type.pointee
        return self._write(kind, f"load {kind}, {_typed(at)}{_aligned(align)}")

    def store(self, value: Any, at: Any, align: int | None = None) -> None:
        """Write to a pointer."""
        self._put(f"store {_typed(value)}, {_typed(at)}{_aligned(align)}")

    def load_atomic(self, at: Any, ordering: str, align: int) -> Written:
        """What lies at a pointer that other threads write to."""
        kind = at.type.pointee
        return self._write(kind, f"load atomic {kind}, {_typed(at)} {ordering}{_aligned(align)}")

    def store_atomic(self, value: Any, at: Any, ordering: str, align: int) -> None:
        """Write to a pointer that other threads read."""
        self._put(f"store atomic {_typed(value)}, {_typed(at)} {ordering}{_aligned(align)}")

    def atomic_rmw(self, operation: str, at: Any, value: Any, ordering: str) -> Written:
        """Change what lies at a pointer; what it was before."""
        text = f"atomicrmw {operation} {_typed(at)}, {_typed(value)} {ordering}"
        return self._write(value.type, text)

    # Control --------------------------------------------------------------------------------

    def call(self, function: Any, arguments: Sequence[Any]) -> Written | None:
        """Call a function, or what a pointer to one points to; nothing for a void one."""
        is_known = isinstance(function, ir.Function)
        gives = (function.function_type if is_known else function.type.pointee).return_type
        given = ", ".join([_typed(argument) for argument in arguments])
        text = f"call {gives} {function.get_reference()}({given})"
        if isinstance(gives, ir.VoidType):
            self._put(text)
            return None
        return self._write(gives, text)

    def opaque(self, value: Any, register: str) -> Written:
        """The value, without how it came about: no instruction, but no pass looks behind it.

        `register` is the letter by which inline assembly names the kind that holds it.
        """
        text = f'call {value.type} asm "", "={register},0"({_typed(value)})'
        return self._write(value.type, text)

    def phi(self, kind: Any) -> Phi:
        """A value that is told later, by the blocks that lead here."""
        made = Phi(kind, f"%v{next(self._names)}")
        self.block.instructions.append(made)
        return made

    def branch(self, to: ir.Block) -> None:
        """Go on at a block."""
        self._end(f"br {_typed(to)}")

    def cbranch(self, condition: Any, yes: ir.Block, no: ir.Block) -> None:
        """Go on at one of two blocks."""
        self._end(f"br {_typed(condition)}, {_typed(yes)}, {_typed(no)}")

    def ret(self, value: Any) -> None:
        """Return a value."""
        self._end(f"ret {_typed(value)}")

    def ret_void(self) -> None:
        """Return."""
        self._end("ret void")

    def _binary(self, name: str, x: Any, y: Any) -> Written:
        return self._write(x.type, f"{name} {_typed(x)}, {y.get_reference()}")

    def _compare(self, how: str, sign: str, x: Any, y: Any) -> Written:
        kind = ir.VectorType(_I1, x.type.count) if isinstance(x.type, ir.VectorType) else _I1
        return self._write(kind, f"{how}{_COMPARISONS[sign]} {_typed(x)}, {y.get_reference()}")

    def _cast(self, name: str, value: Any, kind: Any) -> Any:
        if value.type == kind:
            return value
        return self._write(kind, f"{name} {_typed(value)} to {kind}")

    def _write(self, kind: Any, text: str, base: Any = None, more: int = 0) -> Written:
        reference = f"%v{next(self._names)}"
        self.block.instructions.append(f"{reference} = {text}")
        return Written(kind, reference, base, more)

    def _put(self, text: str) -> None:
        self.block.instructions.append(text)

    def _end(self, text: str) -> None:
        assert not self.block.is_terminated, f"{text} behind {self.block.terminator}"
        self._put(text)
        self.block.terminator = text


def _typed(value: Any) -> str:
    if isinstance(value, Written):
        return value.typed
    return f"{value.type} {value.get_reference()}"


def _known(value: Any) -> int | None:
    """The integer of a constant; None for anything else."""
    constant = value.constant if isinstance(value, ir.Constant) else None
    return constant if isinstance(constant, int) else None


def _aligned(align: int | None) -> str:
    return "" if align is None else f", align {align}"
