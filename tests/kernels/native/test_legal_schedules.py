"""What the legality check accepts is lowered, natively and to a script, or refused by name."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.kernels.native_case import TARGETS, check
from tests.kernels.strategies import plain_matmuls, problems, rearranged
from tilewise.kernels.errors import LoweringError, UnsupportedError
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule


@pytest.mark.parametrize("kind", [problems, plain_matmuls], ids=["any", "plain"])
@cases(400, short=80)
@given(st.data())
def test_any_order_of_steps_that_is_legal_is_lowered(
    kind: st.SearchStrategy[Problem], data: st.DataObject
) -> None:
    problem, target = data.draw(kind), data.draw(st.sampled_from(TARGETS))
    schedule = data.draw(rearranged(problem, target))
    plan(problem, schedule, target)
    check_script(problem, schedule)


@pytest.mark.timeout(900)
@cases(40, short=12)
@given(st.data())
def test_any_order_of_steps_that_is_legal_computes_the_same(data: st.DataObject) -> None:
    problem, target = data.draw(problems), data.draw(st.sampled_from(TARGETS))
    check(problem, data.draw(rearranged(problem, target)), target, data.draw(st.integers(0, 9)))


def check_script(problem: Problem, schedule: Schedule) -> None:
    """There is one, or a refusal that says why; it changes the payload between its cleanups."""
    try:
        text = emit_script(problem, schedule)
    except (LoweringError, UnsupportedError):
        return
    lines = [line.strip() for line in text.splitlines()]
    written = [line for line in lines if line and not line.startswith("//")]
    cleans = ["transform.include @cleanup" in line for line in written]
    assert not any(first and second for first, second in pairwise(cleans)), schedule
