"""What a runner's child keeps from one trial to the next, and what it must not."""

import pytest

from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.target import detect
from tilewise.search.runner.child.session import Session
from tilewise.search.runner.protocol import CandidateFailureError

TEXT = "matmul:m=24,n=40,k=16,dtype=f32"


def steps(rows: int) -> list[object]:
    return list(Schedule((Pack("B"), Register(rows, detect().lanes("f32")))).to_json())


def session(text: str = TEXT) -> Session:
    return Session(parse_problem(text).canonical, detect().canonical, seed=0)


def test_what_accumulates_begins_each_check_with_the_same_result() -> None:
    one = session(f"{TEXT},init=accumulate")
    initial = one.operands["C"].copy()
    for rows in (1, 4, 2):
        call = one.call(steps(rows))
        one.check(call)
        call(3)
    one.operands["C"][...] = initial
    with pytest.raises(CandidateFailureError, match="deviation"):
        one.check(lambda _repeat: None)


def test_a_check_that_writes_nothing_fails_whatever_ran_before() -> None:
    one = session()
    one.check(one.call(steps(1)))
    with pytest.raises(CandidateFailureError, match="deviation"):
        one.check(lambda _repeat: None)


@pytest.mark.parametrize("weights", ["variable", "constant"])
def test_schedules_share_panels_but_for_those_that_are_packed_ahead(weights: str) -> None:
    one = session(f"{TEXT},weights={weights}")
    first = one.call(steps(1))
    held = one.places[0].arena["B"]
    one.call(steps(4))
    assert (one.places[0].arena["B"] is held) == (weights == "variable")
    one.check(first)
