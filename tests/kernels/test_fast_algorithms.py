"""Fast algorithms: their matrices in exact arithmetic, and kernels that multiply by them."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases, some
from tests.kernels.native_case import TARGETS, check
from tests.kernels.strategies import FORMS, of_fewer_products
from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.fast_algorithms import (
    LEVELS,
    MOST_PRODUCTS,
    PART_POINTS,
    POINTS,
    SIDES,
    STRASSEN,
    STRIDES,
    CookToom,
    Matrix,
    cook_toom,
    cook_toom_at,
    outputs_for,
    winograd_transforms,
)
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.fast_algorithms import expected_by
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Matmul, Problem, parse_problem
from tilewise.kernels.schedule import (
    Nontemporal,
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
    Winograd,
    loop_nest,
)
from tilewise.kernels.steps.winograd import outputs_of
from tilewise.kernels.target import Target


def filtered_by(given: CookToom, inputs: list[Fraction], taps: list[Fraction]) -> list[Fraction]:
    """y = A^T ((G g) * (B^T d))."""

    def times(matrix: tuple[tuple[Fraction, ...], ...], x: list[Fraction]) -> list[Fraction]:
        return [sum(map(Fraction.__mul__, row, x), Fraction(0)) for row in matrix]

    products = map(Fraction.__mul__, times(given.filter, taps), times(given.image, inputs))
    return times(given.result, list(products))


@pytest.mark.parametrize(("points", "taps"), [
    *((points, taps) for (_, taps), points in POINTS.items()),
    (tuple(map(Fraction, (0, 1, -1, 2, -2))), 3), (tuple(map(Fraction, (0, 1, 5))), 2), ((), 1),
])  # fmt: skip
def test_any_points_give_the_filter(points: tuple[Fraction, ...], taps: int) -> None:
    random = Random(0)
    given = cook_toom_at(points, taps)
    assert given.taps == taps
    assert given.input == len(points) + 1 == given.output + taps - 1
    for _ in range(20):
        inputs = [Fraction(random.randint(-99, 99), 7) for _ in range(given.input)]
        weights = [Fraction(random.randint(-99, 99), 5) for _ in range(taps)]
        expected = [
            sum((inputs[i + j] * weights[j] for j in range(taps)), Fraction(0))
            for i in range(given.output)
        ]
        assert filtered_by(given, inputs, weights) == expected


STRIDED = [
    (output, taps)
    for taps in (3, 5, 7)
    for output in range(1, 8)
    if output in outputs_for((1, taps), stride=2)
]


def test_points_are_those_of_their_form() -> None:
    assert not POINTS.keys() & PART_POINTS.keys()
    for (output, taps), points in (POINTS | PART_POINTS).items():
        assert len(set(points)) == len(points) == output + taps - 2
        assert cook_toom_at(points, taps).output == output


def test_f32_holds_the_transforms_of_image_and_result() -> None:
    whole = [cook_toom(output, taps) for output, taps in POINTS]
    for form in (*whole, *(cook_toom(*one, stride=2) for one in STRIDED)):
        for row in (*form.image, *form.result):
            for value in row:
                assert value.denominator & (value.denominator - 1) == 0
                assert abs(value.numerator) < 1 << 24


def test_outputs_are_those_of_both_axes() -> None:
    for taps in ((1, 1), (1, 2), (4, 3), (9, 9)):
        assert outputs_for(taps) == ()
        with pytest.raises(KeyError):
            winograd_transforms(2, taps)
    assert outputs_for((3, 3), stride=2) == (2, 3)
    assert outputs_for((5, 5), stride=2) == (2,)
    assert outputs_for((3, 3), stride=3) == outputs_for((7, 7), stride=2) == ()
    assert winograd_transforms(2, (3, 3), stride=2).products == 25
    sides = sorted({taps for _, taps in POINTS})
    for down in (1, *sides):
        for across in (1, *sides):
            for output in outputs_for((down, across)):
                assert winograd_transforms(output, (down, across)).products <= MOST_PRODUCTS
                assert output in outputs_for((across, down))
            refused = down == across and down in (1, 7)
            assert refused or 2 in outputs_for((down, across))


@pytest.mark.parametrize("stride", STRIDES)
def test_values_within_tiles_are_at_most_160_times_as_large(stride: int) -> None:
    """Of the image, and of sums of magnitudes of products: docs/accuracy.md."""
    for taps in product((1, *SIDES), repeat=2):
        for output in outputs_for(taps, stride=stride):
            found = winograd_transforms(output, taps, stride)
            image, result = 1.0, 1.0
            for side in (found.down, found.across):
                of_image, of_filter, of_result = (
                    np.abs(np.array(matrix, np.float64))
                    for matrix in (side.image, side.filter, side.result)
                )
                sums = of_filter.sum(1) * of_image.sum(1)
                image *= of_image.sum(1).max()
                result *= (of_result @ sums).max() / side.taps
            assert max(image, result) <= 160


IMAGE, FILTER, RESULT = STRASSEN.image, STRASSEN.filter, STRASSEN.result


def array(matrix: Matrix) -> np.ndarray:
    return np.array([[int(x) for x in row] for row in matrix])


def test_seven_products_make_every_quadrant() -> None:
    """Term by term: quadrant (i, j) of C has A(i, k) B(k, j) once for each k, and nothing else."""
    found = np.einsum("cp,pa,pb->cab", array(RESULT), array(IMAGE), array(FILTER))
    wanted = np.zeros((4, 4, 4), int)
    for i in range(2):
        for j in range(2):
            for k in range(2):
                wanted[2 * i + j, 2 * i + k, 2 * k + j] = 1
    assert np.array_equal(found, wanted)
    assert len(IMAGE) == len(FILTER) == STRASSEN.products


@pytest.mark.parametrize("levels", LEVELS)
def test_values_within_are_at_most_36_times_as_large(levels: int) -> None:
    """Of A, and of sums of magnitudes of products: docs/accuracy.md.

    A point multiplies sums over half of the reduction at each level.
    """
    image, filters, result = (np.abs(array(matrix)) for matrix in (IMAGE, FILTER, RESULT))
    of_products = image.sum(1) * filters.sum(1) / 2
    within = max(image.sum(1).max(), of_products.max(), (result @ of_products).max())
    assert within**levels <= 36


@pytest.mark.timeout(900)
@cases(150, short=12)
@given(st.data())
def test_any_problem_by_fewer_products(data: st.DataObject) -> None:
    target = data.draw(st.sampled_from(TARGETS))
    problem, schedule = data.draw(of_fewer_products(target))
    check(problem, schedule, target, data.draw(st.integers(0, 1000)))


@pytest.mark.parametrize("rows", [49, 26])
def test_a_tile_of_all_groups_takes_any_number_of_them(rows: int) -> None:
    """One vector by 25 groups of rows, of which the second problem has 13."""
    target = TARGETS[0]
    steps = (Strassen(1), Pack("B"), Prefetch("B"), Pack("A"), Register(25, target.lanes("f32")))
    problem = Matmul(m=rows, n=72, k=38, dtype="f32", weights="constant", bias=True)
    check(problem, Schedule((*steps, Unroll(2))), target, rows)


PRODUCT = Matmul(m=13, n=72, k=40, dtype="f32")
QUADRANTS: tuple[Step, ...] = (Pack("B"), Tile("t", 4), Pack("A"), Register(2, 16))
IMAGES = parse_problem("conv2d:n=2,h=9,w=11,ci=20,co=40,kh=3,kw=3,pad=1,dtype=f32")
TILES: tuple[Step, ...] = (Pack("B"), Tile("t", 8), Pack("A"), Register(4, 32))


def by_quadrants(levels: int) -> Schedule:
    return Schedule((Strassen(levels), *QUADRANTS))


def tiled(output: int) -> Schedule:
    return Schedule((Winograd(output), *TILES))


def check_bound(problem: Problem, schedule: Schedule, host: Target) -> None:
    """The bound is wider than the direct method's, and still narrower than any mistake."""
    operands = make_operands(problem, 3)
    exact = reference(problem, operands)
    expected = expected_by(problem, operands, exact, schedule.algorithm)
    assert exact.tolerance is not None and expected.tolerance is not None
    assert (expected.tolerance > exact.tolerance).all()
    lower(problem, schedule, host).run(operands)
    assert np.less_equal(*compare(problem, operands["C"], expected))
    scale = np.abs(expected.value).max()
    assert (expected.tolerance < 1e-2 * scale).all()
    operands["C"].flat[-1] += 1e-2 * scale
    assert np.greater(*compare(problem, operands["C"], expected))


@pytest.mark.parametrize(("kh", "kw", "stride"), some(FORMS, of=6))
def test_the_bound_finds_a_wrong_pixel(kh: int, kw: int, stride: int, host: Target) -> None:
    for levels in (1, 2):
        check_bound(PRODUCT, by_quadrants(levels), host)
    problem = replace(IMAGES, kh=kh, kw=kw, stride=stride)
    for output in outputs_of(problem):
        check_bound(problem, tiled(output), host)


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_spread_over_a_group_of_rows(levels, value, host) -> None:
    operands, clean = make_operands(PRODUCT, 0), make_operands(PRODUCT, 0)
    operands["A"][6, 7] = value
    run = lower(PRODUCT, by_quadrants(levels), host)
    run.run(operands)
    run.run(clean)
    group = 2**levels
    first = 6 // group * group
    assert not np.isfinite(operands["C"][6]).any()
    others = np.delete(np.arange(13), np.s_[first : first + group])
    assert np.array_equal(operands["C"][others], clean["C"][others])


@pytest.mark.parametrize("levels", [1, 2])
def test_small_rows_lose_their_digits_beside_large_ones_alone(levels: int, host: Target) -> None:
    """The table of docs/accuracy.md: in a group of rows, sums of both lie in between."""
    run = lower(PRODUCT, by_quadrants(levels), host)
    operands = make_operands(PRODUCT, 1)
    rows = operands["A"].copy()
    for large, is_lost in ((1e6, True), (1e-6, False)):
        operands["A"][::2], operands["A"][1::2] = rows[::2] * 1e-6, rows[1::2] * large
        run.run(operands)
        exact = operands["A"].astype(np.float64) @ operands["B"].astype(np.float64)
        off, sizes = operands["C"] - exact, np.abs(exact)
        assert np.abs(off[1::2]).max() < 1e-4 * sizes[1::2].max()
        assert (np.abs(off[:12:2]).max() > 10 * sizes[::2].max()) == is_lost


@pytest.mark.parametrize(("kh", "kw", "output", "stride"), some([
    *((3, 3, 4, 1), (5, 5, 3, 1), (1, 7, 2, 1), (5, 3, 3, 1), (3, 3, 3, 2), (5, 5, 2, 2)),
    *((3, 3, 2, 1), (5, 1, 4, 1), (1, 3, 6, 1), (3, 3, 2, 2), (1, 3, 3, 2)),
], of=4))  # fmt: skip
def test_nan_and_infinity_spread_over_their_tile(kh, kw, output, stride, host) -> None:
    value, layout = ((np.nan, "nhwc_hwcf"), (np.inf, "nchw_fchw"))[output % 2]
    problem = replace(IMAGES, kh=kh, kw=kw, stride=stride, layout=layout)
    operands = make_operands(problem, 0)
    clean = make_operands(problem, 0)
    bad, results = operands["A"], [operands["C"], clean["C"]]
    if problem.has_channels_first:
        bad = bad.transpose(0, 2, 3, 1)
        results = [one.transpose(0, 2, 3, 1) for one in results]
    bad[1, 4, 5, 7] = value
    run = lower(problem, tiled(output), host)
    run.run(operands)
    run.run(clean)
    touched = np.zeros(results[0].shape[:3], bool)
    height, width = winograd_transforms(output, problem.window, problem.strides[0]).output
    for y in range(0, problem.oh, height):
        for x in range(0, problem.ow, width):
            lines, pixels = stride * (height - 1) + kh, stride * (width - 1) + kw
            inside = 0 <= 5 - stride * y < lines and 0 <= 6 - stride * x < pixels
            touched[1, y : y + height, x : x + width] = inside
    first = [-(-max(0, at - taps + 1) // stride) for at, taps in ((5, kh), (6, kw))]
    reads = np.s_[1, first[0] : 5 // stride + 1, first[1] : 6 // stride + 1]
    assert not np.isfinite(results[0][reads]).any() and touched[reads].all()
    assert np.array_equal(results[0][~touched], results[1][~touched])


PLAIN = "conv2d:n=1,h=9,w=9,ci=8,co=32,{}dtype=f32"


@pytest.mark.parametrize(("text", "algorithm", "why"), [
    ("matmul:m=8,n=8,k=8,dtype=i8", Strassen(1), "dtype=i8 is not one of f32, f64"),
    ("matmul:m=8,n=8,k=8,dtype=f32,accuracy=strict", Strassen(1), "accuracy=strict"),
    ("matmul:m=8,n=8,k=8,dtype=f32,batch=2", Strassen(1), "batch=2 is not 1"),
    ("matmul:m=8,n=8,k=8,dtype=f32,transpose_a", Strassen(1), "A is transposed"),
    ("matmul:m=8,n=6,k=8,dtype=f32", Strassen(2), "its width of 6 has no 4 equal parts"),
    ("matmul:m=8,n=8,k=9,dtype=f32", Strassen(1), "its reduction of 9 has no 2 equal parts"),
    ("matmul:m=3,n=8,k=8,dtype=f32", Strassen(2), "it has fewer rows than 4"),
    ("matmul:m=8,n=8,k=8,dtype=f32", Strassen(3), "levels is one of 1, 2"),
    (PLAIN.format("kh=3,kw=3,"), Strassen(1), "the filter is 3x3, and not 1x1"),
    (PLAIN.format("kh=1,kw=1,stride=2,"), Strassen(2), "lines of 5 strided pixels cut groups"),
    (PLAIN.format("kh=1,kw=1,pad=1,"), Strassen(1), "pad=1 is not 0"),
    (PLAIN.format("kh=1,kw=1,groups=2,"), Strassen(1), "groups=2 is not 1"),
    (PLAIN.format("kh=1,kw=1,layout=nchw_fchw,"), Strassen(1), "has no rows of channels"),
    ("matmul:m=9,n=9,k=9,dtype=f32", Winograd(4), "it is no convolution"),
    (PLAIN.format("kh=1,kw=1,"), Winograd(4), "1x1; tiles are for sides of 3, 5, 7, one"),
    (PLAIN.format("kh=3,kw=2,"), Winograd(4), "the filter is 3x2; tiles are for"),
    (PLAIN.format("kh=7,kw=7,"), Winograd(4), "and not for 7x7"),
    (PLAIN.format("kh=3,kw=3,stride=3,"), Winograd(4), "stride=3 is not one of 1, 2"),
    (PLAIN.format("kh=3,kw=7,stride=2,"), Winograd(4), "3x7 filter with stride=2 has no tiles"),
    (PLAIN.format("kh=3,kw=3,stride=2,"), Winograd(4), "output of a 3x3 filter is one of 2, 3"),
    (PLAIN.format("kh=3,kw=3,dilation=2,"), Winograd(4), "dilation=2 is not 1"),
    (PLAIN.format("kh=3,kw=3,groups=2,"), Winograd(4), "groups=2 is not 1"),
    (PLAIN.format("kh=3,kw=3,").replace("f32", "i32"), Winograd(4), "dtype=i32 is not one of"),
    (PLAIN.format("kh=3,kw=3,accuracy=strict,"), Winograd(4), "accuracy=strict asks for the"),
])  # fmt: skip
def test_what_has_no_such_products_is_refused(text: str, algorithm: Step, why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        loop_nest(parse_problem(text), Schedule((algorithm, *TILES)))


@pytest.mark.parametrize(("steps", "why"), [
    ((Strassen(1), Pack("A"), Register(2, 16)), "add pack operand=B"),
    ((Pack("B"), Strassen(1), Pack("A"), Register(2, 16)), "in the order an algorithm"),
    ((Strassen(1), Strassen(1), *QUADRANTS), "in the order an algorithm"),
    ((Strassen(1), Stream("k", 8), *QUADRANTS), "cannot be combined with strassen"),
    ((Winograd(6), *TILES), "output of a 3x3 filter is one of 2, 3, 4"),
    ((Winograd(2), Winograd(4), *TILES), "in the order an algorithm"),
    ((*TILES[:1], Winograd(4), *TILES[1:]), "in the order an algorithm"),
    ((Winograd(4), *TILES[1:]), "add pack operand=B"),
    ((Winograd(4), Pack("B"), Register(4, 32)), "add pack operand=A"),
    ((Winograd(4), Pack("B"), Prefetch("B"), *TILES[1:]), "was transformed ahead"),
    ((Winograd(4), Pack("B"), Pack("A"), Register(4, 32, "rows")), "give outer=cols"),
    ((Winograd(4), Pack("B"), Tile("t", 6), Pack("A"), Register(4, 32)), "not a multiple"),
    ((Parallel("t", 2), Winograd(4), *TILES), "in the order an algorithm"),
    ((Winograd(4), Parallel("point", 2), *TILES), "cannot be combined with winograd"),
    ((Winograd(4), *TILES, Nontemporal(), Unroll(2)), "in the order an algorithm"),
])  # fmt: skip
def test_steps_in_another_order_are_refused(steps: tuple[Step, ...], why: str) -> None:
    problem = PRODUCT if any(isinstance(step, Strassen) for step in steps) else IMAGES
    with pytest.raises(ScheduleError, match=why):
        loop_nest(problem, Schedule(steps))
