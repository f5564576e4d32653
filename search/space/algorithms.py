"""Points of Winograd and Strassen schedules: where they are offered, and their schedules.

A workload that has such an algorithm has two parameters more: `algorithm` and, of its tiles,
`tiles`. Register tile, unroll factor, columns and division among threads are those of the direct
method; the parameters that say how the direct method packs and cuts have no effect.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from tilewise.kernels.nest import Nest
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import chosen
from tilewise.kernels.steps.algorithm import POINT
from tilewise.kernels.steps.strassen import matrix_of, why_not_strassen
from tilewise.kernels.steps.winograd import why_not_winograd
from tilewise.kernels.target.cores import LINE_BYTES
from tilewise.search.space.parameters import Choice, Parameter, Size
from tilewise.search.space.points import Point, Value
from tilewise.search.space.workload import Workload

Sizes = tuple[int, int, int]

LEAST: dict[int, Sizes] = {1: (64, 512, 512), 2: (256, 1024, 1024)}
"""Rows, columns and depth that each number of levels is offered from, with constant weights.

On Emerald Rapids one level gains 5% of 128x768x768, 8% of 128x3072x768, and nothing of 49x512x2048
but in a tile of all groups of rows (`FEW_ROWS`); two gain 27% of 512x4096x4096 where one gains 13%,
and nothing for one of 128x768x3072.
"""

LEAST_OF_VARIABLE: Sizes = (1024, 2048, 2048)
"""The same of both where B is added up in every run: they gain 6% of 2048^3."""

CHEAP_VARIABLE: Sizes = (1024, 1024, 1024)
"""From where one level is offered then by cores whose transforms are cheap.

1024^3 gains 4% on Emerald Rapids in blocks of 60 groups of rows.
"""

FEW_ROWS = 28
"""Rows from which one level of constant weights is offered where the last cache is far.

There a tile of all groups of rows reads panels once
(`tilewise.search.space.algorithms.tall_tiles`): 28x1024x2048 gains 7%, 24x1024x2048
nothing.
"""


def levels_of(workload: Workload) -> tuple[int, ...]:
    """Return the levels that a search offers for a workload; none if it is computed directly."""
    problem = workload.problem
    return tuple(
        levels
        for levels, least in _least(workload).items()
        if why_not_strassen(problem, levels) is None
        and all(extent >= size for extent, size in zip(matrix_of(problem), least, strict=True))
    )


def _least(workload: Workload) -> dict[int, Sizes]:
    core = workload.target.core
    if not workload.problem.has_constant_weights:
        one = CHEAP_VARIABLE if core.transforms.are_cheap else LEAST_OF_VARIABLE
        return {1: one, 2: LEAST_OF_VARIABLE}
    if core.far_l3 is None:
        return LEAST
    _, cols, depth = LEAST[1]
    return LEAST | {1: (FEW_ROWS, cols, depth)}


LEAST_CHANNELS = {
    (3, 3): {2: 1, 4: 8},
    (5, 5): {2: 8, 3: 16},
    (1, 3): {4: 16, 6: 96},
    (1, 5): {4: 8},
    (1, 7): {2: 16},
    (3, 5): {2: 8, 3: 8},
    (3, 7): {2: 8},
    (5, 7): {2: 32},
}
"""The outputs of tiles that pay, and the least input channels that each is offered for.

By the filter's sides, the shorter one first. Rounding in the transforms is the same for any depth,
and that of the direct method grows with it: F(4x4,3x3) is beyond what `accuracy=standard` allows
from 4 channels down, and F(3x3,5x5) from 8 down where nothing fuses multiply and add. F(4) of three
taps costs more than it saves from 8 channels down.
"""
LEAST_CHANNELS_OF_STRIDED = {(3, 3): {2: 16, 3: 16}, (5, 5): {2: 16}}
"""The same of filters of stride 2, whose transforms round less than direct sums at any depth."""


def has_far_result(workload: Workload) -> bool:
    """Return whether the transforms write whole lines of a far result, which may bypass caches.

    On Emerald Rapids, with 2 MiB, 5x80x100x128 (20 MB) wins 10 to 15% by it, 28x28x512 (1.6 MB) 5%,
    56x56x128 (1.6 MB) 0 to 3%, and 28x28x256 (0.8 MB) loses 1% or wins 2%.
    """
    problem = workload.problem
    if not outputs_of(workload) or problem.has_channels_first or problem.accumulates:
        return False
    shape, size = problem.operand_shapes["C"], problem.element.bytes
    has_lines = workload.lanes * size == LINE_BYTES and shape[-1] % workload.lanes == 0
    return has_lines and workload.is_far(prod(shape) * size)


def outputs_of(workload: Workload) -> tuple[int, ...]:
    """Return the tile outputs that a search offers for a workload; none if computed directly."""
    problem = workload.problem
    if why_not_winograd(problem) is not None:
        return ()
    least_channels = LEAST_CHANNELS if problem.strides == (1, 1) else LEAST_CHANNELS_OF_STRIDED
    offered = least_channels.get((min(problem.window), max(problem.window)), {})
    channels = problem.depth // prod(problem.window)
    return tuple(output for output, least in offered.items() if channels >= least)


def has_large_filter(workload: Workload) -> bool:
    """Return whether a filter that is transformed ahead is so large that tiles wait for it."""
    outputs = outputs_of(workload)
    if not outputs or not workload.problem.has_constant_weights:
        return False
    points = nest_of_algorithm(workload.problem, f"winograd{max(outputs)}").extent(POINT)
    channels = workload.stored["A" if workload.nest.image == "B" else "B"].total
    taps = prod(workload.problem.window)
    target = workload.target
    return points * channels // taps > target.core.transforms.fetched_from * target.l2_bytes


DIRECT, ALGORITHM, WANTED = "direct", "algorithm", "tiles"
PAST_CACHES = "nontemporal"
EFFECTIVE = ("tile", "unroll", "cols", "rows", "prefetch", WANTED, PAST_CACHES)
"""The parameters, except for the division among threads, that a tile's schedule depends on."""

WANTED_TILES = (8, 12, 16, 24, 32, 48, 64, 96, 128)


def algorithm_parameters(workload: Workload) -> tuple[Parameter, ...]:
    """Return what a point has in addition to the parameters of the direct method."""
    names = algorithms_of(workload)
    if not names:
        return ()
    tiles = Size.below(WANTED, WANTED_TILES, max(rows_of_algorithms(workload)))
    far = [Choice(PAST_CACHES, (False, True))] if has_far_result(workload) else []
    return (Choice(ALGORITHM, (DIRECT, *names)), tiles, *far)


def fetches_panels(workload: Workload) -> bool:
    """Return whether B is transformed to so large panels that products wait for them."""
    return bool(levels_of(workload)) or has_large_filter(workload)


def algorithms_of(workload: Workload) -> list[str]:
    """Return the algorithms that a workload is offered in addition to the direct method."""
    offered = {"winograd": outputs_of(workload), "strassen": levels_of(workload)}
    return [f"{name}{size}" for name, sizes in offered.items() for size in sizes]


def rows_of_algorithms(workload: Workload) -> list[int]:
    """Return the rows of each of these algorithms' products."""
    nests = (nest_of_algorithm(workload.problem, name) for name in algorithms_of(workload))
    return [nest.extent(nest.row) for nest in nests]


def algorithm_of(point: Point) -> dict[str, int]:
    """Return the step of a point's algorithm and its size; empty for the direct method."""
    name = str(point.get(ALGORITHM, DIRECT))
    step = name.rstrip("0123456789")
    return {} if name == DIRECT else {step: int(name.removeprefix(step))}


@lru_cache(maxsize=256)
def nest_of_algorithm(problem: Problem, algorithm: str) -> Nest:
    """Return the nest of an algorithm with no other step; it is the same for every point."""
    return chosen(problem, algorithm_of({ALGORITHM: algorithm})).nest


def nearest_algorithm(names: Sequence[Value], wanted: Value) -> Value:
    """Return the algorithm most like another problem's: the same, else that of similar tiles.

    Of two as near, that with the larger tiles; the direct method where there is none of its kind.
    """
    own = algorithm_of({ALGORITHM: wanted})
    sizes = {name: algorithm_of({ALGORITHM: name}) for name in names}
    alike = {
        name: (abs(size - own[step]), -size)
        for name, one in sizes.items()
        for step, size in one.items()
        if step in own
    }
    return min(alike, key=lambda name: alike[name], default=DIRECT)


def channels_of(workload: Workload) -> str:
    """Return the parameter of the direct algorithm's blocks of output channels."""
    return "rows" if workload.nest.image == "B" else "cols"
