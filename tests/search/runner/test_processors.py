"""Which processor times: left where somebody else makes it slow, and come back to."""

import os
import sys
from collections import deque

import pytest

from tilewise.kernels.problem import Matmul
from tilewise.search.runner import processors
from tilewise.search.runner.processors import BRIEF_S, SLOW, STALE_S, Paces

PROBLEM = Matmul(m=24, n=40, k=16, dtype="f32")


def left(paces: Paces, processor: int, pace: float, begin: float, until: float) -> float | None:
    """The moment at which a processor is left, if something is timed on it every 10 ms."""
    now = begin
    while now < until:
        if paces.is_to_leave(processor, pace, now):
            return now
        now += 0.01
    return None


def test_a_processor_that_stays_slow_is_left_and_a_steady_one_is_not() -> None:
    paces = Paces()
    assert left(paces, 0, 1.0, 0.0, 10.0) is None
    assert left(paces, 0, SLOW - 0.01, 10.0, 20.0) is None
    when = left(paces, 0, 1.5, 20.0, 30.0)
    assert when is not None and BRIEF_S <= when - 20.0 < 3 * BRIEF_S


def test_a_slow_moment_is_borne() -> None:
    paces = Paces()
    for second in range(20):
        assert left(paces, 0, 1.5, second, second + BRIEF_S / 2) is None
        assert left(paces, 0, 1.0, second + BRIEF_S / 2, second + 0.5) is None


def test_of_two_slow_ones_the_less_slow_is_kept_until_the_other_may_have_changed() -> None:
    paces = Paces()
    assert left(paces, 0, 1.0, 0.0, 1.0) is None
    gone = left(paces, 0, 1.5, 1.0, 2.0)
    assert gone is not None
    assert left(paces, 1, 1.5, gone, gone + STALE_S - 0.1) is None, "it is no faster there"
    assert left(paces, 1, 1.5, gone, gone + 2 * STALE_S) is not None
    paces = Paces(deque([1.0] * 20), left={0: (5.0, 1.2)})
    assert left(paces, 1, 1.5, 5.0, 6.0) is not None, "and back to where it is less slow"


@pytest.mark.skipif(sys.platform != "linux", reason="claims are abstract sockets, of Linux")
def test_nothing_compiles_on_the_other_half_of_a_core_that_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processors, "CLAIM", f"\0tilewise/test/halves/{os.getpid()}/{{}}")
    monkeypatch.setattr(processors, "usable_processors", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(processors, "core_of", lambda processor: processor % 2)
    one = processors.claim("cpu:any,threads=1")
    other = processors.claim("cpu:any,threads=1")
    try:
        assert (one.timing, one.others) == ({0}, {1, 3})
        assert (other.timing, other.others) == ({1}, {2}), "nor where another search times"
    finally:
        one.release()
        other.release()
