"""Results of Winograd transforms that are written past the caches."""

import ctypes

import numpy as np
import pytest

from tilewise.kernels.errors import LoweringError, ScheduleError
from tilewise.kernels.native import lower
from tilewise.kernels.native.microkernels.abi import PAST_CACHES
from tilewise.kernels.native.packing.transforms import RESULT_ARGUMENTS
from tilewise.kernels.native.plan import plan
from tilewise.kernels.oracle.fast_algorithms import expected_by
from tilewise.kernels.oracle.operands import Array, Operands, make_operands
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import (
    Nontemporal,
    Pack,
    Register,
    Schedule,
    Step,
    Strassen,
    Tile,
    Winograd,
    check_legal,
)
from tilewise.kernels.target import Target

TEXT = "conv2d:n=2,h=13,w=11,ci=20,co={co},kh=3,kw=3,pad=1,dtype=f32,bias,epilogue=relu"
STEPS = (Winograd(4), Pack("B"), Tile("t", 8), Pack("A"), Register(4, 32))
PAST = Schedule((*STEPS, Nontemporal()))


def poisoned(problem: Problem, offset: int) -> Operands:
    """Operands whose result begins so many elements behind a cache line."""
    operands = make_operands(problem, offset)
    whole = np.full(operands["C"].size + 32, np.nan, operands["C"].dtype)
    start = (-whole.ctypes.data % 64) // 4 + offset
    operands["C"] = whole[start : start + operands["C"].size].reshape(operands["C"].shape)
    return operands


def expected(problem: Problem, operands: Operands) -> Array:
    return expected_by(problem, operands, reference(problem, operands), Winograd(4))


@pytest.mark.parametrize("offset", [0, 1])
def test_an_aligned_result_takes_stores_past_the_caches(offset: int, host: Target) -> None:
    problem = parse_problem(TEXT.format(co=48))
    operands = poisoned(problem, offset)
    wanted = expected(problem, operands)
    lowered = lower(problem, PAST, host)
    lowered.run(operands)
    error, tolerance = compare(problem, operands["C"], wanted)
    assert error <= tolerance

    tiles: list[int] = []
    note = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(RESULT_ARGUMENTS))(
        lambda to, *_: tiles.append(to)
    )
    call, names = lowered.bind(operands), plan(problem, PAST, host).source.parameters
    address = ctypes.cast(note, ctypes.c_void_p).value
    call.parameters[:, names.index(PAST_CACHES)] = address
    call()
    assert len(tiles) == (0 if offset else 2 * 2 * 4 * 3)  # images, panels, tiles of each


def test_both_ways_write_the_same(host: Target) -> None:
    problem = parse_problem(TEXT.format(co=48))
    results = []
    for schedule in (Schedule(STEPS), PAST):
        operands = poisoned(problem, 0)
        lower(problem, schedule, host).run(operands)
        results.append(operands["C"])
    assert np.array_equal(*results)


def test_rows_that_are_no_whole_vectors_are_refused(host: Target) -> None:
    problem = parse_problem(TEXT.format(co=40))
    with pytest.raises(LoweringError, match="step nontemporal: vectors of"):
        plan(problem, PAST, host)


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
