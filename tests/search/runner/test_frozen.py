"""What is frozen did not hang: a limit counts the time in which waiter and child both run."""

import os
import signal
import subprocess
import time
from collections.abc import Callable

import psutil
import pytest

from tilewise.kernels.system.children import MOST_STEP_S, Patience, is_stopped
from tilewise.search.runner.child_process import ChildProcess
from tilewise.search.runner.protocol import CandidateFailureError, Ready


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def freeze(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)


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
