"""Random problems of every kind under random schedules: what is emitted proves."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cases import cases
from tests.kernels.strategies import problems, quantised, schedules
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.proof.prove import prove_script
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import detect


def check(problem: Problem, schedule: Schedule) -> None:
    """The script proves; what cannot be written as one is no case."""
    try:
        script = emit_script(problem, schedule)
    except LoweringError:
        assume(False)
    proof = prove_script(problem, script)
    assert proof.ok, proof.message


@cases(16, short=6)
@given(st.data())
def test_random_schedules_prove(data: st.DataObject) -> None:
    problem = data.draw(problems)
    check(problem, data.draw(schedules(problem, detect())))


@pytest.mark.timeout(3600)
@cases(200, short=2)
@given(st.data())
def test_random_schedules_of_quantised_problems_prove(data: st.DataObject) -> None:
    problem = data.draw(quantised)
    check(problem, data.draw(schedules(problem, detect())))
