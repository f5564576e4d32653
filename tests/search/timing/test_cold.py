import time
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tilewise.kernels.problem import Matmul
from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.target import detect
from tilewise.search.runner.runner import Runner
from tilewise.search.timing import cold, samples
from tilewise.search.timing.cold import (
    LEAST_BUFFER,
    MOST_COPIES,
    ColdMode,
    added_bytes,
    cold_mode,
    evicting_s,
    in_turn,
    least_s,
)


def test_short_runs_take_turns_over_copies_and_long_ones_do_not() -> None:
    assert cold_mode(1e-3, 1 << 10, 32 << 20).copies == 1
    assert cold_mode(10e-6, 1 << 10, 32 << 20).copies == 4
    assert cold_mode(1e-9, 1 << 10, 32 << 20).copies == MOST_COPIES
    assert cold_mode(1e-9, 64 << 20, 32 << 20).copies == 4, "copies have to fit in memory"


@pytest.mark.parametrize(
    ("lengths", "least", "runs"),
    [([0.02, 1e-5, 0.03, 2e-5, 1e-5], 1e-5, 5), ([0.15], 0.15, 1), ([0.08, 0.03], 0.03, 2)],
)
def test_one_preempted_run_does_not_tell_how_long_runs_are(
    lengths: list[float], least: float, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, left = [0.0], list(lengths)
    monkeypatch.setattr(cold.time, "perf_counter", lambda: now[0])

    def run(_repeat: int) -> None:
        now[0] += left.pop(0)

    assert least_s(run) == pytest.approx(least)
    assert len(lengths) - len(left) == runs


def test_the_walk_is_over_more_than_the_caches_hold() -> None:
    assert cold_mode(1.0, 1, 64 << 20).buffer.nbytes == 128 << 20
    assert cold_mode(1.0, 1, 0).buffer.nbytes == LEAST_BUFFER


def test_a_large_cache_is_allowed_the_memory_and_the_time_that_emptying_it_takes() -> None:
    small = replace(detect(), l2_bytes=1 << 20, l3_bytes=16 << 20)
    large = replace(small, l3_bytes=480 << 20)
    assert added_bytes(large) - added_bytes(small) == 2 * (480 - 16) << 20
    assert evicting_s(large) == pytest.approx(30 * evicting_s(small))
    problem = Matmul(m=8, n=8, k=8, dtype="f32")
    with (
        Runner(problem, detect().canonical, cache="cold") as one,
        Runner(problem, detect().canonical) as hot,
    ):
        added = one._limits.memory_bytes - hot._limits.memory_bytes
    assert added == added_bytes(detect())


@dataclass
class LoggedWalks(ColdMode):
    """A cold mode that says when it would walk."""

    log: list[str]

    def evict(self) -> None:
        self.log.append("|")


def test_every_cold_sample_comes_after_a_walk_and_touches_each_copy_once() -> None:
    log: list[str] = []
    mode = LoggedWalks(3, np.zeros(1), log)
    run = in_turn([lambda _r, n=n: log.append(n) or time.sleep(1e-4) for n in "abc"])
    taken = samples.start(run, 2, mode)
    log.clear()
    begin = time.perf_counter()
    for _ in range(3):
        taken.take(run)
    spent = time.perf_counter() - begin
    assert "".join(log) == "|abc|abc|abc"
    assert all(t >= 1e-4 for t in taken.times), "the time of one run, not of the turn"
    assert 3 * sum(taken.times) <= spent


@pytest.mark.parametrize("size", [16, pytest.param(320, marks=pytest.mark.full)])
def test_a_cold_candidate_is_timed_and_says_how(size: int) -> None:
    problem = Matmul(m=size, n=size, k=size, dtype="f32")
    lanes = detect().lanes("f32")
    steps = [list(Schedule((Pack("B"), Register(r, lanes))).to_json()) for r in (1, 4)]
    with Runner(problem, detect().canonical, cache="cold") as one:
        reply = one.trial(steps[0], None)
        assert reply.times and reply.max_error <= reply.tolerance
        finals = one.finals(steps, 3, peers=True, placements=2)
    assert "written before each sample" in finals.cold
    assert ("copies" in finals.cold) == (size == 16)
    assert [len(one.times) for one in finals.finalists] == [2, 2]
    assert finals.peers["openblas"]
