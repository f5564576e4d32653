"""Cold mode: operands of every timed run are in memory, not in caches.

A buffer larger than the caches is written before each sample. A run too short for the clock takes
turns over several copies of its operands. Code and predictors stay warm.
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
    """How the caches are emptied, and the number of operand copies in one sample."""

    copies: int
    buffer: Array = field(repr=False)

    def evict(self) -> None:
        """Write every line of the buffer."""
        self.buffer += 1

    @property
    def description(self) -> str:
        """A description for people."""
        walked = f"{self.buffer.nbytes >> 20} MiB written before each sample"
        turns = f", of one run on each of {self.copies} copies" if self.copies > 1 else ""
        return walked + turns


def largest_cache(target: Target) -> int:
    """Return the bytes of the target's largest cache; 0 if unknown."""
    return max(target.l2_bytes, target.l3_bytes)


def walked_bytes(cache_bytes: int) -> int:
    """Return the bytes to write so that a cache holds nothing else."""
    return max(LEAST_BUFFER, TIMES_THE_CACHES * cache_bytes)


def evicting_s(target: Target) -> float:
    """Return about how many seconds emptying the target's caches takes."""
    return walked_bytes(largest_cache(target)) / WALK_BYTES_S


def added_bytes(target: Target) -> int:
    """Return the most memory that the cold mode takes: the buffer and copies with scratch."""
    return walked_bytes(largest_cache(target)) + 2 * MOST_COPIED_BYTES


def cold_mode(run_s: float, operand_bytes: int, cache_bytes: int) -> ColdMode:
    """Return the cold mode for (warm) runs of about `run_s` seconds."""
    fitting = max(1, MOST_COPIED_BYTES // max(1, operand_bytes))
    copies = min(MOST_COPIES, fitting, max(1, ceil(SAMPLE_S / max(run_s, 1e-9))))
    buffer = empty_aligned((walked_bytes(cache_bytes) // 8,), np.int64)
    buffer[:] = 0
    return ColdMode(copies, buffer)


def least_s(run: Run) -> float:
    """Return the shortest of a few runs."""
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
    """Return a run that alternates between several."""

    def turn(repeat: int) -> None:
        for index in range(repeat):
            runs[index % len(runs)](1)

    return turn if len(runs) > 1 else runs[0]
