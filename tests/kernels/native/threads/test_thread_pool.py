"""A thread pool runs on in a forked process, and after an exception wherever it came."""

import os
import subprocess
import sys

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
class Stopped(BaseException):
    pass

code, count = type(one)._run.__code__, 0
for line in sorted({line for _, _, line in code.co_lines() if line} - {code.co_firstlineno}):
    def trace(frame, event, argument):
        global count
        if frame.f_code is not code:
            return None
        if event == "line" and frame.f_lineno == line:
            sys.settrace(None)
            count += 1
            raise Stopped
        return trace
    poison(operands["C"])
    time.sleep(0.02)  # in which a helper falls asleep
    sys.settrace(trace)
    try:
        call()
    except Stopped:
        time.sleep(0.02)  # in which a helper begins what it was told of
    finally:
        sys.settrace(None)
    assert is_right(), line
    assert is_right(), line
assert count > 10, count
"""
)
INTERRUPTED = (
    BOUND
    + """
import random, signal, threading

def interrupt():
    time.sleep(random.uniform(0, 0.003))
    os.kill(os.getpid(), signal.SIGINT)

random.seed(1)
for _ in range(40):
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        while True:
            call()
    except KeyboardInterrupt:
        pass
    thread.join()
    assert is_right()
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
    [FORKED, CUT_OFF, INTERRUPTED, LATER],
    ids=["forked", "cut off", "interrupted", "helpers that could not be started"],
)
def test_a_thread_pool_runs_right_after(text: str) -> None:
    subprocess.run([sys.executable, "-c", text], check=True, timeout=280)


def test_all_who_ask_have_one_thread_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where two threads ask at once, of which each finds none."""
    monkeypatch.setattr(pools, "_POOLS", {})
    made = pools.ThreadPool

    def slow(processors: list[int]) -> pools.ThreadPool:
        monkeypatch.setattr(pools, "ThreadPool", made)
        other.append(pools.thread_pool(2))  # the other thread, in between
        return made(processors)

    other: list[pools.ThreadPool] = []
    monkeypatch.setattr(pools, "ThreadPool", slow)
    assert pools.thread_pool(2) is other[0] is pools.thread_pool(2)
