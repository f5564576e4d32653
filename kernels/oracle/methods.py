"""What a right result of a method looks like: of one with fewer products it may be further off."""

from tilewise.kernels.oracle.filtering import loosened
from tilewise.kernels.oracle.operands import Operands
from tilewise.kernels.oracle.quadrants import loosened_by_quadrants
from tilewise.kernels.oracle.tolerance import Expected
from tilewise.kernels.problem import Problem
from tilewise.kernels.steps.transformed import AlgorithmStep

_LOOSENED = {"winograd": loosened, "strassen": loosened_by_quadrants}
"""By the name of the step, what is right for its rounding."""


def expected_by(
    problem: Problem, operands: Operands, expected: Expected, algorithm: AlgorithmStep | None
) -> Expected:
    """Return what is right for a method, by what is for the direct one.

    Args:
        problem: what is computed.
        operands: of it.
        expected: of the direct method.
        algorithm: the step of a schedule that does fewer multiplications; None for the direct one.
    """
    if algorithm is None:
        return expected
    return _LOOSENED[algorithm.name](problem, operands, expected, algorithm.size)
