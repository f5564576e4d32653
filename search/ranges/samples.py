"""The sizes of a range that are searched, timed, and used to judge a choice."""

from collections.abc import Iterable, Sequence
from itertools import product
from math import exp, log

from tilewise.kernels.problem import ProblemRange, Size
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.steps.base import Step, StepPhase

MOST_SAMPLES = 7
"""Searches of one range; timing their finalists at all samples takes about as long as another."""

FINALISTS = 4
"""Schedules of each sample that are timed at all others."""

MOST_RANKED = 64
"""Trials of a sample among which they are found."""

MOST_JUDGED = 64
GRAINS = (16, 4, 1)
"""Tiles have such numbers of rows: a sample between two multiples would time an edge tile."""


def sample_sizes(problems: ProblemRange, most: int = MOST_SAMPLES) -> tuple[Size, ...]:
    """Return the corners, and a log grid between, at multiples of usual tile rows."""
    grids = []
    for sizes, grid in zip(problems.ranges, _log_grids(problems.ranges, most), strict=True):
        rounded = []
        for size in grid[1:-1]:
            grain = next(grain for grain in GRAINS if grain <= size)
            rounded.append(_nearest(sizes, round(size / grain) * grain))
        grids.append(sorted({sizes[0], *rounded, sizes[-1]}))
    return tuple(product(*grids))


def finalists_of(ranked: Iterable[Schedule]) -> list[Schedule]:
    """Return the fastest schedule of each algorithm and register tile, the fastest ones.

    Those that differ in their blocks or unrolling lose about as much as each other at another size.
    """
    found: dict[tuple[Step, ...], Schedule] = {}
    for schedule in ranked:
        steps = (step for step in schedule.steps if step.phase <= StepPhase.MICRO_KERNEL)
        found.setdefault(tuple(steps), schedule)
    return list(found.values())[:FINALISTS]


def judged_sizes(problems: ProblemRange, samples: Sequence[Size]) -> tuple[Size, ...]:
    """Return the samples and the sizes on a log grid, each of which weighs the same in a choice."""
    found = zip(problems.ranges, _log_grids(problems.ranges, MOST_JUDGED), strict=True)
    grids = ([_nearest(sizes, size) for size in grid] for sizes, grid in found)
    return tuple(sorted({*product(*grids), *samples}))


def _log_grids(ranges: Sequence[range], most: int) -> list[list[float]]:
    """Return a log grid of each dim for `most` sizes together, and at least all corners.

    The widest dim has the most, the first of those of one width.
    """
    least = max(2, int(most ** (1 / len(ranges))))
    widths = [(len(one) > least, one[-1] / one[0], -at) for at, one in enumerate(ranges)]
    more = max(2, most // least ** (len(ranges) - 1))
    return [
        _log_grid(one, more if width == max(widths) else least)
        for one, width in zip(ranges, widths, strict=True)
    ]


def _log_grid(sizes: range, most: int) -> list[float]:
    if len(sizes) <= most:
        return list(map(float, sizes))
    step = log(sizes[-1] / sizes[0]) / (most - 1)
    return [sizes[0] * exp(index * step) for index in range(most)]


def _nearest(sizes: range, size: float) -> int:
    index = round((size - sizes[0]) / sizes.step)
    return sizes[min(max(index, 0), len(sizes) - 1)]
