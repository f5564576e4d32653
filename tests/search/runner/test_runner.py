"""A runner's processes: faults, limits, controls, and how children end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from statistics import median

import psutil
import pytest

from tests.search.registers import steps
from tests.search.runner import faulty_child
from tests.search.runner.leaving_child import CODE
from tests.search.runner.patience import LIMITS, Patient
from tests.service.processes import wait_until
from tilewise.kernels.problem import Matmul
from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.system.children import MOST_STEP_S, ONE_THREAD, Patience, is_stopped
from tilewise.kernels.target import detect
from tilewise.search.errors import RunnerError
from tilewise.search.runner.child_process import ChildProcess
from tilewise.search.runner.protocol import CandidateFailureError, Ready, failure_of
from tilewise.search.runner.runner import AVX512_KERNELS, PARK_EARLY, Runner

PROBLEM = Matmul(m=24, n=40, k=16, dtype="f32")
CHILD = "tests.search.runner.faulty_child"


@pytest.fixture(scope="module")
def runner():
    with Patient(PROBLEM, detect().canonical, child=CHILD) as one:
        yield one


def test_a_good_candidate_is_timed_and_checked(runner: Runner) -> None:
    reply = runner.trial(steps(1), None)
    assert len(reply.times) >= 5
    assert all(t > 0 for t in reply.times)
    assert 0 < reply.max_error <= 1e-5
    assert not reply.pruned


def test_operands_are_those_of_the_seed() -> None:
    """How far rounding takes a result from the exact one depends on every element of them."""

    def error(seed: int) -> float:
        with Runner(PROBLEM, detect().canonical, seed, limits=LIMITS) as one:
            return one.trial(steps(1), None).max_error

    assert error(0) == error(0) != error(1)


@pytest.mark.full
@pytest.mark.parametrize(("rows", "kind", "says"), [
    (faulty_child.HANG, "timeout", "no answer within 2 s"),
    (faulty_child.CRASH, "crash", "SIGSEGV"), (faulty_child.EAT, "memory", "limit 900 MiB"),
    (faulty_child.WRONG, "wrong", "deviation"), (faulty_child.RAISE, "runtime", "no such luck"),
    (faulty_child.EXIT, "crash", "exit code 7"),
])  # fmt: skip
def test_each_fault_has_its_class_and_the_next_candidate_runs(runner, rows, kind, says) -> None:
    with pytest.raises(CandidateFailureError, match=says) as caught:
        runner.trial(steps(rows), None)
    assert caught.value.kind == kind
    assert runner.trial(steps(1), None).times


DEEP = [{"step": "stream", "dim": "k", "depth": 17}, *steps(1)]
NO_VECTORS = [{"step": "register", "rows": 1, "cols": 3, "outer": "rows"}]


@pytest.mark.parametrize(("refused", "kind", "says"), [
    (DEEP, "constraint", "only 16 deep"), (NO_VECTORS, "compile", "lanes"),
])  # fmt: skip
def test_what_cannot_be_lowered_fails_by_its_reason(runner: Runner, refused, kind, says) -> None:
    with pytest.raises(CandidateFailureError, match=says) as caught:
        runner.trial(refused, None)
    assert caught.value.kind == kind


def test_a_clearly_slower_candidate_is_stopped_early(runner: Runner) -> None:
    reply = runner.trial(steps(1), 1e-12)
    assert reply.pruned
    assert len(reply.times) == 1, "one sample says enough"


def test_a_control_tells_the_pace(runner: Runner) -> None:
    first = runner.trial(steps(1), None)
    known = {"steps": steps(1), "seconds": median(first.times)}
    reply = runner.trial(steps(8), 1.0, known)
    assert first.speed_factor is None
    assert 0.2 < reply.speed_factor < 5, "the same machine, a moment later"


@pytest.mark.parametrize("failing", [steps(faulty_child.CRASH), steps(faulty_child.EXIT), DEEP])
def test_a_control_that_fails_is_not_the_candidates_fault(runner: Runner, failing) -> None:
    best_s = 1.0 if failing is DEEP else 1e-12  # no limit holds where no control tells the pace
    reply = runner.trial(steps(1), best_s, {"steps": failing, "seconds": 2e-6})
    assert reply.times and reply.speed_factor is None and not reply.pruned


def test_a_candidate_that_crashes_beside_a_control_crashes(runner: Runner) -> None:
    with pytest.raises(CandidateFailureError) as caught:
        runner.trial(steps(faulty_child.CRASH), 1.0, {"steps": steps(1), "seconds": 2e-6})
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
        assert len(one.time_finalists(schedules, 5, peers=False).finalists) == 4


@pytest.mark.parametrize(("target", "options", "says"), [
    (detect().canonical, {"child": "no.such.module"}, "cannot be set up"),
    ("cpu:not-this-one,threads=1", {}, "cannot be set up.*this machine is"),
])  # fmt: skip
def test_a_child_that_cannot_be_set_up_is_the_runners_error(target, options, says) -> None:
    with Runner(PROBLEM, target, **options) as one, pytest.raises(RunnerError, match=says):
        one.trial(steps(1), None)


@pytest.mark.parametrize("threads", [1, 2])
def test_libraries_in_the_child_have_the_threads_of_the_target_and_the_fastest_kernels(threads):
    target = f"cpu:any,threads={threads}"
    with Runner(PROBLEM, target, child="tests.search.runner.environment_child") as one:
        found = json.loads(one.peer("any").absent)
    assert {found[name] for name in ONE_THREAD} == {str(threads)}
    assert (AVX512_KERNELS.items() <= found.items()) == ("avx512f" in detect().features)
    assert (PARK_EARLY.items() <= found.items()) == (threads > 1) == ("KMP_BLOCKTIME" in found)


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
    try:
        wait_until(lambda: note.exists() and note.read_text() != "", LIMITS.setup_s)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    wait_until(lambda: is_gone(int(note.read_text())), LIMITS.setup_s)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def freeze(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, 120)


def test_an_answer_that_never_ends_has_its_limit_too() -> None:
    child = ChildProcess("tests.search.runner.dribbling_child", {}, 60.0, 1 << 30, {})
    try:
        with pytest.raises(CandidateFailureError, match="no answer within 1 s"):
            child.ask({}, 1.0, Ready)
    finally:
        child.close()


@pytest.mark.parametrize(("name", "kind"), [("TERM", "runtime"), ("ABRT", "crash")])
def test_a_child_that_another_process_ends_is_no_crash_of_a_candidate(name, kind) -> None:
    child = ChildProcess("tests.search.runner.dribbling_child", {}, 60.0, 1 << 30, {})
    process = subprocess.Popen(["sh", "-c", f"kill -{name} $$"], start_new_session=True)
    assert child._died(process).kind == kind
    assert failure_of(MemoryError("full")).failure == failure_of(OSError("full")).failure


def test_a_step_in_which_the_waiter_did_not_run_counts_little() -> None:
    moments = iter([0.0, 0.05, 0.1, 3600.0, 3600.05, 3600.1])
    patience = Patience(MOST_STEP_S + 0.18, clock=lambda: next(moments))
    assert [patience.is_over(os.getpid()) for _ in range(5)] == [False, False, False, False, True]
    assert patience.spent_s == pytest.approx(MOST_STEP_S + 0.2)


def test_time_in_which_the_child_is_stopped_does_not_count() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            assert not is_stopped(child.pid)
            moments = iter(range(100))
            patience = Patience(2.5, clock=lambda: float(next(moments)))
            freeze(child.pid)
            assert is_stopped(child.pid)
            assert not any(patience.is_over(child.pid) for _ in range(20))
            os.kill(child.pid, signal.SIGCONT)
            wait_until(lambda: not is_stopped(child.pid), 120)
            assert [patience.is_over(child.pid) for _ in range(3)] == [False, False, True]
        finally:
            child.kill()
    assert not is_stopped(child.pid), "it has ended"


def test_what_a_child_has_started_ends_with_it_and_its_code_is_told(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    setup = {"do": "setup", "note": str(note)}
    child = ChildProcess("tests.search.runner.leaving_child", setup, 60.0, 1 << 30, {})
    with pytest.raises(CandidateFailureError, match=f"ended with exit code {CODE}$") as caught:
        child.ask({"do": "work"}, 60.0, Ready)
    assert caught.value.kind == "crash"
    wait_until(lambda: is_gone(int(note.read_text())))
