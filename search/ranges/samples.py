"""Which sizes of a range are searched and timed, and by which sizes a choice is judged."""

from math import exp, log

from tilewise.kernels.problem import ProblemRange

MOST_SAMPLES = 7
"""Searches of one range; timing their finalists at all samples takes about as long as another."""

FINALISTS = 3
"""Schedules of each sample that are timed at all others."""

MOST_JUDGED = 64
GRAINS = (16, 4, 1)
"""Tiles have such numbers of rows: a sample between two multiples would time an edge tile."""


def sample_sizes(problems: ProblemRange, most: int = MOST_SAMPLES) -> tuple[int, ...]:
    """Return both ends, and sizes on a log grid between, at multiples of usual tile rows."""
    sizes = problems.sizes
    rounded = []
    for size in _log_grid(sizes, most)[1:-1]:
        grain = next(grain for grain in GRAINS if grain <= size)
        rounded.append(_nearest(sizes, round(size / grain) * grain))
    return tuple(sorted({sizes[0], *rounded, sizes[-1]}))


def judged_sizes(problems: ProblemRange, samples: tuple[int, ...]) -> tuple[int, ...]:
    """Return the samples and the sizes on a log grid, each of which weighs the same in a choice."""
    grid = (_nearest(problems.sizes, size) for size in _log_grid(problems.sizes, MOST_JUDGED))
    return tuple(sorted({*grid, *samples}))


def _log_grid(sizes: range, most: int) -> list[float]:
    if len(sizes) <= most:
        return list(map(float, sizes))
    step = log(sizes[-1] / sizes[0]) / (most - 1)
    return [sizes[0] * exp(index * step) for index in range(most)]


def _nearest(sizes: range, size: float) -> int:
    index = round((size - sizes[0]) / sizes.step)
    return sizes[min(max(index, 0), len(sizes) - 1)]
