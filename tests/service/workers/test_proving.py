import time
from dataclasses import replace

import pytest

from tests.service import fakes
from tests.service.conftest import PROBLEM
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Tile, Winograd
from tilewise.kernels.target import resolve
from tilewise.search.records import TuneResult, Winner
from tilewise.service.jobs.outcome import Attempt
from tilewise.service.workers import proving
from tilewise.service.workers.proving import LEAST_PROOF_S, MOST_PROOFS, PROOF_LIMIT_S, Proofs

TARGET = resolve("cpu:host")


class Clock:
    """A time that passes while something is proven, and not otherwise."""

    def __init__(self, each_s=1.0):
        self.each_s, self.now, self.limits = each_s, 1000.0, []

    def monotonic(self):
        return self.now

    def attempt(self, schedule, seconds):
        self.limits.append(seconds)
        self.now += self.each_s
        return Attempt(schedule, None, "of the tests")


@pytest.fixture
def make(monkeypatch):
    """Proofs on a clock; the schedules of the numbers in `scriptless` have no script."""

    def made(each_s=1.0, *, scriptless=(), like=(), should_stop=lambda: False, has_seconds=False):
        clock = Clock(each_s)
        without = {fakes.schedule(number).hash for number in scriptless}

        def emit(_problem, schedule):
            if schedule.hash in without:
                raise UnsupportedError("it has no script", "steps")

        monkeypatch.setattr(proving, "time", clock)
        loaded = {proving.EMITTER: emit, proving.SCRIPTED: lambda *_: schedules(*like)}
        monkeypatch.setattr(proving, "load", loaded.__getitem__)
        proofs = Proofs(parse_problem(PROBLEM), TARGET, clock.attempt, should_stop, has_seconds)
        return proofs, clock

    return made


def ranking(*numbers):
    return [fakes.trial(number, gflops=100.0 - number) for number in numbers]


def tried(proofs):
    return [attempt.schedule for attempt in proofs.attempts]


def schedules(*numbers):
    return [fakes.schedule(number) for number in numbers]


def result(*numbers):
    finalists = [(fakes.schedule(n), fakes.measurement(100.0 - n)) for n in numbers]
    best = Winner(*finalists[0], 100.0, tuple(finalists[1:]))
    return TuneResult(best, tuple(ranking(*sorted(numbers))), 1.0, True), best


@pytest.mark.parametrize(
    ("each_s", "left_s", "proven", "limits"),
    [(LEAST_PROOF_S, -5.0, (0,), [LEAST_PROOF_S]), (20.0, 55.0, (0, 1), [55.0, 35.0])],
)
def test_the_first_is_proven_and_others_as_time_permits(make, each_s, left_s, proven, limits):
    """Another is proven only where there is time for one that takes as long."""
    proofs, clock = make(each_s)
    proofs.prove(ranking(0, 1, 2), clock.now + left_s)
    assert (tried(proofs), clock.limits) == (schedules(*proven), limits)


@pytest.mark.parametrize(
    ("scriptless", "numbers", "pruned", "proven"),
    [((), (0, 1, 2), 0, (1, 2)), ((0, 1, 2, 3), (0, 1, 2, 3, 9, 5, 4), 4, (0, 1, 4))],
)
def test_what_was_stopped_early_is_proven_where_others_have_no_script(
    make, scriptless, numbers, pruned, proven
):
    proofs, _clock = make(scriptless=scriptless)
    trials = ranking(*numbers)
    proofs.prove([replace(t, state="pruned") if t.number == pruned else t for t in trials], None)
    assert tried(proofs) == schedules(*proven)


def test_where_no_trial_has_a_script_schedules_that_are_like_them_are_proven(make):
    proofs, _clock = make(scriptless=(0, 1, 2, 6), like=(6, 5, 4))
    proofs.prove(ranking(0, 1, 2), None)
    assert tried(proofs) == schedules(5, 4, 0)


@pytest.mark.parametrize(("has_seconds", "more"), [(False, [7]), (True, [])])
def test_a_winner_that_was_not_proven_is_proven_where_time_is_no_matter(make, has_seconds, more):
    proofs, _clock = make(has_seconds=has_seconds)
    proofs.prove(ranking(0, 1, 2), None)
    proofs.complete(*result(7, 0))
    assert tried(proofs) == schedules(0, 1, 2, *more)
    proofs.complete(*result(1, 7))
    assert tried(proofs) == schedules(0, 1, 2, *more), "it was proven before"


def test_beside_winograd_the_fastest_direct_schedules_are_proven():
    """However many of the others were faster; the winner's refusal says why it has no script."""
    problem = parse_problem("conv2d:n=1,h=9,w=9,ci=8,co=16,kh=3,kw=3,dtype=f32")
    packed = Winograd(4), Pack("B"), Pack("A")
    winograd = [Schedule((*packed, Register(n + 1, 16))) for n in range(14)]
    direct = [Schedule((Tile("n", 1), Register(n, 16))) for n in (1, 2, 3)]
    trials = [
        replace(fakes.trial(number, gflops=1000.0 - number), schedule=schedule)
        for number, schedule in enumerate((*winograd, *direct))
    ]
    for has_seconds, end_s, expected in (
        (False, None, [*direct[:2], winograd[0]]),
        (True, time.monotonic() - 1.0, direct[:1]),
    ):
        proofs = Proofs(problem, TARGET, Clock().attempt, lambda: False, has_seconds)
        proofs.prove(trials, end_s)
        assert tried(proofs) == expected


@pytest.mark.parametrize("has_seconds", [False, True])
def test_where_nothing_was_proven_the_finalists_are(make, has_seconds):
    proofs, clock = make(has_seconds=has_seconds)
    proofs.complete(*result(5, 4, 3, 2))
    assert tried(proofs) == schedules(5, 4, 3)
    assert clock.limits == [PROOF_LIMIT_S] * MOST_PROOFS


def test_a_search_that_is_called_off_proves_nothing_more(make):
    stopped = []
    proofs, _clock = make(should_stop=lambda: bool(stopped))
    proofs.prove(ranking(0), None)
    stopped.append(True)
    proofs.prove(ranking(1), None)
    proofs.complete(*result(2))
    assert tried(proofs) == schedules(0)
