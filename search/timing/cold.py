"""The cold mode: every timed run meets its operands in memory, as a model's layers do.

Before each sample a buffer larger than the caches is walked, so that nothing of the
operands and of the scratch is left in them. A run that is too short for the clock takes
turns over several copies of its operands, each touched once after the walk, and the time
of the turn is divided by their number. Code and predictors stay warm.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np

from tilewise.kernels.oracle.operands import Array, empty_aligned
from tilewise.kernels.target.model import Target

LEAST_BUFFER = 32 << 20
TIMES_THE_CACHES = 2
SAMPLE_S = 40e-6  # of a cold sample, for a clock of 50 ns and two calls to it
TRIED = 5  # warm runs that tell how long one is; a single one may be preempted
TRIED_S = 0.1  # after which there are no more of them
MOST_COPIES = 32
MOST_COPIED_BYTES = 256 << 20
WALK_BYTES_S = 8e9  # of a buffer that is written; 15e9 where it was measured

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


def largest_cache(target: Target) -> int:
    """Bytes of the target's largest cache; 0 where none is known."""
    return max(target.l2_bytes, target.l3_bytes)


def walked_bytes(cache_bytes: int) -> int:
    """How much is written so that a cache of that size holds nothing else."""
    return max(LEAST_BUFFER, TIMES_THE_CACHES * cache_bytes)


def evicting_s(target: Target) -> float:
    """About how many seconds emptying the target's caches takes."""
    return walked_bytes(largest_cache(target)) / WALK_BYTES_S


def added_bytes(target: Target) -> int:
    """Memory that the cold mode takes at most: the buffer, and copies with their scratch."""
    return walked_bytes(largest_cache(target)) + 2 * MOST_COPIED_BYTES


def cold_mode(run_s: float, operand_bytes: int, cache_bytes: int) -> ColdMode:
    """The cold mode for runs of about `run_s` seconds on operands of `operand_bytes`.

    Args:
        run_s: one run; a warm one will do.
        operand_bytes: of one copy.
        cache_bytes: of the largest cache.
    """
    fitting = max(1, MOST_COPIED_BYTES // max(1, operand_bytes))
    copies = min(MOST_COPIES, fitting, max(1, ceil(SAMPLE_S / max(run_s, 1e-9))))
    buffer = empty_aligned((walked_bytes(cache_bytes) // 8,), np.int64)
    buffer[:] = 0
    return ColdMode(copies, buffer)


def least_s(run: Run) -> float:
    """Seconds of the shortest of a few runs."""
    least = inf
    until = time.perf_counter() + TRIED_S
    for _ in range(TRIED):
        begin = time.perf_counter()
        run(1)
        end = time.perf_counter()
        least = min(least, end - begin)
        if end > until:
            break
    return least


def in_turn(runs: Sequence[Run]) -> Run:
    """A run that goes over several, so many of them as it is asked to repeat."""

    def turn(repeat: int) -> None:
        for index in range(repeat):
            runs[index % len(runs)](1)

    return turn if len(runs) > 1 else runs[0]
