"""An object that is wrong, or reaches beyond its operands, is not proven."""

from dataclasses import replace

import pytest

from tests.cases import some
from tilewise.kernels.errors import LimitError, ProofError
from tilewise.kernels.native.objects.make import KernelObject, make_object
from tilewise.kernels.native.objects.proof.prove import prove_object, require_proven
from tilewise.kernels.problem import Matmul, Problem
from tilewise.kernels.schedule import Pack, Parallel, Register, Schedule
from tilewise.kernels.target import Target

PROBLEM = Matmul(m=33, n=65, k=47, dtype="f32")
PLAIN = Schedule((Pack("B"), Register(3, 16)))


@pytest.fixture(scope="module")
def made(host: Target) -> KernelObject:
    return make_object(PROBLEM, PLAIN, host)


def test_a_right_one_is_proven_and_timed(made: KernelObject, host: Target) -> None:
    proof = require_proven(PROBLEM, PLAIN, host, made)
    assert proof.ok and proof.max_error is not None and proof.tolerance is not None
    assert proof.max_error <= proof.tolerance
    assert proof.gflops and proof.ratio and proof.ratio > 0.5


def test_parts_are_proven_by_one_thread(host: Target) -> None:
    schedule = Schedule((Parallel("m", 2), *PLAIN.steps))
    made = make_object(PROBLEM, schedule, host)
    proof = prove_object(PROBLEM, schedule, host, made)
    assert proof.ok and proof.ratio is None and proof.gflops


def of_another(problem: Problem, host: Target, made: KernelObject) -> KernelObject:
    """The object of another problem, under the names of the first."""
    other = make_object(problem, PLAIN, host)
    mine, theirs = made.interface, other.interface
    named = {"name": theirs.name, "alias": theirs.alias}
    return replace(other, interface=replace(mine, **named))


def test_one_of_another_problem_is_wrong(made: KernelObject, host: Target) -> None:
    relu = Matmul(m=33, n=65, k=47, dtype="f32", epilogue="relu")
    proof = prove_object(PROBLEM, PLAIN, host, of_another(relu, host, made))
    assert proof.failure == "wrong" and "off by" in proof.message and not proof.ok
    with pytest.raises(ProofError, match="wrong"):
        require_proven(PROBLEM, PLAIN, host, of_another(relu, host, made))


@pytest.mark.parametrize("larger", some([{"k": 48}, {"m": 34}, {"n": 66}], of=3))
def test_one_that_reaches_further_crashes_in_its_child(
    larger: dict[str, int], made: KernelObject, host: Target
) -> None:
    problem = replace(PROBLEM, **larger)
    proof = prove_object(PROBLEM, PLAIN, host, of_another(problem, host, made))
    assert proof.failure == "crash" and "SIGSEGV" in proof.message


def test_less_scratch_than_is_needed_shows(made: KernelObject, host: Target) -> None:
    less = replace(made.interface, scratch_bytes=made.interface.scratch_bytes - 64)
    proof = prove_object(PROBLEM, PLAIN, host, replace(made, interface=less))
    assert proof.failure == "crash" and "SIGSEGV" in proof.message


def test_limits_hold(made: KernelObject, host: Target) -> None:
    proof = prove_object(PROBLEM, PLAIN, host, made, seconds=0.05)
    assert proof.failure == "timeout"
    with pytest.raises(LimitError):
        prove_object(PROBLEM, PLAIN, host, made, memory_bytes=0)
