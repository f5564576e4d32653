"""LLVM's instructions, written as text at once.

llvmlite's builder keeps an object of each instruction for those who inspect or change it. Nobody
here does, and the objects and their printing took most of the time before LLVM's own. Types,
constants, functions and blocks stay llvmlite's; methods have the names and arguments of its
`IRBuilder`: the primitives of `tilewise.kernels.native.language` are emitted through either.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Self

from llvmlite import ir

_I1, _I64 = ir.IntType(1), ir.IntType(64)
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
        """Return how others refer to it, as llvmlite's own values do."""
        return self.reference


class Phi(Written):
    """A value that depends on the block that control comes from; complete when printed."""

    __slots__ = ("_incoming",)

    def __init__(self, kind: Any, reference: str) -> None:
        super().__init__(kind, reference)
        self._incoming: list[str] = []

    def add_incoming(self, value: Any, block: ir.Block) -> None:
        """Take `value` where control comes from `block`."""
        self._incoming.append(f"[{value.get_reference()}, {block.get_reference()}]")

    def __str__(self) -> str:
        return f"{self.reference} = phi {self.type} {', '.join(self._incoming)}"


def typed(value: Any) -> str:
    """Return a value as an operand: its type and how others refer to it."""
    if isinstance(value, Written):
        return value.typed
    return f"{value.type} {value.get_reference()}"


def _constant_of(value: Any) -> int | None:
    """Return the integer of a constant; None for anything else."""
    constant = value.constant if isinstance(value, ir.Constant) else None
    return constant if isinstance(constant, int) else None


def _binary(name: str) -> "Callable[[Builder, Any, Any], Written]":
    """Return the method for an instruction of two operands of the type that it gives."""

    def write(self: "Builder", x: Any, y: Any) -> Written:
        return self.write(x.type, f"{name} {typed(x)}, {y.get_reference()}")

    return write


def _cast(name: str) -> "Callable[[Builder, Any, Any], Any]":
    """Return the method for a conversion to a type; a value of that type stays as it is."""

    def write(self: "Builder", value: Any, kind: Any) -> Any:
        if value.type == kind:
            return value
        return self.write(kind, f"{name} {typed(value)} to {kind}")

    return write


class Builder:
    """Writes instructions at the end of a block; `sibling` makes another for the same function.

    Attributes:
        block: the block that is written to.
    """

    def __init__(self, block: ir.Block, names: Iterator[int] | None = None) -> None:
        self.block = block
        self._names = count() if names is None else names

    def sibling(self, block: ir.Block) -> Self:
        """Return a second builder for the function, which knows the names of the first."""
        return type(self)(block, self._names)

    @property
    def module(self) -> ir.Module:
        """Return the module of the function."""
        return self.block.function.module

    def write(self, kind: Any, text: str, base: Any = None, more: int = 0) -> Written:
        """Write an instruction that gives a value; `base` and `more` of a sum with an integer."""
        reference = f"%v{next(self._names)}"
        self.block.instructions.append(f"{reference} = {text}")
        return Written(kind, reference, base, more)

    def put(self, text: str) -> None:
        """Write an instruction that gives no value."""
        self.block.instructions.append(text)

    # Blocks and branches --------------------------------------------------------------------

    def append_basic_block(self, name: str = "") -> ir.Block:
        """Add a block to the function."""
        return self.block.function.append_basic_block(name)

    def position_at_end(self, block: ir.Block) -> None:
        """Go on at the end of `block`."""
        self.block = block

    def phi(self, kind: Any) -> Phi:
        """Write a value whose sources are added later."""
        made = Phi(kind, f"%v{next(self._names)}")
        self.block.instructions.append(made)
        return made

    def branch(self, to: ir.Block) -> None:
        """Jump to a block."""
        self._end(f"br {typed(to)}")

    def cbranch(self, condition: Any, yes: ir.Block, no: ir.Block) -> None:
        """Jump to one of two blocks."""
        self._end(f"br {typed(condition)}, {typed(yes)}, {typed(no)}")

    def ret(self, value: Any) -> None:
        """Return a value."""
        self._end(f"ret {typed(value)}")

    def ret_void(self) -> None:
        """Return."""
        self._end("ret void")

    @contextmanager
    def if_then(self, condition: Any) -> Iterator[None]:
        """Write what follows under a condition."""
        then, after = self.append_basic_block("if"), self.append_basic_block("endif")
        self.cbranch(condition, then, after)
        self.position_at_end(then)
        yield
        if not self.block.is_terminated:
            self.branch(after)
        self.position_at_end(after)

    def _end(self, text: str) -> None:
        assert not self.block.is_terminated, f"{text} behind {self.block.terminator}"
        self.put(text)
        self.block.terminator = text

    # Arithmetic -----------------------------------------------------------------------------

    def add(self, x: Any, y: Any) -> Any:
        """Add integers; constants are added up, because addresses have many."""
        known, more = _constant_of(x), _constant_of(y)
        if more is None:
            return self._add(x, y) if known is None else self.add(y, x)
        if known is not None:
            return ir.Constant(x.type, known + more)
        base = x
        if isinstance(x, Written) and x.base is not None:
            base, more = x.base, x.more + more
        if more == 0:
            return base
        return self.write(x.type, f"add {typed(base)}, {more}", base, more)

    def mul(self, x: Any, y: Any) -> Any:
        """Multiply integers; nothing is written where the product is known, or x."""
        known, times = _constant_of(x), _constant_of(y)
        if times == 1:
            return x
        if known is not None and times is not None:
            return ir.Constant(x.type, known * times)
        return self._mul(x, y)

    _add, _mul, sub = _binary("add"), _binary("mul"), _binary("sub")
    sdiv, srem = _binary("sdiv"), _binary("srem")  # the quotient is rounded to zero
    and_, or_, xor = _binary("and"), _binary("or"), _binary("xor")
    shl, ashr, lshr = _binary("shl"), _binary("ashr"), _binary("lshr")
    fadd, fsub, fmul = _binary("fadd"), _binary("fsub"), _binary("fmul")

    def icmp_signed(self, sign: str, x: Any, y: Any) -> Written:
        """Compare signed integers."""
        order = "" if sign in ("==", "!=") else "s"
        return self._compare(f"icmp {order}", sign, x, y)

    def fcmp_ordered(self, sign: str, x: Any, y: Any) -> Written:
        """Compare floats; false where one is a NaN."""
        return self._compare("fcmp o", sign, x, y)

    def _compare(self, how: str, sign: str, x: Any, y: Any) -> Written:
        kind = ir.VectorType(_I1, x.type.count) if isinstance(x.type, ir.VectorType) else _I1
        return self.write(kind, f"{how}{_COMPARISONS[sign]} {typed(x)}, {y.get_reference()}")

    def select(self, condition: Any, x: Any, y: Any) -> Written:
        """Give x where the condition holds, else y."""
        return self.write(x.type, f"select {typed(condition)}, {typed(x)}, {typed(y)}")

    # Conversions ----------------------------------------------------------------------------

    trunc, zext, sext, fpext = _cast("trunc"), _cast("zext"), _cast("sext"), _cast("fpext")
    fptrunc, bitcast, inttoptr = _cast("fptrunc"), _cast("bitcast"), _cast("inttoptr")
    sitofp, fptosi = _cast("sitofp"), _cast("fptosi")

    def ptrtoint(self, pointer: Any) -> Written:
        """Convert a pointer to an address."""
        return self.write(_I64, f"ptrtoint {typed(pointer)} to {_I64}")

    # Vectors --------------------------------------------------------------------------------

    def insert_element(self, vector: Any, element: Any, at: Any) -> Written:
        """Replace one element of a vector."""
        operands = f"{typed(vector)}, {typed(element)}, {typed(at)}"
        return self.write(vector.type, f"insertelement {operands}")

    def shuffle_vector(self, x: Any, y: Any, lanes: Any) -> Written:
        """Pick elements of x and y, in the order of the constant `lanes`."""
        kind = ir.VectorType(x.type.element, lanes.type.count)
        return self.write(kind, f"shufflevector {typed(x)}, {typed(y)}, {typed(lanes)}")

    # Memory ---------------------------------------------------------------------------------

    def alloca(self, kind: Any) -> Written:
        """Reserve memory on the stack."""
        return self.write(kind.as_pointer(), f"alloca {kind}")

    def load(self, at: Any, align: int | None = None) -> Written:
        """Read what a pointer points to."""
        kind = at.type.pointee
        return self.write(kind, f"load {kind}, {typed(at)}{_aligned(align)}")

    def store(self, value: Any, at: Any, align: int | None = None, marks: str = "") -> None:
        """Write to a pointer; `marks` are references to metadata, as they are printed."""
        self.put(f"store {typed(value)}, {typed(at)}{_aligned(align)}{marks}")

    def load_atomic(self, at: Any, ordering: str, align: int) -> Written:
        """Read what other threads write."""
        kind = at.type.pointee
        return self.write(kind, f"load atomic {kind}, {typed(at)} {ordering}{_aligned(align)}")

    def store_atomic(self, value: Any, at: Any, ordering: str, align: int) -> None:
        """Write what other threads read."""
        self.put(f"store atomic {typed(value)}, {typed(at)} {ordering}{_aligned(align)}")

    def atomic_rmw(self, operation: str, at: Any, value: Any, ordering: str) -> Written:
        """Change what a pointer points to; return what it was before."""
        text = f"atomicrmw {operation} {typed(at)}, {typed(value)} {ordering}"
        return self.write(value.type, text)

    # Calls ----------------------------------------------------------------------------------

    def call(self, function: Any, arguments: Sequence[Any]) -> Written | None:
        """Call a function, or what a pointer to one points to; None of a void one."""
        is_known = isinstance(function, ir.Function)
        gives = (function.function_type if is_known else function.type.pointee).return_type
        given = ", ".join([typed(argument) for argument in arguments])
        text = f"call {gives} {function.get_reference()}({given})"
        if isinstance(gives, ir.VoidType):
            self.put(text)
            return None
        return self.write(gives, text)

    def opaque(self, value: Any, register: str) -> Written:
        """Return the value such that no pass sees how it was computed; costs no instruction.

        `register` is the letter by which inline assembly names the kind that holds it.
        """
        text = f'call {value.type} asm "", "={register},0"({typed(value)})'
        return self.write(value.type, text)


def _aligned(align: int | None) -> str:
    return "" if align is None else f", align {align}"
