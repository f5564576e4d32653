"""Convolutions of few channels in a group, and results that are written past the caches."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cases import cases
from tests.kernels.native_case import TARGETS, check
from tests.kernels.strategies import can_sweep, dtypes, in_any_order, inits, sweeps
from tilewise.kernels.arithmetic import depthwise_vector
from tilewise.kernels.errors import LoweringError, ScheduleError
from tilewise.kernels.native import lower
from tilewise.kernels.native.microkernels.abi import PAST_CACHES
from tilewise.kernels.native.microkernels.skinny_products import MOST_SHARING_ROWS
from tilewise.kernels.native.packing.transforms import RESULT_ARGUMENTS
from tilewise.kernels.native.plan import plan
from tilewise.kernels.oracle.fast_algorithms import expected_by
from tilewise.kernels.oracle.operands import Operands, make_operands
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Conv2d, Matmul, Problem, parse_problem
from tilewise.kernels.schedule import (
    Interleave,
    Jam,
    Nontemporal,
    Pack,
    Register,
    Schedule,
    Step,
    Strassen,
    Stream,
    Sweep,
    Tile,
    Winograd,
    check_legal,
)
from tilewise.kernels.target import Target

TEXT = "conv2d:n=2,h=13,w=11,ci=20,co={co},kh=3,kw=3,pad=1,dtype=f32,bias,epilogue=relu"
STEPS = (Winograd(4), Pack("B"), Tile("t", 8), Pack("A"), Register(4, 32))
PAST = Schedule((*STEPS, Nontemporal()))
WINDOWS = "conv2d:n=1,h=13,w=48,ci={0},co={0},kh=3,kw=3,pad=1,groups={0},dtype=f32,bias"


def windows(problem: Problem, host: Target) -> Schedule:
    assert isinstance(problem, Conv2d)
    return Schedule((Register(2, depthwise_vector(problem, host).columns), Nontemporal()))


def run_at(problem: Problem, schedule: Schedule, offset: int, host: Target) -> Operands:
    """Operands with the right result, which begins so many elements behind a cache line."""
    operands = make_operands(problem, offset)
    whole = np.full(operands["C"].size + 32, np.nan, operands["C"].dtype)
    start = (-whole.ctypes.data % 64) // 4 + offset
    operands["C"] = whole[start : start + operands["C"].size].reshape(operands["C"].shape)
    expected = expected_by(problem, operands, reference(problem, operands), schedule.algorithm)
    lower(problem, schedule, host).run(operands)
    assert np.less_equal(*compare(problem, operands["C"], expected))
    return operands


@pytest.mark.parametrize("offset", [0, 1])
def test_an_aligned_result_takes_stores_past_the_caches(offset: int, host: Target) -> None:
    problem = parse_problem(TEXT.format(co=48))
    operands = run_at(problem, PAST, offset, host)

    tiles: list[int] = []
    note = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(RESULT_ARGUMENTS))(
        lambda to, *_: tiles.append(to)
    )
    call = lower(problem, PAST, host).bind(operands)
    names = plan(problem, PAST, host).source.parameters
    call.parameters[:, names.index(PAST_CACHES)] = ctypes.cast(note, ctypes.c_void_p).value
    call()
    assert len(tiles) == (0 if offset else 2 * 2 * 4 * 3)  # images, panels, tiles of each


@pytest.mark.parametrize("layout", ["nhwc_hwcf", "nchw_fchw"])
def test_windows_with_such_stores_are_right_at_any_place(layout: str, host: Target) -> None:
    problem = parse_problem(f"{WINDOWS.format(48)},layout={layout}")
    schedule = windows(problem, host)
    assert "past_caches" in plan(problem, schedule, host).functions
    for offset in (0, 1):
        run_at(problem, schedule, offset, host)


def test_rows_that_are_no_whole_vectors_are_refused(host: Target) -> None:
    small, narrow = parse_problem(TEXT.format(co=40)), parse_problem(WINDOWS.format(37))
    for problem, schedule in ((small, PAST), (narrow, windows(narrow, host))):
        with pytest.raises(LoweringError, match="step nontemporal: vectors of"):
            plan(problem, schedule, host)


@pytest.mark.parametrize(
    ("text", "method", "why"),
    [
        (f"{TEXT.format(co=48)},layout=nchw_fchw", Winograd(4), "have no line of their own"),
        ("matmul:m=64,n=64,k=64,dtype=f32", Strassen(1), "has no place beside strassen"),
    ],
)
def test_results_that_are_always_written_to_the_caches(text: str, method: Step, why: str) -> None:
    with pytest.raises(ScheduleError, match=f"nontemporal operand=C.*{why}"):
        check_legal(parse_problem(text), Schedule((method, *PAST.steps[1:])))


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


@pytest.mark.parametrize(("pad", "rows", "lines"), [(0, 10, 2), (1, 7, 3), (4, 4, 3)])
def test_a_tile_larger_than_what_is_left(pad: int, rows: int, lines: int, host: Target) -> None:
    problem = depthwise(pad=pad, kh=1 + 2 * pad, kw=1 + 2 * pad, h=7, w=10)
    check(problem, Schedule(tile(problem, host, rows, Jam("oh", lines))), host, rows)


def test_padding_is_skipped_even_under_a_filter_that_is_not_finite(host: Target) -> None:
    """The corner tap of one channel is a NaN: outputs that find padding there do not read it."""
    problem = depthwise(h=8, w=20)
    operands = make_operands(problem, 0)
    operands["B"][0, 0, 0, 5] = np.nan
    lower(problem, Schedule(tile(problem, host)), host).run(operands)
    channel = operands["C"][0, :, :, 5]
    assert np.isfinite(channel[0]).all() and np.isfinite(channel[:, 0]).all()
    assert np.isnan(channel[1:, 1:]).all()


problems = st.builds(
    Matmul,
    batch=st.sampled_from([1, 1, 2]),
    m=st.sampled_from([1, 2, 7, 8, 9, 19, MOST_SHARING_ROWS + 5]),
    n=st.sampled_from([1, 15, 64, 65, 131, 211, 410]),
    k=st.sampled_from([23, 43, 61, 103, 133]),
    dtype=dtypes,
    bias=st.booleans(),
    init=inits,
    epilogue=st.sampled_from(["none", "relu"]),
)


@cases(50)
@given(st.data())
def test_any_schedule_of_few_rows_and_of_more_is_right(data: st.DataObject) -> None:
    problem, target = data.draw(problems), data.draw(st.sampled_from(TARGETS))
    assume(can_sweep(problem, target, problem.m))
    schedule = data.draw(in_any_order(problem, data.draw(sweeps(problem, target))))
    check(problem, schedule, target, data.draw(st.integers(0, 9)))


def test_refusals(host: Target) -> None:
    problem = Matmul(m=1, n=64, k=64, dtype="f32")
    odd = Schedule((Stream("k", 8), Register(1, 17), Sweep("n")))
    with pytest.raises(LoweringError, match="cols=17 is not a multiple"):
        plan(problem, odd, host)
    pairs = replace(host, vector_bytes=64, features=host.features | {"avx512bf16"})
    with pytest.raises(LoweringError, match="no multiple of the 2"):
        narrow = parse_problem(str(problem).replace("f32", "bf16"))
        plan(narrow, Schedule((Stream("k", 3), Register(1, 16), Sweep("n"))), pairs)
    many = (Stream("k", 32), Register(4, 32, "rows"), Sweep("n"), Interleave("k", 8))
    with pytest.raises(LoweringError, match="16 words of 4 rows of A, gathered from 8 streams"):
        plan(replace(narrow, m=8), Schedule(many), pairs)
