"""The cold mode: every timed run meets its operands in memory, as a model's layers do.

Before each sample a buffer larger than the caches is walked, so that nothing of the
operands and of the scratch is left in them. A run that is too short for the clock takes
turns over several copies of its operands, each touched once after the walk, and the time
of the turn is divided by their number. Code and predictors stay warm.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from kernels.reference import Array, empty_aligned

LEAST_BUFFER = 32 << 20
TIMES_THE_CACHES = 2
SAMPLE_S = 40e-6  # of a cold sample, for a clock of 50 ns and two calls to it
MOST_COPIES = 32
MOST_COPIED_BYTES = 256 << 20

Run = Callable[[int], None]


@dataclass
class ColdMode:
    """How the caches are emptied, and how many copies of the operands one sample runs over."""

    copies: int
    buffer: Array = field(repr=False)

    def evict(self) -> None:
        """Write every line of the buffer, which leaves no room for anything else."""
        self.buffer += 1

    @property
    def description(self) -> str:
        """What was done, in words."""
        walked = f"{self.buffer.nbytes >> 20} MiB written before each sample"
        turns = f", of one run on each of {self.copies} copies" if self.copies > 1 else ""
        return walked + turns


def cold_mode(run_s: float, operand_bytes: int, cache_bytes: int) -> ColdMode:
    """The cold mode for runs of about `run_s` seconds on operands of `operand_bytes`.

    Args:
        run_s: one run; a warm one will do.
        operand_bytes: of one copy.
        cache_bytes: of the largest cache.
    """
    fitting = max(1, MOST_COPIED_BYTES // max(1, operand_bytes))
    copies = min(MOST_COPIES, fitting, max(1, ceil(SAMPLE_S / max(run_s, 1e-9))))
    size = max(LEAST_BUFFER, TIMES_THE_CACHES * cache_bytes)
    buffer = empty_aligned((size // 8,), np.int64)
    buffer[:] = 0
    return ColdMode(copies, buffer)


def in_turn(runs: Sequence[Run]) -> Run:
    """A run that goes over several, so many of them as it is asked to repeat."""

    def turn(repeat: int) -> None:
        for index in range(repeat):
            runs[index % len(runs)](1)

    return turn if len(runs) > 1 else runs[0]
