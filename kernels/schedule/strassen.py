"""What the step `strassen` makes of a matmul or a convolution of single pixels."""

from typing import TypeGuard

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.iteration import IterationSpace, iteration_space
from tilewise.kernels.problem.model import Conv2d, Matmul
from tilewise.kernels.schedule.fewer_products import ELEMENTS, POINT, TILES
from tilewise.kernels.schedule.steps.algorithms import Strassen
from tilewise.kernels.strassen import LEVELS, PRODUCTS

EVEN = 2
"""Rows that are as far apart as any two are."""


def strassen_space(problem: Problem, levels: int) -> IterationSpace:
    """Groups of rows by a part of the columns by one of the reduction, a product for each point.

    Raises:
        ScheduleError: the problem has no such parts.
    """
    why = why_not_strassen(problem, levels)
    if why is not None:
        raise ScheduleError(f"step '{Strassen(levels)}' cannot be applied to {problem}: {why}")
    space = iteration_space(problem)
    rows, cols, depth = matrix_of(problem)
    parts = 2**levels
    return IterationSpace(
        extents=(
            (POINT, PRODUCTS**levels),
            (TILES, -(-rows // parts)),
            (space.col, cols // parts),
            (space.stream, depth // parts),
        ),
        row_dims=(TILES,),
        col=space.col,
        stream=space.stream,
        taps=1,
        lead=(POINT,),
        image="A",
        tile=(parts, parts),
    )


def has_strided_rows(problem: Problem) -> TypeGuard[Conv2d]:
    """Whether the rows of A are pixels that a stride leaves, and do not lie one behind the other.

    Two rows lie anywhere apart; more of a group have to be of one line, where they are as far.
    """
    return isinstance(problem, Conv2d) and problem.stride > 1


def matrix_of(problem: Problem) -> tuple[int, int, int]:
    """Rows and columns of the result, and the reduction."""
    if isinstance(problem, Matmul):
        return problem.m, problem.n, problem.k
    assert isinstance(problem, Conv2d)
    return problem.n * problem.oh * problem.ow, problem.co, problem.ci


def why_not_strassen(problem: Problem, levels: int) -> str | None:
    """Why a problem is no product of matrices that can be cut so often; None where it is."""
    if levels not in LEVELS:
        return f"levels is one of {', '.join(map(str, LEVELS))}"
    if problem.is_strict:
        return "accuracy=strict asks for the direct method"
    if problem.element.name not in ELEMENTS:
        return f"dtype={problem.element.name} is not one of {', '.join(ELEMENTS)}"
    why = _why_no_matrix(problem)
    if why is not None:
        return why
    rows, cols, depth = matrix_of(problem)
    parts = 2**levels
    for what, extent in (("width", cols), ("reduction", depth)):
        if extent % parts:
            return f"its {what} of {extent} has no {parts} equal parts"
    if has_strided_rows(problem) and parts > EVEN and problem.ow % parts:
        return f"its lines of {problem.ow} strided pixels cut groups of {parts} rows"
    return f"it has fewer rows than {parts}" if rows < parts else None


def _why_no_matrix(problem: Problem) -> str | None:
    if isinstance(problem, Matmul):
        if problem.batch > 1:
            return f"batch={problem.batch} is not 1"
        return "A is transposed" if problem.transpose_a else None
    assert isinstance(problem, Conv2d)
    if problem.has_channels_first:
        return f"layout={problem.layout} has no rows of channels"
    if problem.kh * problem.kw > 1:
        return f"the filter is {problem.kh}x{problem.kw}, and not 1x1"
    for name, wanted in (("pad", 0), ("groups", 1)):
        if getattr(problem, name) != wanted:
            return f"{name}={getattr(problem, name)} is not {wanted}"
    return None
