"""What a right result of a method looks like: of one with fewer products it may be further off."""

from tilewise.kernels.oracle.filtering import loosened
from tilewise.kernels.oracle.operands import Operands
from tilewise.kernels.oracle.quadrants import loosened_by_quadrants
from tilewise.kernels.oracle.tolerance import Expected
from tilewise.kernels.problem import Problem


def expected_by(
    problem: Problem,
    operands: Operands,
    expected: Expected,
    *,
    output: int | None,
    levels: int | None,
) -> Expected:
    """What is right for a method, by what is for the direct one.

    Args:
        problem: what is computed.
        operands: of it.
        expected: of the direct method.
        output: pixels of a tile of minimal filtering; None without it.
        levels: of Strassen's method; None without it.
    """
    if output is not None:
        return loosened(problem, operands, expected, output)
    if levels is not None:
        return loosened_by_quadrants(problem, operands, expected, levels)
    return expected
