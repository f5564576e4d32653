"""Parallel schedules: parts, the pool that runs them, and what each thread owns."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tilewise.kernels.errors import ScheduleError, TargetError
from tilewise.kernels.native import lower
from tilewise.kernels.native.threads.pinning import pin, usable_processors
from tilewise.kernels.native.threads.pool import SPINS
from tilewise.kernels.native.threads.thread_pool import _POOLS, thread_pool
from tilewise.kernels.nest import printed
from tilewise.kernels.oracle.operands import make_operands, poison
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.steps import Pack, Parallel, Register, Step, Stream, Tile, Unroll
from tilewise.kernels.target import Target, resolve

PROBLEM = parse_problem("matmul:m=70,n=150,k=50,dtype=f32,bias")
GOTO = (Tile("n", 32), Stream("k", 24), Pack("B"), Tile("m", 12), Pack("A"), Register(4, 32))

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="os.sched_getaffinity exists on Linux only"
)


def run_and_compare(schedule: Schedule, host: Target, calls: int = 1, pause_s: float = 0.0) -> None:
    operands = make_operands(PROBLEM, 1)
    expected = reference(PROBLEM, operands)
    call = lower(PROBLEM, schedule, host).bind(operands)
    for _ in range(calls):
        poison(operands["C"])
        call()
        assert np.less_equal(*compare(PROBLEM, operands["C"], expected))
        time.sleep(pause_s)


def test_parts_are_whole_register_tiles_and_cover_the_result() -> None:
    nest = loop_nest(PROBLEM, Schedule((Parallel("m", 3), Parallel("n", 2), *GOTO)))
    rows, cols = [0, 24, 48], [0, 96]
    expected = [{"m": (m, min(m + 24, 70)), "n": (n, min(n + 96, 150))} for m in rows for n in cols]
    assert list(nest.parts) == expected
    assert "for m step 24:  # parallel, 3 trips" in "\n".join(printed(nest))
    assert loop_nest(PROBLEM, Schedule(GOTO)).parts == ({},)


@pytest.mark.parametrize(("steps", "message"), [
    ((Parallel("k", 2), *GOTO), "parallel takes one of the dims m, n"),
    ((Parallel("m", 1), *GOTO), "give 2 to 18"),
    ((Parallel("m", 19), *GOTO), "m has 18 register tiles; give 2 to 18"),
    ((Parallel("x", 2), *GOTO), "parallel takes one of the dims"),
    ((GOTO[0], Parallel("m", 2), *GOTO[1:]), "before all others"),
    ((Parallel("m", 2), Parallel("m", 3), *GOTO), "m is divided once"),
])  # fmt: skip
def test_parts_that_make_no_sense_are_refused(steps: tuple[Step, ...], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        loop_nest(PROBLEM, Schedule(steps))


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_any_number_of_threads_on_any_number_of_processors(threads: int, host: Target) -> None:
    run_and_compare(Schedule((Parallel("m", threads), *GOTO, Unroll(2))), host, calls=30)


def test_a_helper_that_is_late_at_the_barrier_finds_it_as_it_was(host: Target) -> None:
    """Calls come and go while threads share one processor, where a helper is always late."""
    before = pin({min(usable_processors())})
    _POOLS.clear()
    try:
        for threads in (2, 3):
            schedule = Schedule((Parallel("n", threads), *GOTO))
            for _ in range(20):
                run_and_compare(schedule, host)
    finally:
        _POOLS.clear()
        if before is not None:
            pin(before)


def test_helpers_that_went_to_sleep_are_woken(host: Target) -> None:
    run_and_compare(Schedule((Parallel("n", 2), *GOTO)), host, calls=5, pause_s=SPINS * 2e-6)


def test_each_thread_packs_into_memory_of_its_own(host: Target) -> None:
    alone = lower(PROBLEM, Schedule(GOTO), host).scratch_bytes
    shared = lower(PROBLEM, Schedule((Parallel("m", 2), *GOTO)), host).scratch_bytes
    assert all(2 * alone[name] <= shared[name] <= 2 * alone[name] + 128 for name in "AB")
    constant = parse_problem("matmul:m=70,n=150,k=50,dtype=f32,weights=constant")
    once = lower(constant, Schedule(GOTO), host).scratch_bytes
    both = lower(constant, Schedule((Parallel("m", 2), *GOTO)), host).scratch_bytes
    assert once["B"] == both["B"], "constant weights are packed once, for all"


def test_repeats_in_one_entry_wait_for_each_other(host: Target) -> None:
    problem = parse_problem("matmul:m=24,n=64,k=8,dtype=i32,init=accumulate")
    operands = make_operands(problem, 2)
    start = operands["C"].copy()
    product = operands["A"].astype(np.int64) @ operands["B"].astype(np.int64)
    steps = (Parallel("m", 2), Parallel("n", 2), Pack("B"), Register(4, 32))
    lower(problem, Schedule(steps), host).bind(operands)(50)
    assert np.array_equal(operands["C"], (start + 50 * product).astype(np.int32))


def test_callers_from_several_threads_take_turns(host: Target) -> None:
    schedule = Schedule((Parallel("n", 2), *GOTO))
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run_and_compare(schedule, host, calls=20)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@needs_affinity
def test_a_call_leaves_its_caller_where_it_may_run(host: Target) -> None:
    before = os.sched_getaffinity(0)
    run_and_compare(Schedule((Parallel("m", 2), *GOTO)), host)
    assert os.sched_getaffinity(0) == before


@needs_affinity
def test_processors_are_those_that_this_process_may_use() -> None:
    before = pin({min(os.sched_getaffinity(0))})
    try:
        assert usable_processors() == [min(before or {0})]
    finally:
        pin(before or set())
    assert sorted(usable_processors()) == sorted(os.sched_getaffinity(0))
    assert thread_pool(2) is thread_pool(2)


def test_a_target_has_no_more_threads_than_the_machine(host: Target) -> None:
    for threads in range(1, host.cores + 1):
        assert resolve(f"cpu:host,threads={threads}").threads == threads
    give = f"give threads=1 to {host.cores}" if host.cores > 1 else "give threads=1$"
    with pytest.raises(TargetError, match=give):
        resolve(host.with_threads(host.cores + 1).canonical)


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
BOUND = "assert is_right()\none = thread_pool(2)\n"
FORKED = """
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
CUT_OFF = """
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
LATER = """
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


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize(
    "text", [BOUND + FORKED, BOUND + CUT_OFF, LATER], ids=["forked", "cut off", "no thread"]
)
def test_a_thread_pool_runs_right_after(text: str) -> None:
    subprocess.run([sys.executable, "-c", CALLED + text], check=True, timeout=280)
