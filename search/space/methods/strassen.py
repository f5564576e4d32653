"""For which products of matrices Strassen's method is offered, and how many levels of it.

Adding quadrants costs as much as copying A for each product, B for each block of rows and C once:
little beside products only where all three dims are long.
"""

from kernels.schedule.strassen import matrix_of, why_not_strassen
from search.space.workload import Workload

LEAST: dict[int, tuple[int, int, int]] = {1: (64, 512, 512), 2: (256, 1024, 1024)}
"""Rows, columns and depth that each number of levels is offered from.

On Emerald Rapids, with constant weights, one level gains 5% of 128x768x768, 8% of 128x3072x768,
nothing of 49x512x2048; two gain 27% of 512x4096x4096 where one gains 13%, and nothing beside one of
128x768x3072.
"""


def levels_of(workload: Workload) -> tuple[int, ...]:
    """The levels that a workload is offered; none where it is computed directly."""
    problem = workload.problem
    return tuple(
        levels
        for levels, least in LEAST.items()
        if why_not_strassen(problem, levels) is None
        and all(extent >= size for extent, size in zip(matrix_of(problem), least, strict=True))
    )
