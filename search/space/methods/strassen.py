"""For which products of matrices Strassen's method is offered, and how many levels of it.

Adding quadrants costs as much as copying A for each product, B for each block of rows and C once:
little beside products only where all three dims are long.
"""

from kernels.schedule.strassen import matrix_of, why_not_strassen
from search.space.workload import Workload

Sizes = tuple[int, int, int]

LEAST: dict[int, Sizes] = {1: (64, 512, 512), 2: (256, 1024, 1024)}
"""Rows, columns and depth that each number of levels is offered from, with constant weights.

On Emerald Rapids one level gains 5% of 128x768x768, 8% of 128x3072x768, nothing of 49x512x2048; two
gain 27% of 512x4096x4096 where one gains 13%, and nothing beside one of 128x768x3072.
"""

LEAST_OF_VARIABLE: dict[int, Sizes] = {1: (1024, 2048, 2048), 2: (1024, 2048, 2048)}
"""The same where B is added up in every run: both gain 6% of 2048^3, and at most 1% of 1024^3."""


def levels_of(workload: Workload) -> tuple[int, ...]:
    """The levels that a workload is offered; none where it is computed directly."""
    problem = workload.problem
    offered = LEAST if problem.has_constant_weights else LEAST_OF_VARIABLE
    return tuple(
        levels
        for levels, least in offered.items()
        if why_not_strassen(problem, levels) is None
        and all(extent >= size for extent, size in zip(matrix_of(problem), least, strict=True))
    )
