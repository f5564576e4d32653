"""For which products of matrices Strassen's method is offered, and how many levels of it.

Adding quadrants costs as much as copying A for each product, B for each block of rows and C once:
little beside products only where all three dims are long.
"""

from tilewise.kernels.steps.strassen import matrix_of, why_not_strassen
from tilewise.search.space.workload import Workload

Sizes = tuple[int, int, int]

LEAST: dict[int, Sizes] = {1: (64, 512, 512), 2: (256, 1024, 1024)}
"""Rows, columns and depth that each number of levels is offered from, with constant weights.

On Emerald Rapids one level gains 5% of 128x768x768, 8% of 128x3072x768, and nothing of 49x512x2048
but in a tile of all groups of rows (`FEW_ROWS`); two gain 27% of 512x4096x4096 where one gains 13%,
and nothing beside one of 128x768x3072.
"""

LEAST_OF_VARIABLE: dict[int, Sizes] = {1: (1024, 2048, 2048), 2: (1024, 2048, 2048)}
"""The same where B is added up in every run: both gain 6% of 2048^3."""

CHEAP_VARIABLE: Sizes = (1024, 1024, 1024)
"""From where one level is offered then by cores whose transforms are cheap.

1024^3 gains 4% on Emerald Rapids in blocks of 60 groups of rows.
"""

FEW_ROWS = 28
"""Rows from which one level of constant weights is offered where the last cache is far.

There a tile of all groups of rows reads panels once
(`tilewise.search.space.methods.algorithms.tall_tiles`): 28x1024x2048 gains 7%, 24x1024x2048
nothing.
"""


def levels_of(workload: Workload) -> tuple[int, ...]:
    """The levels that a workload is offered; none where it is computed directly."""
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
        return LEAST_OF_VARIABLE | ({1: CHEAP_VARIABLE} if core.transforms.are_cheap else {})
    if core.far_l3 is None:
        return LEAST
    _, cols, depth = LEAST[1]
    return LEAST | {1: (FEW_ROWS, cols, depth)}
