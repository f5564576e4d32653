"""Native kernels of convolutions with few channels in a group."""

from itertools import product

import numpy as np
import pytest

from tests.cases import some
from tests.kernels.native_case import TARGETS, check
from tilewise.kernels.arithmetic import depthwise_vector
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native import lower
from tilewise.kernels.native.plan import plan
from tilewise.kernels.oracle.operands import make_operands, to_bf16
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import DTYPES, Conv2d, parse_problem
from tilewise.kernels.schedule import Jam, Nontemporal, Register, Schedule, Step, Tile
from tilewise.kernels.target import Target

LAYOUTS = ("nhwc_hwcf", "nchw_fchw")


def depthwise(**keys: object) -> Conv2d:
    """A depthwise problem whose sizes divide by nothing."""
    given = {"n": 1, "h": 13, "w": 19, "ci": 37, "co": 37, "kh": 3, "kw": 3, "dtype": "f32"}
    given |= {"groups": 37, "pad": 1, **keys}
    problem = parse_problem({"op": "conv2d", **given})
    assert isinstance(problem, Conv2d)
    return problem


def tile(problem: Conv2d, target: Target, rows: int = 3, *tail: Step) -> tuple[Step, ...]:
    """A register tile of one vector."""
    return (Register(rows, depthwise_vector(problem, target).columns), *tail)


@pytest.mark.parametrize(
    ("target", "layout", "dtype"), some(product(TARGETS, LAYOUTS, sorted(DTYPES)), of=5)
)
def test_every_type_and_target(layout: str, dtype: str, target: Target) -> None:
    problem = depthwise(layout=layout, dtype=dtype, bias=True, epilogue="relu", n=2)
    check(problem, Schedule((Tile("n", 1), *tile(problem, target))), target, 1)


@pytest.mark.parametrize(("pad", "rows", "lines"), [(0, 10, 2), (1, 7, 3), (4, 4, 3)])
def test_a_tile_larger_than_what_is_left(pad: int, rows: int, lines: int, host: Target) -> None:
    problem = depthwise(pad=pad, kh=1 + 2 * pad, kw=1 + 2 * pad, h=7, w=10)
    check(problem, Schedule(tile(problem, host, rows, Jam("oh", lines))), host, rows)


@pytest.mark.parametrize(
    ("layout", "value", "dtype"),
    some(product(LAYOUTS, [np.nan, np.inf], ["f32", "bf16", "f16"]), of=5),
)
def test_nothing_beside_a_window_reaches_it(
    dtype: str, value: float, layout: str, host: Target
) -> None:
    """A pixel of the image holds `value`: just the outputs whose windows have it are not finite."""
    problem = depthwise(h=8, w=20, layout=layout, dtype=dtype)
    operands = make_operands(problem, 0)
    bad = np.array([value], np.float32)
    place = (0, 3, 0, 5) if layout == "nhwc_hwcf" else (0, 5, 3, 0)
    operands["A"][place] = to_bf16(bad)[0] if dtype == "bf16" else bad[0]
    lower(problem, Schedule(tile(problem, host)), host).run(operands)
    reached = ~np.isfinite(operands["C"])
    expected = np.zeros_like(reached)
    if layout == "nhwc_hwcf":
        expected[0, 2:5, 0:2, 5] = True
    else:
        expected[0, 5, 2:5, 0:2] = True
    assert np.array_equal(reached, expected)


def test_padding_is_skipped_even_under_a_filter_that_is_not_finite(host: Target) -> None:
    """The corner tap of one channel is a NaN: outputs that find padding there do not read it."""
    problem = depthwise(h=8, w=20)
    operands = make_operands(problem, 0)
    operands["B"][0, 0, 0, 5] = np.nan
    lower(problem, Schedule(tile(problem, host)), host).run(operands)
    channel = operands["C"][0, :, :, 5]
    assert np.isfinite(channel[0]).all() and np.isfinite(channel[:, 0]).all()
    assert np.isnan(channel[1:, 1:]).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stores_past_the_caches_need_an_aligned_result(layout: str, host: Target) -> None:
    problem = depthwise(ci=48, co=48, groups=48, w=48, layout=layout, bias=True)
    schedule = Schedule(tile(problem, host, 2, Nontemporal()))
    assert "past_caches" in plan(problem, schedule, host).functions
    lowered = lower(problem, schedule, host)
    for offset in (0, 1):  # elements from a cache line on; the second takes the other kernel
        operands = make_operands(problem, offset)
        expected = reference(problem, operands)
        whole = np.full(operands["C"].size + 17, np.nan, np.float32)
        start = (-whole.ctypes.data % 64) // 4 + offset
        operands["C"] = whole[start : start + operands["C"].size].reshape(operands["C"].shape)
        lowered.run(operands)
        error, tolerance = compare(problem, operands["C"], expected)
        assert error <= tolerance


def test_a_result_without_whole_vectors_is_no_place_for_such_stores(host: Target) -> None:
    problem = depthwise()
    with pytest.raises(LoweringError, match="step nontemporal: vectors of"):
        plan(problem, Schedule(tile(problem, host, 2, Nontemporal())), host)


def test_columns_are_whole_vectors(host: Target) -> None:
    problem = depthwise()
    with pytest.raises(LoweringError, match="cols=17 is not a multiple"):
        plan(problem, Schedule((Register(2, 17),)), host)
