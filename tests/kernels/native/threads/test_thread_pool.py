"""A thread pool runs on in a forked process, and after an exception wherever it came."""

import os
import subprocess
import sys
from typing import Any

import pytest

from tilewise.kernels.native.threads import thread_pool as pools

CALLED = """
import os, sys, time
import numpy as np
from tilewise.kernels.native import lower
from tilewise.kernels.native.threads.thread_pool import thread_pool
from tilewise.kernels.oracle.operands import make_operands, poison
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Parallel, Register, Schedule
from tilewise.kernels.target import detect

problem = parse_problem("matmul:m=70,n=150,k=50,dtype=i32")
operands = make_operands(problem, 1)
expected = operands["A"] @ operands["B"]
schedule = Schedule((Parallel("n", 2), Register(4, 32)))
call = lower(problem, schedule, detect()).bind(operands)

def is_right():
    poison(operands["C"])
    call()
    return np.array_equal(operands["C"], expected)
"""
BOUND = (
    CALLED
    + """
assert is_right()
one = thread_pool(2)
"""
)
FORKED = (
    BOUND
    + """
one._one_at_a_time.acquire()  # as a thread that runs something at the time of the fork has it
one._barrier[0] = 1  # and as a helper that has arrived
child = os.fork()
if not child:
    os._exit(0 if all(is_right() for _ in range(20)) else 7)
one._barrier[0] = 0
one._one_at_a_time.release()
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert is_right()
"""
)
CUT_OFF = (
    BOUND
    + """
from itertools import count

class Stopped(BaseException):
    pass

codes = {getattr(type(one), name).__code__ for name in ("_run", "_catch_up", "_start", "_rouse")}

def stopped(after):
    '''Whether a call was cut off before the line that comes after so many others.'''
    def trace(frame, event, argument):
        nonlocal after
        if frame.f_code not in codes:
            return None
        if event == "line":
            after -= 1
            if after < 0:
                sys.settrace(None)
                raise Stopped
        return trace
    sys.settrace(trace)
    try:
        call()
        return False
    except Stopped:
        time.sleep(0.02)  # in which a helper begins what it was told of
        return True
    finally:
        sys.settrace(None)

for lines in count():
    poison(operands["C"])
    time.sleep(0.02)  # in which a helper falls asleep
    is_stopped = stopped(lines)
    assert is_right(), lines
    assert is_right(), lines
    if not is_stopped:
        break
assert lines > 20, lines
"""
)
LATER = (
    CALLED
    + """
import threading
start = threading.Thread.start
for error in (RuntimeError("can't start new thread"), KeyboardInterrupt()):
    def refuse(thread, error=error):
        raise error
    threading.Thread.start = refuse
    try:
        call()
        raise AssertionError("a run without its helper")
    except type(error):
        pass
    finally:
        threading.Thread.start = start
assert is_right()
"""
)


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize(
    "text",
    [FORKED, CUT_OFF, LATER],
    ids=["forked", "cut off", "helpers that could not be started"],
)
def test_a_thread_pool_runs_right_after(text: str) -> None:
    subprocess.run([sys.executable, "-c", text], check=True, timeout=280)


def test_all_who_ask_have_one_thread_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where two threads ask at once, of which each finds none."""
    monkeypatch.setattr(pools, "_POOLS", {})
    made = pools.ThreadPool

    def slow(*given: Any) -> pools.ThreadPool:
        monkeypatch.setattr(pools, "ThreadPool", made)
        other.append(pools.thread_pool(2))  # the other thread, in between
        return made(*given)

    other: list[pools.ThreadPool] = []
    monkeypatch.setattr(pools, "ThreadPool", slow)
    assert pools.thread_pool(2) is other[0] is pools.thread_pool(2)
