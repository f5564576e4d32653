"""A program before it is compiled: steps, each a function and the words that threads give it.

A program works on two memories of its caller's: `activations`, which it writes, and `weights`,
which it only reads. A word is a number, a place in one of them, or a table of numbers.
"""

from dataclasses import dataclass
from typing import Literal

from tilewise.kernels.native.language.primitives import BARRIER_WORDS
from tilewise.kernels.native.passes.rows.program import RowProgram
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target

LINE = 64
BARRIER_BYTES = 8 * BARRIER_WORDS
Area = Literal["activations", "weights"]


@dataclass(frozen=True)
class At:
    """A place in a memory."""

    area: Area
    offset: int


@dataclass(frozen=True)
class Table:
    """Numbers that are read, and known before."""

    words: tuple[int, ...]


Word = int | At | Table
Row = tuple[Word, ...]


@dataclass(frozen=True)
class Kernel:
    """The driver of a schedule: its words are operands, panels, and where its part lies."""

    problem: Problem
    schedule: Schedule


@dataclass(frozen=True)
class Pass:
    """A pass (`tilewise.kernels.native.passes.passes.pass_of`): its words are its parameters."""

    name: str


Parametric = Pass | RowProgram
"""What takes the address of its words; a row program is a pass that was made for its network."""


@dataclass(frozen=True)
class Step:
    """One call: what is called and each thread's words; a thread without a row does nothing."""

    does: Kernel | Parametric
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Program:
    """Steps in order.

    Attributes:
        name: what the symbols of its code begin with; a name in C.
        target: the machine that it is for; as many threads run it.
        steps: in order; threads wait for each other after each.
        used_bytes: of the activations, by the steps.
    """

    name: str
    target: Target
    steps: tuple[Step, ...]
    used_bytes: int

    @property
    def threads(self) -> int:
        """That run it."""
        return self.target.threads

    @property
    def barrier(self) -> At:
        """Where threads meet, behind what the steps use."""
        return At("activations", -(-self.used_bytes // LINE) * LINE)

    @property
    def activations_bytes(self) -> int:
        """Of the memory that it writes, zeroed before the first run."""
        return self.barrier.offset + (BARRIER_BYTES if self.threads > 1 else 0)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Each kernel once."""
        return tuple(dict.fromkeys(one.does for one in self.steps if isinstance(one.does, Kernel)))

    @property
    def passes(self) -> tuple[Parametric, ...]:
        """Each pass once."""
        found = (one.does for one in self.steps)
        return tuple(dict.fromkeys(one for one in found if not isinstance(one, Kernel)))
