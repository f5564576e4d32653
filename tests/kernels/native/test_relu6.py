"""relu6 in every micro-kernel: both limits, on operands whose sums mostly lie between them."""

import numpy as np
import pytest

from tests.kernels.native_case import TARGETS, check
from tilewise.kernels.arithmetic import depthwise_vector
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import make_operands, operand_limit
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import Conv2d, Problem, parse_problem
from tilewise.kernels.schedule import (
    Pack,
    Register,
    Schedule,
    Split,
    Stream,
    Sweep,
    Tile,
    Unroll,
    Winograd,
)
from tilewise.kernels.target import Target

ROWS_AND_COLUMNS = Schedule((Pack("B"), Pack("A"), Register(4, 16), Unroll(4)))
COLUMN = parse_problem("matmul:m=33,n=1,k=523,dtype=f64,bias,epilogue=relu6")
ROW = parse_problem("matmul:m=1,n=259,k=517,dtype=f32,epilogue=relu6")
IMAGE = parse_problem(
    "conv2d:n=1,h=9,w=9,ci=24,co=19,kh=3,kw=3,pad=1,dtype=f32,bias,epilogue=relu6"
)
DEPTHWISE = parse_problem(
    "conv2d:n=1,h=9,w=9,ci=37,co=37,kh=3,kw=3,pad=1,groups=37,dtype=f32,bias,epilogue=relu6"
)
MATMULS = [
    parse_problem(f"matmul:m=9,n=53,k=517,dtype={dtype},bias,epilogue=relu6")
    for dtype in ("f32", "f64", "bf16", "f16")
]


def schedules_of(problem: Problem, target: Target) -> list[Schedule]:
    """One for each micro-kernel that may compute it."""
    lanes = target.lanes(problem.element.name)
    if problem == COLUMN:
        return [Schedule((Register(4, 1), Split("k", 2 * lanes), Unroll(2)))]
    if problem == ROW:
        return [Schedule((Stream("k", 4), Register(1, 2 * lanes), Sweep("n")))]
    if problem == DEPTHWISE:
        assert isinstance(problem, Conv2d)
        return [Schedule((Tile("n", 1), Register(3, depthwise_vector(problem, target).columns)))]
    if problem == IMAGE:
        winograd = (Winograd(4), Pack("B"), Tile("t", 4), Pack("A"), Register(4, lanes))
        return [ROWS_AND_COLUMNS, Schedule(winograd)]
    return [ROWS_AND_COLUMNS]


@pytest.mark.full
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.vector_bytes}B{len(t.features)}")
@pytest.mark.parametrize("problem", [*MATMULS, COLUMN, ROW, IMAGE, DEPTHWISE], ids=str)
def test_every_micro_kernel_ends_at_both_limits(problem: Problem, target: Target) -> None:
    for seed, schedule in enumerate(schedules_of(problem, target)):
        check(problem, schedule, target, seed)


@pytest.mark.parametrize("problem", [*MATMULS, COLUMN, ROW, IMAGE, DEPTHWISE], ids=str)
def test_most_of_what_is_compared_is_not_cut_off_above(problem: Problem) -> None:
    """A sum that is cut off tells nothing of its products."""
    value = reference(problem, make_operands(problem, 3)).value
    assert value.min() == 0
    assert value.max() <= 6
    assert np.mean(value == 6) < 0.2
    assert np.mean((value > 0) & (value < 6)) > 0.3


def test_operands_are_smaller_the_deeper_the_sums() -> None:
    texts = (f"matmul:m=2,n=2,k={k},dtype=f32,epilogue=relu6" for k in (9, 1000, 100000))
    assert [operand_limit(parse_problem(text)) for text in texts] == [1.0, 0.5, 0.125]
    assert operand_limit(parse_problem("matmul:m=2,n=2,k=1000,dtype=f32,epilogue=relu")) == 1


@pytest.mark.parametrize("seed", [0, 1])
def test_a_nan_stays_and_infinities_end_at_the_limits(seed: int, host: Target) -> None:
    for problem in (MATMULS[0], IMAGE, DEPTHWISE):
        operands = make_operands(problem, seed)
        operands["bias"][[3, 7, 11]] = np.nan, np.inf, -np.inf
        for schedule in schedules_of(problem, host):
            lower(problem, schedule, host).run(operands)
            assert np.isnan(operands["C"][..., 3]).all()
            assert (operands["C"][..., 7] == 6).all()
            assert (operands["C"][..., 11] == 0).all()
            others = np.delete(operands["C"], [3, 7, 11], axis=-1)
            assert others.min() == 0
            assert others.max() <= 6
