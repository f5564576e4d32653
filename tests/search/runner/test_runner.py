import json
import os
import signal
import sys
import time
from pathlib import Path
from statistics import median

import pytest

from tests.search.runner import faulty_child
from tests.search.runner.patience import LIMITS, Patient
from tilewise.kernels.problem import Matmul
from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.system.children import ONE_THREAD
from tilewise.kernels.target import detect
from tilewise.search.errors import RunnerError
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.runner.runner import AVX512_KERNELS, PARK_EARLY, Runner

PROBLEM = Matmul(m=24, n=40, k=16, dtype="f32")
CHILD = "tests.search.runner.faulty_child"


def steps(rows: int) -> list[object]:
    return list(Schedule((Pack("B"), Register(rows, detect().lanes("f32")))).to_json())


@pytest.fixture(scope="module")
def runner():
    with Patient(PROBLEM, detect().canonical, child=CHILD) as one:
        yield one


def test_a_good_candidate_is_timed_and_checked(runner: Runner) -> None:
    reply = runner.trial(steps(1), None)
    assert len(reply.times) >= 5
    assert all(t > 0 for t in reply.times)
    assert 0 < reply.max_error <= reply.tolerance
    assert not reply.pruned


def test_operands_are_those_of_the_seed() -> None:
    """How far rounding takes a result from the exact one depends on every element of them."""

    def error(seed: int) -> float:
        with Runner(PROBLEM, detect().canonical, seed, limits=LIMITS) as one:
            return one.trial(steps(1), None).max_error

    assert error(0) == error(0) != error(1)


@pytest.mark.full
@pytest.mark.parametrize(
    ("rows", "kind", "says"),
    [
        (faulty_child.HANG, "timeout", "no answer within 2 s"),
        (faulty_child.CRASH, "crash", "SIGSEGV"),
        (faulty_child.EAT, "memory", "limit 900 MiB"),
        (faulty_child.WRONG, "wrong", "deviation"),
        (faulty_child.RAISE, "runtime", "no such luck"),
        (faulty_child.EXIT, "crash", "exit code 7"),
    ],
)
def test_each_fault_has_its_class_and_the_next_candidate_runs(
    runner: Runner, rows: int, kind: str, says: str
) -> None:
    with pytest.raises(CandidateFailureError, match=says) as caught:
        runner.trial(steps(rows), None)
    assert caught.value.kind == kind
    assert runner.trial(steps(1), None).times


def test_a_candidate_that_writes_nothing_does_not_inherit_the_last_result(runner: Runner) -> None:
    assert runner.trial(steps(1), None).times
    with pytest.raises(CandidateFailureError) as caught:
        runner.trial(steps(faulty_child.NOTHING), None)
    assert caught.value.kind == "wrong"


def test_an_illegal_schedule_is_a_constraint_failure(runner: Runner) -> None:
    with pytest.raises(CandidateFailureError, match="only 16 deep") as caught:
        runner.trial([{"step": "stream", "dim": "k", "depth": 17}, *steps(1)], None)
    assert caught.value.kind == "constraint"


def test_columns_that_are_no_vectors_are_a_compile_failure(runner: Runner) -> None:
    bad = [{"step": "register", "rows": 1, "cols": 3, "outer": "rows"}]
    with pytest.raises(CandidateFailureError, match="lanes") as caught:
        runner.trial(bad, None)
    assert caught.value.kind == "compile"


def test_a_clearly_slower_candidate_is_stopped_early(runner: Runner) -> None:
    reply = runner.trial(steps(1), 1e-12)
    assert reply.pruned
    assert len(reply.times) == 1, "one sample says enough"


def control(rows: int) -> dict[str, object]:
    return {"steps": steps(rows), "seconds": 2e-6}


def test_a_control_tells_the_pace(runner: Runner) -> None:
    first = runner.trial(steps(1), None)
    known = {"steps": steps(1), "seconds": median(first.times)}
    reply = runner.trial(steps(8), 1.0, known)
    assert first.pace is None
    assert 0.2 < reply.pace < 5, "the same machine, a moment later"


@pytest.mark.parametrize("rows", [faulty_child.CRASH, faulty_child.EXIT])
def test_a_control_that_takes_the_child_down_is_not_the_candidates_fault(
    runner: Runner, rows: int
) -> None:
    reply = runner.trial(steps(1), 1.0, control(rows))
    assert reply.times and reply.pace is None


def test_nor_is_one_that_cannot_be_lowered(runner: Runner) -> None:
    bad = [{"step": "stream", "dim": "k", "depth": 17}, *steps(1)]
    reply = runner.trial(steps(1), 1.0, {"steps": bad, "seconds": 2e-6})
    assert reply.times and reply.pace is None


def test_a_candidate_that_crashes_beside_a_control_crashes(runner: Runner) -> None:
    with pytest.raises(CandidateFailureError) as caught:
        runner.trial(steps(faulty_child.CRASH), 1.0, control(1))
    assert caught.value.kind == "crash"


@pytest.mark.parametrize("weights", ["variable", "constant"])
def test_finalists_do_not_disturb_each_other(weights: str) -> None:
    problem = Matmul(m=24, n=200, k=96, dtype="f32", weights=weights)
    lanes = detect().lanes("f32")
    schedules = [
        list(Schedule((Pack("B"), Pack("A"), Register(rows, lanes * v))).to_json())
        for rows, v in ((1, 1), (4, 2), (2, 3), (5, 1))
    ]
    with Runner(problem, detect().canonical) as one:
        assert len(one.finals(schedules, 5, peers=False).finalists) == 4


def test_a_child_that_cannot_start_is_the_runners_error() -> None:
    with (
        Runner(PROBLEM, detect().canonical, child="no.such.module") as one,
        pytest.raises(RunnerError, match="cannot be set up"),
    ):
        one.trial(steps(1), None)


def test_a_setup_that_fails_is_the_runners_error() -> None:
    with (
        Runner(PROBLEM, "cpu:not-this-one,threads=1") as one,
        pytest.raises(RunnerError, match=r"cannot be set up.*this machine is"),
    ):
        one.trial(steps(1), None)


@pytest.mark.parametrize("threads", [1, 2])
def test_libraries_in_the_child_have_the_threads_of_the_target_and_the_fastest_kernels(
    threads: int,
) -> None:
    target = f"cpu:any,threads={threads}"
    with Runner(PROBLEM, target, child="tests.search.runner.environment_child") as one:
        found = json.loads(one.peer("any").absent)
    assert {found[name] for name in ONE_THREAD} == {str(threads)}
    assert (AVX512_KERNELS.items() <= found.items()) == ("avx512f" in detect().features)
    assert (PARK_EARLY.items() <= found.items()) == (threads > 1)


def test_the_child_dies_with_its_parent(tmp_path) -> None:
    note = tmp_path / "pid"
    program = (
        "import sys, time; from pathlib import Path\n"
        "from tilewise.search.runner.runner import Runner\n"
        "from tilewise.kernels.problem import Matmul\n"
        "from tests.search.runner.test_runner import *\n"
        "one = Runner(PROBLEM, detect().canonical, limits=LIMITS, child=CHILD)\n"
        "one.__enter__().trial(steps(1), None)\n"
        f"Path({str(note)!r}).write_text(str(one._timing.pid)); time.sleep(3600)\n"
    )
    pid = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", program])
    deadline = time.monotonic() + LIMITS.setup_s
    try:
        while not note.exists() or not note.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    child = int(note.read_text())
    while _alive(child):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
