"""The tolerance of fast algorithms: magnitudes of whole blocks, however they are cut."""

import numpy as np
import pytest

from tilewise.kernels.fast_algorithms import STRASSEN
from tilewise.kernels.nest import nest_of
from tilewise.kernels.oracle import fast_algorithms
from tilewise.kernels.oracle.fast_algorithms import expected_by
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.oracle.reference import Expected
from tilewise.kernels.problem import Matmul, Problem, parse_problem
from tilewise.kernels.schedule import Strassen, Winograd
from tilewise.kernels.steps.algorithm import AlgorithmStep

PROBLEM = Matmul(m=21, n=24, k=16, dtype="f32", transpose_b=True)


def nothing(problem: Problem) -> Expected:
    """An exact result without a tolerance, so that the bound is all of the algorithm's own."""
    zeros = np.zeros(problem.operand_shapes["C"])
    return Expected(zeros, zeros)


def test_magnitudes_are_those_of_the_tables() -> None:
    operands = make_operands(PROBLEM, 5)
    found = expected_by(PROBLEM, operands, nothing(PROBLEM), Strassen(1)).tolerance
    assert found is not None
    a, b = (np.abs(operands[name]).astype(np.float64) for name in "AB")
    a, b = np.concatenate([a, np.zeros((1, PROBLEM.k))]), b.T
    left = [a[y::2, x : x + 8] for y in range(2) for x in (0, 8)]
    right = [b[y : y + 8, x : x + 12] for y in (0, 8) for x in (0, 12)]
    tables = (STRASSEN.image, STRASSEN.filter, STRASSEN.result)
    image, weights, result = (np.abs(np.array(one, float)) for one in tables)
    products = np.einsum("pq,qik,pr,rkj->pij", image, left, weights, right)
    wanted = np.zeros((22, 24))
    for number, block in enumerate(np.einsum("cp,pij->cij", result, products)):
        y, x = divmod(number, 2)
        wanted[y::2, 12 * x : 12 * x + 12] = block
    ratio = found / wanted[: PROBLEM.m]
    assert np.ptp(ratio) < 1e-9 * ratio.max(), "one unit of rounding for all"
    assert 0 < ratio.max() < 1e-3


def test_each_level_rounds() -> None:
    roundings = []
    for levels in (1, 2):
        algorithm = Strassen(levels).apply(nest_of(PROBLEM)).algorithm
        assert algorithm is not None
        roundings.append(algorithm.roundings)
    assert roundings[1] == 2 * roundings[0] > 0


@pytest.mark.parametrize(
    ("problem", "step"),
    [
        (PROBLEM, Strassen(1)),
        (PROBLEM, Strassen(2)),
        (parse_problem("conv2d:n=2,h=9,w=8,ci=5,co=20,kh=3,kw=3,pad=1,dtype=f32"), Winograd(4)),
        (parse_problem("conv2d:n=1,h=9,w=8,ci=8,co=24,kh=1,kw=1,stride=2,dtype=f32"), Strassen(1)),
    ],
    ids=str,
)
def test_the_tolerance_does_not_depend_on_the_blocks(
    problem: Problem, step: AlgorithmStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    operands = make_operands(problem, 3)
    whole = expected_by(problem, operands, nothing(problem), step).tolerance
    for limit in ("COLUMN_BYTES", "ROW_BYTES", "LEAST_ROWS"):
        monkeypatch.setattr(fast_algorithms, limit, 4)
    parts = expected_by(problem, operands, nothing(problem), step).tolerance
    assert whole is not None and (whole > 0).all()
    np.testing.assert_allclose(parts, whole, rtol=1e-12)
