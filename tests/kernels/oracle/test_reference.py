"""The reference and its tolerances, also for fast algorithms."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from tilewise.kernels.fast_algorithms import STRASSEN
from tilewise.kernels.nest import nest_of
from tilewise.kernels.oracle import fast_algorithms
from tilewise.kernels.oracle.fast_algorithms import expected_by
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.oracle.reference import Expected, compare, error_bound, reference
from tilewise.kernels.problem import Matmul, Problem, parse_problem
from tilewise.kernels.schedule import Strassen, Winograd


@pytest.mark.parametrize("length", [1, 10, 10**4, 2**24, 2**24 + 1, 10**8])
@pytest.mark.parametrize("accumulator", ["f32", "f64"])
def test_bounds_are_positive_small_and_grow(length: int, accumulator: str) -> None:
    bound = error_bound(length, accumulator)
    assert 0 < bound < 0.01
    assert bound <= error_bound(length + 1, accumulator)


@pytest.mark.parametrize(("length", "units"), [(9, 9.0), (36, 36.0), (10**4, 600.0), (10**6, 6e3)])
def test_long_sums_have_the_likely_bound(length: int, units: float) -> None:
    assert error_bound(length, "f32") == pytest.approx(units * 2.0**-24, rel=1e-4)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "bf16", "f16", "i8"])
def test_the_reference_is_what_python_computes(dtype: str) -> None:
    problem = parse_problem(f"matmul:m=3,n=4,k=5,dtype={dtype},transpose_a,bias,epilogue=relu")
    operands = make_operands(problem, 1)
    expected = reference(problem, operands)
    if dtype == "bf16":
        a, b = ((operands[n].astype(np.uint32) << 16).view(np.float32) for n in "AB")
    else:
        a, b = operands["A"], operands["B"]
    for i in range(3):
        for j in range(4):
            exact = sum(a[k, i].item() * b[k, j].item() for k in range(5))
            exact += operands["bias"][j].item()
            if dtype in ("i32", "i8"):
                exact = (exact + 2**31) % 2**32 - 2**31
            assert expected.value[i, j] == pytest.approx(max(exact, 0), rel=1e-12)


@pytest.mark.parametrize("keys", ["dtype=u8,b=i8", "dtype=i8,b=u8", "dtype=u8"])
@pytest.mark.parametrize("zero", ["", "a", "b", "ab"])
def test_zero_points_are_subtracted_and_pad_the_image(keys: str, zero: str) -> None:
    with_zero = f",zero={zero}" if zero else ""
    text = f"conv2d:n=1,h=3,w=4,ci=2,co=3,kh=2,kw=2,pad=1x0x1x1,{keys}{with_zero},init=accumulate"
    problem = parse_problem(text)
    operands = make_operands(problem, 3)
    found = reference(problem, operands).value
    a, b = (
        operands[name].astype(object) - int(operands.get(f"zero_{name.lower()}", [0])[0])
        for name in "AB"
    )
    _, height, width, _ = problem.operand_shapes["C"]
    for y in range(height):
        for x in range(width):
            taps = [
                (i, j) for i in range(2) for j in range(2) if y + i - 1 in range(3) and x + j < 4
            ]
            for c in range(3):
                exact = sum(a[0, y + i - 1, x + j] @ b[i, j, :, c] for i, j in taps)
                exact += int(operands["C"][0, y, x, c])
                assert found[0, y, x, c] == (exact + 2**31) % 2**32 - 2**31


def test_relu6_cuts_off_below_and_above() -> None:
    text = "matmul:m=3,n=4,k=25,dtype=f64,init=accumulate,epilogue="
    operands = make_operands(parse_problem(text + "none"), 1)
    operands["C"][...] *= 9
    exact = reference(parse_problem(text + "none"), operands).value
    found = reference(parse_problem(text + "relu6"), operands).value
    assert (exact < 0).any() and (exact > 6).any() and ((exact > 0) & (exact < 6)).any()
    assert np.array_equal(found, np.minimum(np.maximum(exact, 0), 6))


@pytest.mark.parametrize("depth", [9, 517, 4000])
def test_most_sums_lie_between_the_limits_of_relu6(depth: int) -> None:
    """A sum that is cut off tells nothing of its products."""
    problem = parse_problem(f"matmul:m=9,n=53,k={depth},dtype=f32,bias,epilogue=relu6")
    value = reference(problem, make_operands(problem, 3)).value
    assert value.min() == 0 and value.max() <= 6
    assert np.mean(value == 6) < 0.2 and np.mean((value > 0) & (value < 6)) > 0.3


def test_one_lost_product_is_noticed() -> None:
    problem = parse_problem("matmul:m=8,n=8,k=512,dtype=f32")
    operands = make_operands(problem, 3)
    expected = reference(problem, operands)
    right = (operands["A"] @ operands["B"]).astype(np.float32)
    assert np.less_equal(*compare(problem, right, expected))
    wrong = operands["A"][:, :-1] @ operands["B"][:-1]
    assert np.greater(*compare(problem, wrong, expected))


def test_a_nan_is_never_within_tolerance() -> None:
    problem = parse_problem("matmul:m=2,n=2,k=2,dtype=f32")
    operands = make_operands(problem, 0)
    result = (operands["A"] @ operands["B"]).astype(np.float32)
    result[1, 1] = np.nan
    error, tolerance = compare(problem, result, reference(problem, operands))
    assert not error <= tolerance


@pytest.mark.parametrize("pad", [0, 1, 2])
@pytest.mark.parametrize("groups", [1, 3])
def test_a_convolution_stored_otherwise_has_the_same_result(groups: int, pad: int) -> None:
    text = f"conv2d:n=2,h=5,w=6,ci=3,co=6,kh=3,kw=2,pad=2,groups={groups},stride=2,dtype=i32,bias"
    problem = parse_problem(text)
    other = problem.stored_as(channels_first=True, pad=pad)
    operands = make_operands(problem, 1)
    image, weights = operands["A"].transpose(0, 3, 1, 2), operands["B"].transpose(3, 2, 0, 1)
    zeros = [
        (problem.pad - pad,) * 2 if axis in other.spatial_axes else (0, 0) for axis in range(4)
    ]
    stored = {**operands, "A": np.pad(image, zeros), "B": weights}
    assert {name: stored[name].shape for name in "AB"} == {
        name: other.operand_shapes[name] for name in "AB"
    }
    assert other.padded_shape == (2, 3, 9, 10)
    assert other.depth == 3 * 2 * 3 // groups
    expected = reference(problem, operands).value.transpose(0, 3, 1, 2)
    assert np.array_equal(reference(other, stored).value, expected)
    assert other.stored_as(channels_first=False, pad=2) == problem


def test_a_convolution_of_volumes_sums_all_taps() -> None:
    keys = "kd=2,kh=3,kw=2,stride=2x1x3,dilation=2x1x2,pad=1x0x2x0x1x1,dtype=i32"
    problem = parse_problem(f"conv3d:n=2,d=5,h=6,w=7,ci=3,co=4,{keys}")
    operands = make_operands(problem, 1)
    padded = np.pad(operands["A"], [(0, 0), (1, 0), (0, 1), (2, 1), (0, 0)])
    seen = sliding_window_view(padded, (3, 3, 3), (1, 2, 3))[:, ::2, :, ::3, :, ::2, :, ::2]
    expected = np.einsum("ndhwcijk,ijkcf->ndhwf", seen, operands["B"])
    assert np.array_equal(reference(problem, operands).value, expected)


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


@pytest.mark.parametrize(("problem", "step"), [
    (PROBLEM, Strassen(1)),
    (PROBLEM, Strassen(2)),
    (parse_problem("conv2d:n=2,h=9,w=8,ci=5,co=20,kh=3,kw=3,pad=1,dtype=f32"), Winograd(4)),
    (parse_problem("conv2d:n=1,h=9,w=8,ci=8,co=24,kh=1,kw=1,stride=2,dtype=f32"), Strassen(1)),
], ids=str)  # fmt: skip
def test_blocks_do_not_change_the_tolerance(problem, step, monkeypatch) -> None:
    operands = make_operands(problem, 3)
    whole = expected_by(problem, operands, nothing(problem), step).tolerance
    for limit in ("COLUMN_BYTES", "ROW_BYTES", "LEAST_ROWS"):
        monkeypatch.setattr(fast_algorithms, limit, 4)
    parts = expected_by(problem, operands, nothing(problem), step).tolerance
    assert whole is not None and (whole > 0).all()
    np.testing.assert_allclose(parts, whole, rtol=1e-12)
