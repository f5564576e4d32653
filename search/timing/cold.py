"""Cold mode: operands of every timed run are in memory, not in caches.

A buffer larger than the caches is written before each sample, and part of it on each processor that
threads use. A run too short for the clock takes turns over several copies of its operands. Threads
sleep meanwhile, so an untimed run on a further copy wakes them. Code and predictors stay warm.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from math import ceil, inf

import numpy as np

from tilewise.kernels.native.threads.pinning import pin, usable_processors
from tilewise.kernels.oracle.operands import Array, empty_aligned
from tilewise.kernels.target import detect
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
    """How the caches are emptied, and the number of operand copies.

    A sample has one run on each copy but the `spare` one, which serves to wake threads.
    """

    copies: int
    buffer: Array = field(repr=False)
    spare: int = 0

    def evict(self) -> None:
        """Write every line of the buffer, after a part of it on each other processor.

        In this order, because a last cache may receive what the private caches evict.
        """
        home, *others = usable_processors()
        part = self.buffer[: TIMES_THE_CACHES * detect().l2_bytes // self.buffer.itemsize]
        before = pin({home})
        for processor in others:
            pin({processor})
            part += 1
        pin({home})
        self.buffer += 1
        if before is not None:
            pin(before)

    def prepare(self, run: Run) -> None:
        """Empty the caches, then wake the threads by an untimed run on the spare copy."""
        self.evict()
        if self.spare:
            run(self.spare)

    @property
    def description(self) -> str:
        """A description for people."""
        walked = f"{self.buffer.nbytes >> 20} MiB written before each sample"
        timed = self.copies - self.spare
        return walked + (f", of one run on each of {timed} copies" if timed > 1 else "")


def largest_cache(target: Target) -> int:
    """Return the bytes of the target's largest cache; 0 if unknown."""
    return max(target.l2_bytes, target.l3_bytes)


def walked_bytes(cache_bytes: int) -> int:
    """Return the bytes to write so that a cache holds nothing else."""
    return max(LEAST_BUFFER, TIMES_THE_CACHES * cache_bytes)


def evicting_s(target: Target) -> float:
    """Return about how many seconds emptying the target's caches takes."""
    others_bytes = (target.threads - 1) * TIMES_THE_CACHES * target.l2_bytes
    return (walked_bytes(largest_cache(target)) + others_bytes) / WALK_BYTES_S


def added_bytes(target: Target) -> int:
    """Return the most memory that the cold mode takes: the buffer and copies with scratch."""
    return walked_bytes(largest_cache(target)) + 2 * MOST_COPIED_BYTES


def cold_mode(run_s: float, operand_bytes: int, cache_bytes: int) -> ColdMode:
    """Return the cold mode for (warm) runs of about `run_s` seconds.

    Runs on operands too large for a spare copy take far longer than waking their threads.
    """
    fitting = max(1, MOST_COPIED_BYTES // max(1, operand_bytes))
    spare = int(fitting > 1 and len(usable_processors()) > 1)
    timed = min(MOST_COPIES, max(1, ceil(SAMPLE_S / max(run_s, 1e-9))))
    buffer = empty_aligned((walked_bytes(cache_bytes) // 8,), np.int64)
    buffer[:] = 0
    return ColdMode(min(fitting, timed + spare), buffer, spare)


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
    """Return a run that alternates between several, and continues with the next one when called."""
    turns = cycle(runs)

    def turn(repeat: int) -> None:
        for _ in range(repeat):
            next(turns)(1)

    return turn if len(runs) > 1 else runs[0]
