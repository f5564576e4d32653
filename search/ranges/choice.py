"""Choose the few schedules that together serve a range of sizes fastest."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.problem import ProblemRange, Size, sizes_text
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Schedule
from tilewise.search.errors import RangeError
from tilewise.search.ranges.result import estimated_us
from tilewise.search.ranges.samples import judged_sizes

MOST_VARIANTS = 6
LEAST_GAIN = log(1.005)
"""Of another variant: less is noise, and each is code that a program carries."""

LEAST_GAIN_OF_FORMAT = log(1.03)
"""Of another layout of constant weights: each is a copy of the weights in memory."""

WORST_SHARE = 0.5
"""What the worst loss counts relative to the mean: variants are to be good at every size."""

BATCH = 4096  # subsets that are compared at once


@dataclass(frozen=True)
class RangeCandidate:
    """A schedule that was timed at samples of a range.

    Attributes:
        served: the sizes that its code serves.
        tile: how many neighbouring values of each dim take the same number of register tiles.
        times_us: by the sampled sizes that it serves.
        packed_format: the layout of constant weights packed ahead; None where they are read as
            they are, which is another copy next to a packed one.
        parts: into which it cuts the work for threads; code for a range has one number of them.
    """

    schedule: Schedule
    served: frozenset[Size]
    tile: Size
    times_us: dict[Size, float]
    packed_format: Hashable = None
    parts: int = 1

    def time_us(self, size: Size) -> float:
        """Return the time at a size, estimated between samples; infinite if not served."""
        return estimated_us(self.times_us, self.tile, size) if size in self.served else inf


def choose(
    problems: ProblemRange, candidates: Sequence[RangeCandidate], most: int = MOST_VARIANTS
) -> RangeSchedule:
    """Return the candidates that together lose least, and where each one serves.

    All subsets of at most `most` candidates of equal parts that serve every size are compared. The
    loss at a size is the logarithm of the time of the fastest of the subset over that of all
    candidates. The mean over a log grid of sizes and the samples counts, and `WORST_SHARE` of the
    worst. Further variants and further layouts of constant weights have to gain `LEAST_GAIN` and
    `LEAST_GAIN_OF_FORMAT`.

    Raises RangeError if no subset serves every size.
    """
    samples = tuple(sorted({size for one in candidates for size in one.times_us}))
    judged = judged_sizes(problems, samples)
    logs = np.log([[one.time_us(size) for size in judged] for one in candidates])
    serves = np.array([[size in one.served for size in problems.sizes] for one in candidates])
    if (unserved := np.flatnonzero(~serves.any(axis=0))).size:
        size = problems.sizes[int(unserved[0])]
        text = sizes_text(problems.dims, size, size)
        raise RangeError(f"{problems}: none of the schedules that were timed serves {text}")
    losses, parts = logs - logs.min(axis=0), np.array([one.parts for one in candidates])
    best: tuple[float, tuple[int, ...]] = inf, ()
    for count in range(1, min(most, len(candidates)) + 1):
        for subsets in _batches(len(candidates), count):
            loss = losses[subsets].min(axis=1)
            costs = loss.mean(axis=1) + WORST_SHARE * loss.max(axis=1) + LEAST_GAIN * (count - 1)
            are_equal = (parts[subsets] == parts[subsets[:, :1]]).all(axis=1)
            for at in np.flatnonzero((costs < best[0]) & are_equal):
                chosen = subsets[at].tolist()
                formats = {candidates[index].packed_format for index in chosen}
                cost = costs[at] + LEAST_GAIN_OF_FORMAT * (len(formats) - 1)
                if cost < best[0] and serves[chosen].any(axis=0).all():
                    best = cost, tuple(chosen)
    if not best[1]:
        raise RangeError(f"{problems}: no {most} of the schedules that were timed serve every size")
    return assigned(problems, [candidates[index] for index in best[1]])


def _batches(candidates: int, count: int) -> Iterator[NDArray[np.intp]]:
    """Yield all subsets of `count` candidates, some thousands at a time."""
    subsets = combinations(range(candidates), count)
    while batch := list(islice(subsets, BATCH)):
        yield np.array(batch)


def assigned(problems: ProblemRange, variants: Sequence[RangeCandidate]) -> RangeSchedule:
    """Return a schedule in which the fastest variant serves each size; unused ones are left out."""
    fastest = [
        min(range(len(variants)), key=lambda index: variants[index].time_us(size))
        for size in problems.sizes
    ]
    used = list(dict.fromkeys(fastest))
    choice = tuple(used.index(index) for index in fastest)
    return RangeSchedule(problems, tuple(variants[index].schedule for index in used), choice)
