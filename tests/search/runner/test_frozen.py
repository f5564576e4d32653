"""What is frozen did not hang: a limit counts the time in which waiter and child both run."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tilewise.kernels.system.children import (
    MOST_STEP_S,
    Patience,
    child_command,
    child_environment,
    is_stopped,
)
from tilewise.search.runner.child_process import ChildProcess
from tilewise.search.runner.protocol import CandidateFailureError, Ready

LIMIT_S = 3.0
FROZEN_S = LIMIT_S + 0.5

Ask = Callable[[float], "subprocess.Popen[str]"]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Has a process of its own ask a child, with a limit; both are ended with the test."""
    asking = []

    def make(limit_s: float) -> "subprocess.Popen[str]":
        command = child_command("tests.search.runner.frozen_child", str(tmp_path), str(limit_s))
        one = subprocess.Popen(command, env=child_environment(), stdout=subprocess.PIPE, text=True)
        asking.append(one)
        wait_until((tmp_path / "asked").exists)
        return one

    yield make
    for one in asking:
        one.kill()
        one.communicate()


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def child_in(folder: Path) -> int:
    return int((folder / "child").read_text())


def freeze(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)


def turns(pid: int) -> int:
    """How often a process has gone to sleep by itself, as it does at each look."""
    return int(psutil.Process(pid).num_ctx_switches().voluntary)


@pytest.mark.full
@pytest.mark.parametrize("also_the_waiter", [True, False])
def test_a_candidate_that_was_frozen_for_longer_than_its_limit_answers(
    ask: Ask, tmp_path: Path, also_the_waiter: bool
) -> None:
    waiter = ask(LIMIT_S)
    frozen = [child_in(tmp_path), waiter.pid] if also_the_waiter else [child_in(tmp_path)]
    for pid in frozen:
        freeze(pid)
    time.sleep(FROZEN_S)
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    looks = turns(waiter.pid)
    wait_until(lambda: waiter.poll() is not None or turns(waiter.pid) > looks + 10)
    (tmp_path / "allowed").touch()
    assert waiter.communicate(timeout=120)[0].strip() == "42"


@pytest.mark.full
def test_one_that_hangs_has_its_limit_before_and_after_a_freeze(ask: Ask, tmp_path: Path) -> None:
    waiter = ask(1.5)
    child = child_in(tmp_path)
    freeze(waiter.pid)
    freeze(child)
    for pid in (waiter.pid, child):
        os.kill(pid, signal.SIGCONT)
    assert waiter.communicate(timeout=120)[0].strip() == "timeout"
    assert not psutil.pid_exists(child)


def test_an_answer_that_never_ends_has_its_limit_too() -> None:
    child = ChildProcess("tests.search.runner.dribbling_child", {}, 60.0, 1 << 30, {})
    try:
        with pytest.raises(CandidateFailureError, match="no answer within 1 s"):
            child.ask({}, 1.0, Ready)
    finally:
        child.close()


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
            wait_until(lambda: not is_stopped(child.pid))
            assert [patience.is_over(child.pid) for _ in range(3)] == [False, False, True]
        finally:
            child.kill()
    assert not is_stopped(child.pid), "it has ended"
