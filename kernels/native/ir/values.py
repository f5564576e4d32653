"""Values of instructions as they are written: a type, and how others refer to it."""

from typing import Any

from llvmlite import ir


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


def typed(value: Any) -> str:
    """A value as an operand: its type and how others refer to it."""
    if isinstance(value, Written):
        return value.typed
    return f"{value.type} {value.get_reference()}"


def constant_of(value: Any) -> int | None:
    """The integer of a constant; None for anything else."""
    constant = value.constant if isinstance(value, ir.Constant) else None
    return constant if isinstance(constant, int) else None
