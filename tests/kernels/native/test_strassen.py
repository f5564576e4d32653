"""Products of matrices by Strassen's method: any size and cut, what NaN spreads to, refusals."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.native.export.test_export import run_alone
from tests.kernels.native_case import TARGETS, check
from tests.kernels.strategies import is_legal
from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.native import lower
from tilewise.kernels.native.export.module import export
from tilewise.kernels.oracle.fast_algorithms import expected_by
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Conv2d, Matmul, Problem, parse_problem
from tilewise.kernels.schedule import (
    Pack,
    Parallel,
    Prefetch,
    Register,
    Schedule,
    Step,
    Strassen,
    Stream,
    Tile,
    Unroll,
    begin,
    loop_nest,
)
from tilewise.kernels.target import Target


@st.composite
def products(draw: st.DrawFn) -> tuple[Problem, int]:
    """Matmuls and convolutions of single pixels that can be cut so often."""
    levels = draw(st.sampled_from([1, 2]))
    parts = 2**levels
    cols = parts * draw(st.sampled_from([1, 3, 8, 17, 35]))
    depth = parts * draw(st.sampled_from([1, 2, 5, 16, 19]))
    shared = {
        "dtype": draw(st.sampled_from(["f32", "f64"])),
        "init": draw(st.sampled_from(["zero", "accumulate"])),
        "bias": draw(st.booleans()),
        "epilogue": draw(st.sampled_from(["none", "relu", "relu6"])),
        "weights": draw(st.sampled_from(["variable", "constant"])),
    }
    if draw(st.booleans()):
        turned = draw(st.booleans())
        rows = draw(st.integers(parts, 23))
        return Matmul(m=rows, n=cols, k=depth, transpose_b=turned, **shared), levels
    pixels = {"n": draw(st.integers(1, 3)), "h": draw(st.integers(2, 4)), "w": 3}
    if draw(st.booleans()):
        stride = draw(st.integers(2, 3))
        across = parts if levels > 1 else draw(st.integers(1, 4))
        down = draw(st.integers(1 if across > 1 else 2, 4))
        sides = [side * stride - draw(st.integers(0, stride - 1)) for side in (down, across)]
        pixels |= {"h": sides[0], "w": sides[1], "stride": stride}
    return Conv2d(ci=depth, co=cols, kh=1, kw=1, **pixels, **shared), levels


@st.composite
def schedules(draw: st.DrawFn, problem: Problem, levels: int, target: Target) -> Schedule:
    """A legal schedule with the step, of every structure."""
    nest = begin(problem, Strassen(levels))
    rows = draw(st.integers(1, 8))
    cols = target.lanes(problem.element.name) * draw(st.integers(1, 3))
    steps: list[Step] = [Strassen(levels)]
    for dim, unit in (("t", rows), (nest.col, cols)):
        tiles = -(-nest.dim(dim).extent // unit)
        if tiles > 1 and draw(st.booleans()):
            steps.append(Parallel(dim, draw(st.integers(2, min(3, tiles)))))
    steps += [Tile(nest.col, cols * draw(st.integers(1, 2)))] if draw(st.booleans()) else []
    steps += [Pack("B")]
    steps += [Prefetch("B")] if draw(st.booleans()) else []
    steps += [Tile("t", rows * draw(st.integers(1, 3)))] if draw(st.booleans()) else []
    steps += [Pack("A"), Register(rows, cols)]
    steps += [Unroll(draw(st.integers(2, 5)))] if draw(st.booleans()) else []
    return Schedule(tuple(steps))


@pytest.mark.full
@pytest.mark.timeout(900)
@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_product_in_any_cut(data: st.DataObject) -> None:
    problem, levels = data.draw(products())
    target = data.draw(st.sampled_from(TARGETS))
    schedule = data.draw(schedules(problem, levels, target))
    if is_legal(problem, schedule):  # a block may be cut after the part of a thread is smaller
        check(problem, schedule, target, data.draw(st.integers(0, 1000)))


@pytest.mark.parametrize("rows", [49, 26])
def test_a_tile_of_all_groups_takes_any_number_of_them(rows: int) -> None:
    """One vector by 25 groups of rows, of which the second problem has 13."""
    target = TARGETS[0]
    steps = (Strassen(1), Pack("B"), Prefetch("B"), Pack("A"), Register(25, target.lanes("f32")))
    problem = Matmul(m=rows, n=72, k=38, dtype="f32", weights="constant", bias=True)
    check(problem, Schedule((*steps, Unroll(2))), target, rows)


SMALL = Matmul(m=13, n=72, k=40, dtype="f32")
STEPS: tuple[Step, ...] = (Pack("B"), Tile("t", 4), Pack("A"), Register(2, 16))


def by_quadrants(levels: int) -> Schedule:
    return Schedule((Strassen(levels), *STEPS))


@pytest.mark.parametrize("levels", [1, 2])
def test_the_bound_finds_a_wrong_element(levels: int, host: Target) -> None:
    """The bound is wider than the direct method's, and still narrower than any mistake."""
    operands = make_operands(SMALL, 3)
    exact = reference(SMALL, operands)
    expected = expected_by(SMALL, operands, exact, Strassen(levels))
    assert exact.tolerance is not None and expected.tolerance is not None
    assert (expected.tolerance > exact.tolerance).all()
    lower(SMALL, by_quadrants(levels), host).run(operands)
    assert np.less_equal(*compare(SMALL, operands["C"], expected))
    scale = np.abs(expected.value).max()
    assert (expected.tolerance < 1e-2 * scale).all()
    operands["C"][12, 71] += 1e-2 * scale
    assert np.greater(*compare(SMALL, operands["C"], expected))


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_spread_over_their_group_of_rows(
    levels: int, value: float, host: Target
) -> None:
    operands, clean = make_operands(SMALL, 0), make_operands(SMALL, 0)
    operands["A"][6, 7] = value
    run = lower(SMALL, by_quadrants(levels), host)
    run.run(operands)
    run.run(clean)
    group = 2**levels
    first = 6 // group * group
    assert not np.isfinite(operands["C"][6]).any()
    others = np.delete(np.arange(13), np.s_[first : first + group])
    assert np.array_equal(operands["C"][others], clean["C"][others])


@pytest.mark.parametrize("levels", [1, 2])
def test_a_nan_of_b_stays_in_its_column_of_each_part(levels: int, host: Target) -> None:
    operands = make_operands(SMALL, 0)
    operands["B"][5, 3] = np.nan
    lower(SMALL, by_quadrants(levels), host).run(operands)
    assert np.isnan(operands["C"][:, 3]).all()
    part = 72 // 2**levels
    touched = {3 + part * number for number in range(2**levels)}
    rest = [column for column in range(72) if column not in touched]
    assert np.isfinite(operands["C"][:, rest]).all()


@pytest.mark.parametrize("levels", [1, 2])
def test_small_rows_lose_their_digits_beside_large_ones_alone(levels: int, host: Target) -> None:
    """The table of docs/accuracy.md: in a group of rows, sums of both lie in between."""
    run = lower(SMALL, by_quadrants(levels), host)
    operands = make_operands(SMALL, 1)
    rows = operands["A"].copy()
    for large, is_lost in ((1e6, True), (1e-6, False)):
        operands["A"][::2], operands["A"][1::2] = rows[::2] * 1e-6, rows[1::2] * large
        run.run(operands)
        exact = operands["A"].astype(np.float64) @ operands["B"].astype(np.float64)
        off, sizes = operands["C"] - exact, np.abs(exact)
        assert np.abs(off[1::2]).max() < 1e-4 * sizes[1::2].max()
        assert (np.abs(off[:12:2]).max() > 10 * sizes[::2].max()) == is_lost


@pytest.mark.parametrize("levels", [1, 2])
def test_sums_within_are_at_most_36_times_as_large(levels: int, host: Target) -> None:
    run = lower(SMALL, by_quadrants(levels), host)
    operands = make_operands(SMALL, 1)
    operands["B"][...] = np.sign(operands["B"]) / SMALL.k
    for size, is_finite in ((2.0**127 / 36, True), (2.0**127, False)):
        operands["A"][...] = size * np.sign(operands["A"])
        run.run(operands)
        assert np.isfinite(operands["C"]).all() == is_finite


@pytest.mark.parametrize(
    ("text", "levels", "why"),
    [
        ("matmul:m=8,n=8,k=8,dtype=i8", 1, "dtype=i8 is not one of f32, f64"),
        ("matmul:m=8,n=8,k=8,dtype=f32,accuracy=strict", 1, "accuracy=strict"),
        ("matmul:m=8,n=8,k=8,dtype=f32,batch=2", 1, "batch=2 is not 1"),
        ("matmul:m=8,n=8,k=8,dtype=f32,transpose_a", 1, "A is transposed"),
        ("matmul:m=8,n=6,k=8,dtype=f32", 2, "its width of 6 has no 4 equal parts"),
        ("matmul:m=8,n=8,k=9,dtype=f32", 1, "its reduction of 9 has no 2 equal parts"),
        ("matmul:m=3,n=8,k=8,dtype=f32", 2, "it has fewer rows than 4"),
        ("matmul:m=8,n=8,k=8,dtype=f32", 3, "levels is one of 1, 2"),
        ("conv2d:n=1,h=4,w=4,ci=8,co=8,kh=3,kw=3,dtype=f32", 1, "the filter is 3x3, and not 1x1"),
        ("conv2d:n=1,h=9,w=12,ci=8,co=8,kh=1,kw=1,stride=2,dtype=f32", 2,
         "its lines of 6 strided pixels cut groups of 4 rows"),
        ("conv2d:n=1,h=4,w=4,ci=8,co=8,kh=1,kw=1,pad=1,dtype=f32", 1, "pad=1 is not 0"),
        ("conv2d:n=1,h=4,w=4,ci=8,co=8,kh=1,kw=1,groups=2,dtype=f32", 1, "groups=2 is not 1"),
        ("conv2d:n=1,h=4,w=4,ci=8,co=8,kh=1,kw=1,dtype=f32,layout=nchw_fchw", 1,
         "layout=nchw_fchw has no rows of channels"),
    ],
)  # fmt: skip
def test_refusals_say_why(text: str, levels: int, why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        loop_nest(parse_problem(text), by_quadrants(levels))


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((Strassen(1), Pack("A"), Register(2, 16)), "add pack operand=B"),
        ((Pack("B"), Strassen(1), Pack("A"), Register(2, 16)), "in the order an algorithm"),
        ((Strassen(1), Strassen(1), *STEPS), "in the order an algorithm"),
        ((Strassen(1), Stream("k", 8), *STEPS), "has no place beside strassen"),
    ],
)
def test_steps_have_an_order(steps: tuple[Step, ...], why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        loop_nest(SMALL, Schedule(steps))


@pytest.mark.full
@pytest.mark.parametrize("weights", ["variable", "constant"])
def test_a_module_checks_itself(
    weights: str, host: Target, tmp_path_factory: pytest.TempPathFactory
) -> None:
    problem = replace(SMALL, weights=weights, transpose_b=True, bias=True)
    text = export(problem, by_quadrants(2), host)
    folder = tmp_path_factory.mktemp("module")
    done = run_alone(text, folder)
    assert done.returncode == 0, done.stderr
    wrong = text.replace("c_tile = a_panels", "c_tile = 64 + a_panels")
    assert wrong != text
    assert "WRONG" in run_alone(wrong, folder).stderr
