"""For which products of matrices Strassen's method is offered, and how many levels of it.

Adding quadrants costs as much as copying A for each product, B for each block of rows and C once:
little beside products only where all three dims are long.
"""

from kernels.schedule.strassen import matrix_of, why_not_strassen
from kernels.target.cores import is_golden_cove_server
from search.space.workload import Workload

Sizes = tuple[int, int, int]

LEAST: dict[int, Sizes] = {1: (64, 512, 512), 2: (256, 1024, 1024)}
"""Rows, columns and depth that each number of levels is offered from, with constant weights.

On Emerald Rapids one level gains 5% of 128x768x768, 8% of 128x3072x768, nothing of 49x512x2048; two
gain 27% of 512x4096x4096 where one gains 13%, and nothing beside one of 128x768x3072.
"""

LEAST_OF_VARIABLE: dict[int, Sizes] = {1: (1024, 2048, 2048), 2: (1024, 2048, 2048)}
"""The same where B is added up in every run: both gain 6% of 2048^3, and at most 1% of 1024^3."""


FEW_ROWS = 32
"""Rows from which one level of constant weights is offered where `has_tall_tiles` says so."""

TALL_PER_PANEL = 2
"""Calls that read a panel of one vector, at most: beside more, wider panels are better."""


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
    if not workload.problem.has_constant_weights:
        return LEAST_OF_VARIABLE
    if not has_tall_tiles(workload):
        return LEAST
    _, cols, depth = LEAST[1]
    return LEAST | {1: (FEW_ROWS, cols, depth)}


def has_tall_tiles(workload: Workload) -> bool:
    """Whether one vector of columns by all groups of few rows is a tile worth a trial.

    It reads each panel once, and so pays where the last cache is far. On servers of the Golden Cove
    family 25x1 of 7x7x2048->512 is at 1.05 times the best direct schedule, and 13x2, which reads
    panels twice, at 0.97; no trial elsewhere speaks for it.
    """
    return is_golden_cove_server(workload.target.cpu)


def tall_tiles(workload: Workload) -> tuple[tuple[int, int], ...]:
    """(rows, vectors) of the tile that has few groups of rows at once, or half of them; or none.

    Its sums, a vector of B and an element of A take all registers.
    """
    if 1 not in levels_of(workload) or not has_tall_tiles(workload):
        return ()
    groups = -(-matrix_of(workload.problem)[0] // 2)
    most = workload.target.vector_registers - 2
    calls = -(-groups // most)
    return ((-(-groups // calls), 1),) if calls <= TALL_PER_PANEL else ()
