import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update

from tests.search.engine.fakes import FakeRunner
from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.runs.conftest import Flaky
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import resolve
from tilewise.search.engine import distributed
from tilewise.search.engine.tune import tune
from tilewise.search.helpers import RemoteTrial
from tilewise.search.progress import SearchPhase
from tilewise.service.db import models, writing
from tilewise.service.db.base import now
from tilewise.service.errors import LeaseLostError
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.runs import helper_offers, offers
from tilewise.service.runs.http import HttpLeader, HttpRunStore


def candidate(number):
    trial = fakes.trial(number)
    control = {"steps": fakes.schedule().to_json(), "seconds": 1e-4}
    return RemoteTrial(number, trial.schedule, trial.params, "tpe", 1e-3, control)


def tried(asked):
    same = {"schedule": asked.schedule, "params": asked.params, "origin": asked.origin}
    return replace(fakes.trial(asked.number), **same)


class Spread:
    """A job that is spread: its leader, and helpers that join it."""

    def __init__(self, sessions, make_offer, calls, submit, **request):
        self.sessions, self.make_offer, self.calls = sessions, make_offer, calls
        self.job_id = submit(**{"spread": 8, "trials": 40, **request})
        self.leader = self.lead()

    def lead(self, worker="tcp://10.0.0.1:1", **options):
        self.offer = self.make_offer(worker)
        calls = self.calls(self.offer, patience_s=60.0, **options)
        made = HttpRunStore(calls, f"{worker[6:]}:1", TOOLCHAIN, self.job_id)
        made.note(SearchPhase("search", 0, 40))
        return made

    def join(self, worker="tcp://10.0.0.2:1", **options):
        offer = self.make_offer(worker, helper_offers)
        calls = self.calls(offer, patience_s=60.0, **options)
        joined = HttpLeader(calls, f"{worker[6:]}:1", TOOLCHAIN, self.job_id)
        joined.offer = offer
        return joined

    def exchange(self, start=0, offered=(), back=(), late_s=60.0):
        return self.leader.helpers.exchange(start, offered, back, late_s)

    def stored(self):
        return SqlTrialStore(self.sessions, self.job_id).trials()


@pytest.fixture
def spread(sessions, offer, calls, submit):
    return Spread(sessions, offer, calls, submit)


def numbers(candidates):
    return [one.number for one in candidates]


def test_candidates_of_an_earlier_run_are_not_those_of_this_one(spread):
    assert set(spread.exchange(0, [candidate(1)]).out) == {1}
    with writing(spread.sessions) as session:
        session.execute(update(models.Candidate).values(epoch=models.Candidate.epoch - 1))
    assert set(spread.exchange(0).out) == set()


def test_what_a_helper_has_tried_is_stored_by_the_leader_and_counts_once(spread):
    helper = spread.join()
    spread.leader.trials.add(fakes.trial(0))
    assert spread.exchange(1).helpers == 1
    asked = [candidate(3), candidate(5)]
    assert set(spread.exchange(1, asked).out) == {3, 5}
    assert helper.help(None, 1) == asked[:1]
    assert helper.help(None, 1) == asked[:1], "the first answer may have been lost"
    assert helper.help(tried(asked[0]), 1) == asked[1:]
    assert len(spread.stored()) == 1, "the leader alone makes trials"
    for _ in "twice":
        found = spread.exchange(1)
        assert [(helped.number, helped.trial.number) for helped in found.helped] == [(3, 1)]
        assert set(found.out) == {5}
    assert found.helped[0].trial == replace(tried(asked[0]), number=1) == spread.stored()[1]
    spread.leader.trials.add(fakes.trial(2))
    helper.help(tried(asked[1]), 0)
    assert [one.trial.number for one in spread.exchange(2).helped] == [3]
    assert [trial.number for trial in spread.stored()] == [0, 1, 2, 3]


def test_each_candidate_goes_to_one_helper(spread):
    first, second = spread.join("tcp://10.0.0.2:1"), spread.join("tcp://10.0.0.3:1")
    spread.exchange(0, [candidate(number) for number in range(3)])
    assert numbers(first.help(None, 2)) == [0, 1]
    assert numbers(second.help(None, 2)) == [2]
    assert spread.exchange().helpers == 2
    for helper in (first, second):
        (asked, *_) = helper.help(None, 1)
        helper.help(tried(asked), 0)
    assert len({helped.place for helped in spread.exchange().helped}) == 2


def test_a_candidate_of_a_helper_that_is_gone_comes_back(spread, job):
    helper = spread.join()
    spread.exchange(0, [candidate(0)])
    (asked,) = helper.help(None, 1)
    with writing(spread.sessions) as session:
        offers.settle(session, offers.digest(helper.offer.token), "the worker was lost")
    assert not spread.exchange(0).out
    with pytest.raises(LeaseLostError):
        helper.help(tried(asked), 1)
    assert not spread.stored()
    assert (job(spread.job_id).state, job(spread.job_id).crashes) == ("running", 0)


def test_a_candidate_that_is_late_comes_back_and_counts_once(spread):
    helper = spread.join()
    spread.exchange(0, [candidate(0), candidate(1)])
    (asked, _) = helper.help(None, 2)
    with writing(spread.sessions) as session:
        moved = update(models.Candidate).where(models.Candidate.number == 0)
        session.execute(moved.values(taken_at=now() - timedelta(seconds=61)))
    assert set(spread.exchange(0).out) == {1}
    assert numbers(helper.help(tried(asked), 2)) == [1]
    assert not spread.exchange(0).helped and not spread.stored()


def test_an_answer_for_another_schedule_is_refused(spread):
    helper = spread.join()
    spread.exchange(0, [candidate(0)])
    (asked,) = helper.help(None, 1)
    with pytest.raises(LeaseLostError, match="candidate 0 of job"):
        helper.help(replace(tried(asked), schedule=fakes.schedule(7)), 1)


def test_the_tokens_of_leader_and_helper_allow_nothing_of_each_other(spread, post):
    failed = {"number": 0, "steps": [], "params": {}, "state": "failed", "origin": "tpe",
              "failure": "crash", "samples": []}  # fmt: skip
    owner = {"owner": "x", "toolchain": TOOLCHAIN}
    helper, leader = spread.join().offer, spread.offer
    for offer, path, body in (
        (helper, "begin", owner),
        (helper, "trials", {"epoch": 1, "trial": failed}),
        (helper, "candidates", {"epoch": 1, "start": 0, "offered": [], "back": [], "late_s": 1.0}),
        (helper, "phase", {"epoch": 1, "name": "finals", "done": 0, "total": 0}),
        (helper, "failed", {"epoch": 1, "message": ""}),
        (helper, "release", {"epoch": 1}),
        (leader, "join", owner),
        (leader, "help", {"epoch": 1, "answer": None, "wants": 1}),
    ):
        assert post(offer, path, body).status_code == 401, path


@pytest.mark.full
def test_a_shared_search_outlasts_lost_answers(
    sessions, machine, client, offer, calls, submit, monkeypatch
):
    """A leader and two helpers, each behind a connection that loses two answers of three."""
    monkeypatch.setattr(distributed, "LOOK_S", 0.0)
    monkeypatch.setattr("tilewise.service.runs.http._FIRST_PAUSE_S", 0.01)
    spread = Spread(sessions, offer, calls, submit, seed=3)
    with writing(sessions) as session:
        offers.settle(session, offers.digest(spread.offer.token), None)
    keeper = spread.lead("tcp://10.0.0.9:1", transport=Flaky(client._transport))
    problem, target = parse_problem(PROBLEM), resolve(machine.target)
    request = keeper.assignment.request
    runners, counts = [FakeRunner() for _ in "abc"], []

    def run_worker(leader, runner):
        work = problem, target, request, leader
        counts.append(distributed.run_worker(*work, make_runner=lambda *_: runner))

    threads = []
    for runner in runners[1:]:
        joined = spread.join(f"tcp://10.0.1.{len(threads)}:1", transport=Flaky(client._transport))
        threads.append(threading.Thread(target=run_worker, args=(joined, runner)))
        threads[-1].start()
    result = tune(
        problem, target, request, keeper.trials,
        make_runner=lambda *_: runners[0], helpers=keeper.helpers,
        on_phase=keeper.note,
        before_final=lambda *_: keeper.note(SearchPhase("proof", 0, 1)),
    )  # fmt: skip
    for thread in threads:
        thread.join(60)
    stored = spread.stored()
    assert result.complete and len(stored) == len(result.trials) == 40
    assert sorted(trial.number for trial in stored) == list(range(40))
    timed = [found for runner in runners for found in runner.hashes]
    assert len(timed) == len(set(timed)) == 40 and all(runner.hashes for runner in runners)
    assert sum(counts) == len(runners[1].hashes) + len(runners[2].hashes)
