"""The names of a macro-kernel's parameters, which are i64s at the address that it is given.

They are addresses, functions of the micro-kernel (`tilewise.kernels.native.microkernels.abi`),
sizes (`tilewise.kernels.native.macrokernel.sizes`), and what is a thread's own.
"""

from dataclasses import dataclass, fields
from typing import Generic, Literal, TypeVar

T = TypeVar("T")

REPEAT = "repeat"
"""How often C is computed."""

COUNT = "count"
COUNTERS = {"micro_kernels": COUNT, "A": "packs_of_a", "B": "packs_of_b", "C": "transforms_of_c"}
"""Every macro-kernel's first parameters by what they count: all begin at 0, and nothing is counted,
unless `COUNT` begins at 1."""

BARRIER, PARTS = "barrier", "parts"
"""The address of the barrier at which threads wait for each other, and their number."""

STREAMS = "streams"
"""Parts of the reduction that a chunk of a skinny GEMM has its rows from."""


EXTRAS = ("bias", "add", "scale_c", "zero_c", "zero_a", "zero_b", "scale_b")
"""The operands besides A, B and C."""


@dataclass(frozen=True)
class Addresses(Generic[T]):
    """What a call is bound to: integers, or their text.

    Attributes:
        a, b, c: the operands, by their roles.
        bias, add, scale_c, zero_c, zero_a, zero_b, scale_b: `EXTRAS`; 0 for an absent one.
        a_panels, b_panels: memory for packed A and packed B.
        c_sums: memory for sums that C is made of in the end.
    """

    a: T
    b: T
    c: T
    bias: T
    add: T
    scale_c: T
    zero_c: T
    zero_a: T
    zero_b: T
    scale_b: T
    a_panels: T
    b_panels: T
    c_sums: T


def names_of(record: type) -> tuple[str, ...]:
    """Return the names of a record's parameters, in their order."""
    return tuple(field.name for field in fields(record))


def extent(dim: str) -> str:
    """Return the name of a dim's extent."""
    return f"{dim}_extent"


def bounds(dim: str) -> tuple[str, str]:
    """Return the names of where a thread's part of a dim begins and ends."""
    return f"{dim}_first", f"{dim}_end"


def step(dim: str, level: int) -> str:
    """Return the name of the step of a loop over blocks of a dim; the outermost has level 0."""
    return f"{dim}_step{level}"


Moved = Literal["a", "b", "c", "bias", "ap", "sums"]
"""Operands in place, packed A, and sums that C is made of in the end."""


def stride(operand: Moved, dim: str) -> str:
    """Return the name of what one step along a dim moves an operand by."""
    return f"{operand}_{dim}"
