"""Which processor times, and which processors compile beside it."""

import os
import sys
from collections import deque
from concurrent.futures import CancelledError
from unittest.mock import Mock

import pytest

from tests.search.registers import steps
from tests.search.runner import faulty_compiler
from tests.search.runner.patience import BRIEF, LIMITS
from tilewise.kernels.problem import Matmul
from tilewise.kernels.target import detect
from tilewise.search.runner import compilers, processors
from tilewise.search.runner import runner as runner_module
from tilewise.search.runner.compilers import Compilers
from tilewise.search.runner.processors import BRIEF_S, SLOW, STALE_S, Claim, SpeedFactors, claim
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.runner.runner import Runner

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="claims are sockets of Linux")
# Names of these tests' own: searches that run meanwhile claim processors too.
CLAIM = f"\0tilewise/test/{os.getpid()}/{{}}"
COMPILER = "tests.search.runner.faulty_compiler"
PROBLEM = Matmul(m=24, n=40, k=16, dtype="f32")


def left(
    speed_factors: SpeedFactors, processor: int, speed_factor: float, begin: float, until: float
) -> float | None:
    """The moment at which a processor is left, if something is timed on it every 10 ms."""
    now = begin
    while now < until:
        if speed_factors.is_to_leave(processor, speed_factor, now):
            return now
        now += 0.01
    return None


def test_a_processor_that_stays_slow_is_left_and_a_steady_one_is_not() -> None:
    speed_factors = SpeedFactors()
    assert left(speed_factors, 0, 1.0, 0.0, 10.0) is None
    assert left(speed_factors, 0, SLOW - 0.01, 10.0, 20.0) is None
    when = left(speed_factors, 0, 1.5, 20.0, 30.0)
    assert when is not None and BRIEF_S <= when - 20.0 < 3 * BRIEF_S


def test_a_slow_moment_is_borne() -> None:
    speed_factors = SpeedFactors()
    for second in range(20):
        assert left(speed_factors, 0, 1.5, second, second + BRIEF_S / 2) is None
        assert left(speed_factors, 0, 1.0, second + BRIEF_S / 2, second + 0.5) is None


def test_of_two_slow_ones_the_less_slow_is_kept_until_the_other_may_have_changed() -> None:
    speed_factors = SpeedFactors()
    assert left(speed_factors, 0, 1.0, 0.0, 1.0) is None
    gone = left(speed_factors, 0, 1.5, 1.0, 2.0)
    assert left(speed_factors, 1, 1.5, gone, gone + STALE_S - 0.1) is None, "it is no faster there"
    assert left(speed_factors, 1, 1.5, gone, gone + 2 * STALE_S) is not None
    speed_factors = SpeedFactors(deque([1.0] * 20), left={0: (5.0, 1.2)})
    assert left(speed_factors, 1, 1.5, 5.0, 6.0) is not None, "and back to where it is less slow"


@LINUX
@pytest.mark.parametrize("threads", [1, 2])
def test_nothing_compiles_on_the_other_half_of_a_core_that_times(threads, monkeypatch) -> None:
    monkeypatch.setattr(processors, "CLAIM", CLAIM)
    monkeypatch.setattr(processors, "usable_processors", lambda: [*range(4 * threads)])
    monkeypatch.setattr(processors, "core_of", lambda processor: processor % (2 * threads))
    first, second, third, last = ({*range(n, n + threads)} for n in range(0, 4 * threads, threads))
    one, other = (processors.claim(f"cpu:any,threads={threads}") for _ in range(2))
    try:
        assert (one.timing, one.others) == (first, second | last)
        assert (other.timing, other.others) == (second, set()), "nor where another search times"
        assert one.change({}) and (one.timing, one.others) == (last, first | third)
        assert claim(f"cpu:any,threads={2 * threads + 1}") == Claim(None, set()), "2 are not enough"
        assert claim(f"cpu:any,threads={2 * threads}").timing == first | third, "nor held in vain"
    finally:
        one.release()
        other.release()


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Processors to compile on, also where there is one alone; compilers get their share of it."""
    monkeypatch.setattr(compilers, "GIVE_WAY", 0)
    others = set(sorted(os.sched_getaffinity(0))[-1:])
    monkeypatch.setattr(runner_module, "claim", lambda _target: Claim(None, others))
    return others


@pytest.mark.full
@pytest.mark.parametrize(("rows", "kind"), [
    (faulty_compiler.HANG, "timeout"), (faulty_compiler.CRASH, "crash"),
    (faulty_compiler.REFUSE, "compile"),
])  # fmt: skip
def test_a_candidate_that_takes_its_compiler_down_fails_alone(beside, rows, kind, monkeypatch):
    monkeypatch.setattr(Compilers, "help", lambda *_: None)
    with Runner(PROBLEM, detect().canonical, limits=BRIEF, compiler=COMPILER) as one:
        for asked in (1, rows, 4):
            one.prepare(steps(asked))
        one.limits = LIMITS  # of trials; the compilers have theirs
        first = one.trial(steps(1), None)
        with pytest.raises(CandidateFailureError) as caught:
            one.trial(steps(rows), None)
        assert caught.value.kind == kind
        second = one.trial(steps(4), None)
    assert first.times and second.times
    assert min(first.compile_s, second.compile_s) > 1000, "compiled beside"
    is_new = int(first.compile_s) != int(second.compile_s)
    assert is_new == (kind != "compile"), "only what is dead is replaced"


@pytest.mark.full
def test_the_timing_process_takes_over_what_no_compiler_has_begun(beside: set[int]) -> None:
    with Runner(PROBLEM, detect().canonical, limits=LIMITS, compiler=COMPILER) as one:
        one.trial(steps(1), None)  # so that the timing process is there
        one.limits = BRIEF
        for asked in (faulty_compiler.HANG, 4, 5):
            one.prepare(steps(asked))
        one.limits = LIMITS
        with pytest.raises(CandidateFailureError) as caught:
            one.trial(steps(faulty_compiler.HANG), None)
        assert caught.value.kind == "timeout"
        replies = [one.trial(steps(asked), None) for asked in (4, 5)]
    assert all(reply.compile_s < 1000 for reply in replies), "not by the compiler"


def test_a_compiler_that_starts_while_all_are_closed_is_closed() -> None:
    child = Mock()
    closing = Compilers([child], 1.0)
    child.start.side_effect = closing.close
    with pytest.raises(CancelledError):
        closing._compile([])
    assert child.close.call_count == 2 and not child.ask.called


def test_without_another_processor_nothing_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "claim", lambda _target: Claim(None, set()))
    with Runner(PROBLEM, detect().canonical, limits=LIMITS, compiler="no.such.module") as one:
        assert one.ahead == 0
        one.prepare(steps(1))
        assert one.trial(steps(1), None).times


@LINUX
def test_who_times_alone_is_on_a_processor_that_nobody_else_claims(monkeypatch) -> None:
    monkeypatch.setattr(processors, "CLAIM", CLAIM)
    before = os.sched_getaffinity(0)
    with processors.timing_alone("cpu:any,threads=1"):
        inside = os.sched_getaffinity(0)
        assert len(inside) == 1
        assert claim("cpu:any,threads=1").timing is None, "of the processors left here"
    assert os.sched_getaffinity(0) == before
    again = claim("cpu:any,threads=1")
    assert again.timing == inside, "it was given back"
    again.release()
    with processors.timing_alone("cpu:any,threads=2"):
        assert len(os.sched_getaffinity(0)) == min(2, len(before))
