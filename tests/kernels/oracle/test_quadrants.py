"""The bound of products of quadrants: magnitudes by blocks, however many rows are looked at."""

import numpy as np
import pytest

from tilewise.kernels.oracle import quadrants
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.oracle.quadrants import loosened_by_quadrants
from tilewise.kernels.oracle.tolerance import Expected
from tilewise.kernels.problem import Matmul
from tilewise.kernels.strassen import FILTER, IMAGE, RESULT

PROBLEM = Matmul(m=21, n=24, k=16, dtype="f32", transpose_b=True)


def nothing() -> Expected:
    """A result that may be nowhere off, so that the bound is all of the method's own."""
    zeros = np.zeros((PROBLEM.m, PROBLEM.n))
    return Expected(zeros, zeros)


def test_magnitudes_are_those_of_the_tables() -> None:
    operands = make_operands(PROBLEM, 5)
    found = loosened_by_quadrants(PROBLEM, operands, nothing(), 1).tolerance
    assert found is not None
    a, b = (np.abs(operands[name]).astype(np.float64) for name in "AB")
    a, b = np.concatenate([a, np.zeros((1, PROBLEM.k))]), b.T
    left = [a[y::2, x : x + 8] for y in range(2) for x in (0, 8)]
    right = [b[y : y + 8, x : x + 12] for y in (0, 8) for x in (0, 12)]
    image, weights, result = (np.abs(np.array(one, float)) for one in (IMAGE, FILTER, RESULT))
    products = np.einsum("pq,qik,pr,rkj->pij", image, left, weights, right)
    wanted = np.zeros((22, 24))
    for number, quadrant in enumerate(np.einsum("cp,pij->cij", result, products)):
        y, x = divmod(number, 2)
        wanted[y::2, 12 * x : 12 * x + 12] = quadrant
    ratio = found / wanted[: PROBLEM.m]
    assert np.ptp(ratio) < 1e-9 * ratio.max(), "one unit of rounding for all"
    assert 0 < ratio.max() < 1e-3


@pytest.mark.parametrize("levels", [1, 2])
def test_rows_are_bounded_alike_however_many_are_looked_at(
    levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    operands = make_operands(PROBLEM, 3)
    whole = loosened_by_quadrants(PROBLEM, operands, nothing(), levels)
    monkeypatch.setattr(quadrants, "ROWS", 8)
    parts = loosened_by_quadrants(PROBLEM, operands, nothing(), levels)
    np.testing.assert_allclose(parts.tolerance, whole.tolerance, rtol=1e-12)
