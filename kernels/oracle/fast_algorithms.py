"""The tolerance of a result that a fast algorithm computes.

Its transforms add and subtract values of a whole tile or block, whose magnitudes bound the error of
an element: the algorithm on |A| and |B| with the magnitudes of all coefficients, times the rounding
of a sum of that length. That is the bound of Barabasz, Anderson, Soodhalter and Gregg for
Winograd's transforms (Error Analysis and Improving the Accuracy of Winograd Convolution for Deep
Neural Networks, ACM TOMS 46(4), 2020), and that of Higham for Strassen's algorithm by norms
(Accuracy and Stability of Numerical Algorithms, 2002, section 23.2.2), with the probabilistic
constant of `tilewise.kernels.oracle.reference`.
"""

import numpy as np

from tilewise.kernels.nest import Nest, Role, nest_of
from tilewise.kernels.oracle.operands import Array, Operands, operand_type, widened
from tilewise.kernels.oracle.reference import TINY, Expected, error_bound
from tilewise.kernels.problem import Problem
from tilewise.kernels.steps.algorithm import AlgorithmStep

COLUMN_BYTES, ROW_BYTES = 64 << 20, 1 << 20
"""Of transformed values of B and of A that are computed at a time."""
LEAST_ROWS = 64  # of a block, so that products of matrices are fast


def expected_by(
    problem: Problem, operands: Operands, expected: Expected, algorithm: AlgorithmStep | None
) -> Expected:
    """Return the direct method's expectation with the larger tolerance of `algorithm`, if any."""
    if algorithm is None:
        return expected
    assert expected.tolerance is not None
    nest = algorithm.apply(nest_of(problem))
    assert nest.algorithm is not None
    length = nest.extent(nest.k) + nest.algorithm.roundings
    unit = error_bound(length, problem.element.accumulator)
    tolerance = expected.tolerance + unit * _magnitudes(nest, operands) + TINY
    return Expected(expected.value, tolerance)


def _magnitudes(nest: Nest, operands: Operands) -> Array:
    """Return the sums of magnitudes behind each element of the result, block by block."""
    problem, (point,) = nest.problem, nest.named(Role.POINT)
    assert nest.algorithm is not None
    algorithm = nest.algorithm.magnitudes()
    sizes = {
        name: np.abs(widened(operands[name], operand_type(problem, name))) for name in ("A", "B")
    }
    found = np.zeros(problem.operand_shapes["C"])
    depth, width = nest.extent(nest.k), nest.extent(nest.col)
    of_points = found.itemsize * nest.extent(point)
    col_step = max(1, COLUMN_BYTES // (of_points * depth))
    row_step = max(LEAST_ROWS, ROW_BYTES // (of_points * max(depth, min(col_step, width))))
    for cols in _blocks(width, col_step):
        right = algorithm.stage("B", sizes, {nest.col: cols})
        for rows in _blocks(nest.extent(nest.row), row_step):
            at = {nest.row: rows, nest.col: cols}
            for where, _, sums in algorithm.combine(algorithm.stage("A", sizes, at) @ right, at):
                found[where] = sums
    return found


def _blocks(extent: int, step: int) -> list[Array]:
    return [np.arange(first, min(first + step, extent)) for first in range(0, extent, step)]
