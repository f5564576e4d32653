"""A program before compilation: steps, each a function with the words of each thread.

It uses two memories of the caller: `activations`, which it writes, and `weights`, which it only
reads. A word is a number, a place in a memory, or a table of numbers.
"""

from dataclasses import dataclass
from typing import Literal

from tilewise.kernels.native.language.shared_words import BARRIER_WORDS
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
    """Constant numbers that are read."""

    words: tuple[int, ...]


Word = int | At | Table
Row = tuple[Word, ...]


@dataclass(frozen=True)
class Kernel:
    """The macro-kernel of a schedule.

    Its words are operands, panels, and the bounds of its part.
    """

    problem: Problem
    schedule: Schedule


@dataclass(frozen=True)
class Pass:
    """A pass by name (`tilewise.kernels.native.passes.passes.pass_of`).

    Its words are parameters.
    """

    name: str


Parametric = Pass | RowProgram
"""What takes the address of its words; a row program is a pass that was made for its network."""


@dataclass(frozen=True)
class ProgramStep:
    """One call and the words of each thread; a thread without any does nothing."""

    does: Kernel | Parametric
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class NetworkProgram:
    """Steps in order, with a barrier after each.

    `name` is the prefix of its symbols in C. The steps use `used_bytes` of the activations.
    """

    name: str
    target: Target
    steps: tuple[ProgramStep, ...]
    used_bytes: int

    @property
    def threads(self) -> int:
        """The number of threads that run it."""
        return self.target.threads

    @property
    def barrier(self) -> At:
        """The place of the barrier, behind what the steps use."""
        return At("activations", -(-self.used_bytes // LINE) * LINE)

    @property
    def activations_bytes(self) -> int:
        """Bytes of activations, zeroed before the first run."""
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
