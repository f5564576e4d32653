"""Winograd convolutions: any size and cut, rounding, what NaN spreads to, refusals."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases, some
from tests.kernels.native_case import TARGETS, check
from tests.kernels.strategies import is_legal
from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.fast_algorithms import SIDES, STRIDES, outputs_for, winograd_transforms
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.fast_algorithms import expected_by
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Conv2d, parse_problem
from tilewise.kernels.schedule import (
    Nontemporal,
    Pack,
    Parallel,
    Prefetch,
    Register,
    Schedule,
    Step,
    Tile,
    Unroll,
    Winograd,
    begin,
    loop_nest,
)
from tilewise.kernels.steps.winograd import outputs_of
from tilewise.kernels.target import Target

sides = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 9, 13, 14])
FILTERS = [(kh, kw) for kh in (1, *SIDES) for kw in (1, *SIDES) if outputs_for((kh, kw))]
FORMS = [
    (*taps, stride) for stride in STRIDES for taps in FILTERS if outputs_for(taps, stride=stride)
]

SOME_FORMS = some(FORMS, of=6)


@st.composite
def convolutions(draw: st.DrawFn) -> Conv2d:
    """Convolutions of every filter with tiles, and every size and pad that leave an output."""
    pad = draw(st.integers(0, 3))
    kh, kw, stride = draw(st.sampled_from([(3, 3, 1), (3, 3, 2), *FORMS]))
    return Conv2d(
        layout=draw(st.sampled_from(["nhwc_hwcf", "nchw_fchw"])),
        n=draw(st.integers(1, 3)),
        h=max(1, kh - 2 * pad, draw(sides)),
        w=max(1, kw - 2 * pad, draw(sides)),
        ci=draw(st.sampled_from([1, 3, 8, 16, 17, 32, 40])),
        co=draw(st.sampled_from([1, 5, 16, 33, 64, 70])),
        kh=kh,
        kw=kw,
        pad=pad,
        stride=stride,
        dtype=draw(st.sampled_from(["f32", "f64"])),
        init=draw(st.sampled_from(["zero", "accumulate"])),
        bias=draw(st.booleans()),
        epilogue=draw(st.sampled_from(["none", "relu", "relu6"])),
        weights=draw(st.sampled_from(["variable", "constant"])),
    )


@st.composite
def schedules(draw: st.DrawFn, problem: Conv2d, target: Target) -> Schedule:
    """A legal schedule with the step, of every structure."""
    output = draw(st.sampled_from(outputs_of(problem)))
    rows = draw(st.integers(1, 8))
    cols = target.lanes(problem.element.name) * draw(st.integers(1, 3))
    steps: list[Step] = [Winograd(output)]
    for dim, unit in (("t", rows), ("co", cols)):
        tiles = -(-begin(problem, Winograd(output)).dim(dim).extent // unit)
        if tiles > 1 and draw(st.booleans()):
            steps.append(Parallel(dim, draw(st.integers(2, min(3, tiles)))))
    steps += [Tile("co", cols * draw(st.integers(1, 2)))] if draw(st.booleans()) else []
    steps += [Pack("B")]
    steps += [Prefetch("B")] if problem.has_constant_weights and draw(st.booleans()) else []
    steps += [Tile("t", rows * draw(st.integers(1, 3)))] if draw(st.booleans()) else []
    steps += [Pack("A"), Register(rows, cols)]
    steps += [Unroll(draw(st.integers(2, 5)))] if draw(st.booleans()) else []
    has_vectors = problem.co % target.lanes(problem.element.name) == 0
    if has_vectors and not problem.has_channels_first and draw(st.booleans()):
        steps.append(Nontemporal())
    return Schedule(tuple(steps))


@pytest.mark.full
@pytest.mark.timeout(900)
@cases(120)
@given(st.data())
def test_any_convolution_in_any_tiles(data: st.DataObject) -> None:
    problem = data.draw(convolutions())
    target = data.draw(st.sampled_from(TARGETS))
    schedule = data.draw(schedules(problem, target))
    if is_legal(problem, schedule):  # a block may be cut after the part of a thread is smaller
        check(problem, schedule, target, data.draw(st.integers(0, 1000)))


SMALL = parse_problem("conv2d:n=2,h=9,w=11,ci=20,co=40,kh=3,kw=3,pad=1,dtype=f32")
STEPS: tuple[Step, ...] = (Pack("B"), Tile("t", 8), Pack("A"), Register(4, 32))


def tiled(output: int) -> Schedule:
    return Schedule((Winograd(output), *STEPS))


@pytest.mark.parametrize("output", [2, 4])
def test_values_within_are_at_most_160_times_as_large(output: int, host: Target) -> None:
    """The table of docs/accuracy.md: the direct method has a number in both cases."""
    run = lower(SMALL, tiled(output), host)
    operands = make_operands(SMALL, 1)
    operands["B"][...] = np.sign(operands["B"]) / (9 * SMALL.ci)
    for size, is_finite in ((2.0**127 / 160, True), (1.9 * 2.0**127, False)):
        operands["A"][...] = size * np.sign(operands["A"])
        run.run(operands)
        assert np.isfinite(operands["C"]).all() == is_finite


@pytest.mark.full
@pytest.mark.parametrize(("kh", "kw", "stride"), FORMS)
@pytest.mark.parametrize("layout", ["nhwc_hwcf", "nchw_fchw"])
def test_one_pixel(kh: int, kw: int, stride: int, layout: str, host: Target) -> None:
    text = f"conv2d:n=1,h={kh},w={kw},ci=1,co=1,kh={kh},kw={kw},stride={stride},dtype=f32"
    problem = parse_problem(f"{text},layout={layout}")
    for output in outputs_of(problem):
        check(problem, tiled(output), host, output)


@pytest.mark.parametrize(("kh", "kw", "stride"), SOME_FORMS)
def test_padding_is_seen_along_both_axes(kh: int, kw: int, stride: int, host: Target) -> None:
    """Also along one without taps, where whole outputs see nothing but zeros."""
    problem = replace(SMALL, kh=kh, kw=kw, stride=stride, pad=3, bias=True)
    for output in outputs_of(problem):
        check(problem, tiled(output), host, output)


@pytest.mark.parametrize(("kh", "kw", "stride"), SOME_FORMS)
def test_the_bound_finds_a_wrong_pixel(kh: int, kw: int, stride: int, host: Target) -> None:
    """The bound is wider than the direct method's, and still narrower than any mistake."""
    problem = replace(SMALL, kh=kh, kw=kw, stride=stride)
    for output in outputs_of(problem):
        operands = make_operands(problem, 3)
        expected = expected_by(problem, operands, reference(problem, operands), Winograd(output))
        lower(problem, tiled(output), host).run(operands)
        error, tolerance = compare(problem, operands["C"], expected)
        assert error <= tolerance
        scale = np.abs(expected.value).max()
        assert (expected.tolerance < 1e-2 * scale).all()
        operands["C"][1, -1, -1, 39] += 1e-2 * scale
        error, tolerance = compare(problem, operands["C"], expected)
        assert error > tolerance


@pytest.mark.parametrize(
    ("kh", "kw", "output", "stride"),
    some(
        [
            *((3, 3, 4, 1), (5, 5, 3, 1), (1, 7, 2, 1), (5, 3, 3, 1), (3, 3, 3, 2), (5, 5, 2, 2)),
            *((3, 3, 2, 1), (5, 1, 4, 1), (1, 3, 6, 1), (3, 3, 2, 2), (1, 3, 3, 2)),
        ],
        of=4,
    ),
)
def test_nan_and_infinity_spread_over_their_tile_alone(
    kh: int, kw: int, output: int, stride: int, host: Target
) -> None:
    value, layout = ((np.nan, "nhwc_hwcf"), (np.inf, "nchw_fchw"))[output % 2]
    problem = replace(SMALL, kh=kh, kw=kw, stride=stride, layout=layout)
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


def test_a_nan_in_the_filter_stays_in_its_channel(host: Target) -> None:
    operands = make_operands(SMALL, 0)
    operands["B"][1, 1, 3, 17] = np.nan
    lower(SMALL, tiled(4), host).run(operands)
    assert np.isnan(operands["C"][..., 17]).all()
    assert np.isfinite(np.delete(operands["C"], 17, axis=-1)).all()


def test_relu_keeps_a_nan(host: Target) -> None:
    problem = replace(SMALL, bias=True, epilogue="relu")
    operands = make_operands(problem, 0)
    operands["bias"][2] = np.nan
    lower(problem, tiled(4), host).run(operands)
    assert np.isnan(operands["C"][..., 2]).all()
    assert (np.delete(operands["C"], 2, axis=-1) >= 0).all()


PLAIN = "conv2d:n=1,h=9,w=9,ci=8,co=32,{}dtype=f32"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("matmul:m=9,n=9,k=9,dtype=f32", "it is no convolution"),
        (PLAIN.format("kh=1,kw=1,"), "the filter is 1x1; tiles are for sides of 3, 5, 7, one"),
        (PLAIN.format("kh=3,kw=2,"), "the filter is 3x2; tiles are for"),
        (PLAIN.format("kh=7,kw=7,"), "and not for 7x7"),
        (PLAIN.format("kh=3,kw=3,stride=3,"), "stride=3 is not one of 1, 2"),
        (PLAIN.format("kh=3,kw=7,stride=2,"), "3x7 filter with stride=2 has no tiles"),
        (PLAIN.format("kh=3,kw=3,stride=2,"), "output of a 3x3 filter is one of 2, 3"),
        (PLAIN.format("kh=3,kw=3,dilation=2,"), "dilation=2 is not 1"),
        (PLAIN.format("kh=3,kw=3,groups=2,"), "groups=2 is not 1"),
        ("conv2d:n=1,h=9,w=9,ci=8,co=32,kh=3,kw=3,dtype=i32", "dtype=i32 is not one of f32, f64"),
        (PLAIN.format("kh=3,kw=3,") + ",accuracy=strict", "accuracy=strict asks for the direct"),
    ],
)
def test_what_cannot_be_filtered_is_refused(text: str, why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        loop_nest(parse_problem(text), tiled(4))


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((Winograd(6), *STEPS), "output of a 3x3 filter is one of 2, 3, 4"),
        ((Winograd(2), Winograd(4), *STEPS), "in the order an algorithm"),
        ((*STEPS[:1], Winograd(4), *STEPS[1:]), "in the order an algorithm"),
        ((Winograd(4), *STEPS[1:]), "add pack operand=B"),
        ((Winograd(4), Pack("B"), Register(4, 32)), "add pack operand=A"),
        ((Winograd(4), Pack("B"), Prefetch("B"), *STEPS[1:]), "was transformed ahead"),
        ((Winograd(4), Pack("B"), Pack("A"), Register(4, 32, "rows")), "give outer=cols"),
        ((Winograd(4), Pack("B"), Tile("t", 6), Pack("A"), Register(4, 32)), "not a multiple"),
        ((Parallel("t", 2), Winograd(4), *STEPS), "in the order an algorithm"),
        ((Winograd(4), Parallel("point", 2), *STEPS), "has no place beside winograd"),
        ((Winograd(4), *STEPS, Nontemporal(), Unroll(2)), "in the order an algorithm"),
    ],
)
def test_steps_in_another_order_are_refused(steps: tuple[Step, ...], why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        loop_nest(SMALL, Schedule(steps))
