"""Kernels of unsigned and mixed bytes, and of zero points, compute what integers do exactly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.kernels.native_case import TARGETS, check
from tests.kernels.strategies import quantised, schedules
from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.instructions import Form, chosen, instructions
from tilewise.kernels.native import lower
from tilewise.kernels.nest import nest_of
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import (
    InstructionChoice,
    Pack,
    Register,
    Schedule,
    Split,
    Step,
    Stream,
    Sweep,
    Tile,
)
from tilewise.kernels.target import Target

CASES = 600
"""Of which a third each has u8, another type of B, and zero points."""


@pytest.mark.timeout(900)
@cases(CASES, short=24)
@given(st.data())
def test_random_problems_of_bytes_are_exact(data: st.DataObject) -> None:
    problem, target = data.draw(quantised), data.draw(st.sampled_from(TARGETS))
    check(problem, data.draw(schedules(problem, target)), target, data.draw(st.integers(0, 9)))


@pytest.mark.parametrize("weights", ["variable", "constant"])
def test_a_bound_kernel_takes_new_zero_points(weights: str, host: Target) -> None:
    text = f"matmul:m=9,n=40,k=33,dtype=u8,b=i8,zero=ab,weights={weights}"
    problem, schedule = parse_problem(text), Schedule((Pack("B"), Pack("A"), Register(4, 16)))
    operands = make_operands(problem, 1)
    call = lower(problem, schedule, host).bind(operands)
    for zero_a, zero_b in ((0, 0), (255, -128), (0, 127)):
        operands["zero_a"][...], operands["zero_b"][...] = zero_a, zero_b
        call()
        np.testing.assert_array_equal(operands["C"], reference(problem, operands).value)


def test_zero_points_at_their_limits_stand_for_padding(host: Target) -> None:
    text = "conv2d:n=1,h=6,w=7,ci=5,co=20,kh=3,kw=3,pad=2,dtype=u8,zero=ab,init=accumulate"
    steps = (Pack("B"), Tile("n", 1), Pack("A"), Register(4, 16))
    problem = parse_problem(text)
    operands = make_operands(problem, 2)
    for zero_a, zero_b in ((0, 255), (255, 0), (255, 255)):
        operands["zero_a"][...], operands["zero_b"][...] = zero_a, zero_b
        expected = reference(problem, operands).value
        lower(problem, Schedule(steps), host).run(operands)
        np.testing.assert_array_equal(operands["C"], expected)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("keys", ["u8,b=i8", "i8", "u8", "i8,b=u8"])
def test_a_zero_point_of_a_leaves_bytes_as_they_are(keys: str, first: int, host: Target) -> None:
    """What pads the image is the zero point's byte, wherever in a word of 8 bytes it is."""
    text = f"conv2d:n=1,h=6,w=7,ci=5,co=20,kh=3,kw=3,pad=2,dtype={keys},zero=a"
    problem = parse_problem(text)
    operands = make_operands(problem, 2)
    operands["zero_a"] = np.full(2, 99, np.int32)[first : first + 1]
    steps = (Pack("B"), Tile("n", 1), Pack("A"))
    for one in instructions(nest_of(problem).factors, host, Form.OUTER_PRODUCT):
        kernel = Schedule((*steps, InstructionChoice(one.name), Register(4, 16)))
        for zero in (0, 127, -128 if keys.startswith("i8") else 255):
            operands["zero_a"][...] = zero
            lower(problem, kernel, host).run(operands)
            np.testing.assert_array_equal(operands["C"], reference(problem, operands).value)


def test_u8_times_i8_needs_no_offset(host: Target) -> None:
    problem = parse_problem("matmul:m=9,n=40,k=33,dtype=u8,b=i8")
    factors = nest_of(problem).factors
    assert factors == "u8*i8"
    assert chosen(factors, host).endswith(("vpdpbusd", "mul.i32"))


@pytest.mark.parametrize("steps", [
    (Stream("k", 8), Register(3, 32, "rows"), Sweep("n")), (Register(2, 2), Split("k", 16)),
])  # fmt: skip
def test_reductions_that_read_in_place_have_no_zero_points(steps: tuple[Step, ...]) -> None:
    problem = parse_problem("matmul:m=9,n=64,k=33,dtype=u8,zero=a")
    with pytest.raises(ScheduleError, match="only packs subtract zero points; drop the step"):
        lower(problem, Schedule(steps), TARGETS[0])
