from dataclasses import replace

import httpx
import pytest

from tests.search.engine.fakes import FakeRunner
from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN, stored_best
from tests.service.runs.conftest import OWNER, Flaky
from tilewise.search.engine import tune as engine
from tilewise.search.progress import SearchPhase
from tilewise.search.records import rescaled
from tilewise.service.db import reading, writing
from tilewise.service.errors import LeaseLostError, ServiceError, UnreachableError
from tilewise.service.jobs import queue
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.runs import offers
from tilewise.service.workers.job_run import run_job


def simulated(*given, **hooks):
    """The search itself on simulated timings, which depend on the schedule alone."""
    return engine.tune(*given, make_runner=lambda *_: FakeRunner(), **hooks)


@pytest.fixture
def run_there(machine):
    """Runs a search as the worker of another machine does."""

    def run(keeper, tuner=fakes.tune):
        there = replace(machine, host="worker-host")
        ended = run_job(keeper, tuner=tuner, prover=fakes.prove, machine=there)
        assert ended.state == "done"

    return run


def test_trials_of_a_seed_are_those_of_a_local_run(submit, run, offer, begin, sessions, run_there):
    def trials(job_id):
        found = SqlTrialStore(sessions, job_id).trials()
        return [replace(trial, compile_s=0.0, speed_factor=None) for trial in found]

    request = {"trials": 24, "seed": 5}
    here = submit(**request)
    run(here, tuner=simulated)
    found = trials(here)
    with writing(sessions) as session:  # the second job must not go on from the first
        for name in ("script_proofs", "scripts", "schedules", "trials", "jobs"):
            session.connection().exec_driver_sql(f"DELETE FROM {name}")
    there = submit(**request)
    run_there(begin(offer()), tuner=simulated)
    assert trials(there) == found and len(found) == 24


def test_the_whole_result_is_stored(submit, run, offer, begin, sessions, machine, job, run_there):
    def stored(job_id, peers):
        with reading(sessions) as session:
            row = stored_best(session, machine)
            assert row.job_id == job_id and (row.peers is not None) == peers
            return row.hash, row.gflops, row.measured, row.scratch_bytes, row.peak_gflops

    first = submit()
    run(first)
    found = stored(first, peers=False)
    second = submit(trials=4, peers=True)
    keeper = begin(offer())
    assert job(second).state == "running" and job(second).host == "worker-host"
    run_there(keeper)
    assert stored(second, peers=True) == found
    assert job(second).phase == "finals" and job(second).complete


def test_repeated_calls_count_once_and_one_process_begins(submit, offer, begin, sessions, job):
    job_id = submit()
    given = offer()
    first, again = begin(given), begin(given)
    with pytest.raises(LeaseLostError, match="was begun with this token already"):
        begin(given, owner="elsewhere:8:8")
    assert first.epoch == again.epoch == job(job_id).epoch == 1
    first.trials.add(fakes.trial(0))
    again.trials.add(fakes.trial(0))
    with pytest.raises(LeaseLostError, match="has another trial 0 already"):
        again.trials.add(replace(fakes.trial(0), samples=(1.0,)))
    assert len(SqlTrialStore(sessions, job_id).trials()) == 1
    assert first.failed("no luck") and again.failed("no luck")
    assert job(job_id).error == "no luck"


def test_speeds_and_paces_of_stored_trials_are_corrected(submit, offer, begin, sessions, job):
    job_id = submit()
    keeper = begin(offer())
    for number in range(3):
        keeper.trials.add(fakes.trial(number))
    right = [rescaled(fakes.trial(number), 0.4) for number in (0, 2)]
    for _ in range(2):  # the answer may be lost
        keeper.trials.correct(right)
    stored = SqlTrialStore(sessions, job_id).trials()
    assert stored == [right[0], fakes.trial(1), right[1]]
    assert keeper.trials.trials() == stored
    assert stored[0].measurement.gflops == pytest.approx(fakes.trial(0).measurement.gflops / 0.4)
    assert stored[0].speed_factor == pytest.approx(fakes.trial(0).speed_factor / 0.4)


def test_a_new_offer_shuts_the_old_run_out(submit, offer, begin, sessions, job):
    job_id = submit()
    old = offer()
    woken = begin(old)
    woken.trials.add(fakes.trial(0))
    with writing(sessions) as session:
        offers.settle(session, offers.digest(old.token), None)
    assert job(job_id).state == "queued"
    keeper = begin(offer("tcp://10.0.0.3:4000"))
    with pytest.raises(LeaseLostError, match=r"show the token|not any more"):
        woken.trials.add(fakes.trial(1))
    assert not woken.failed("too late") and keeper.epoch == 2
    assert [trial.number for trial in keeper.trials.trials()] == [0]


def test_a_cancelled_run_is_told_to_stop(submit, offer, begin, calls, sessions, client):
    job_id, given = submit(), offer()
    asks, flaky = calls(given), calls(given, transport=Flaky(client._transport))
    assert [flaky.goes_on() for _ in range(3)] == [None, None, True] and asks.goes_on()
    keeper = begin(given)
    assert asks.goes_on()
    with writing(sessions) as session:
        queue.cancel(session, job_id)
    assert asks.goes_on() is False
    with keeper.beating() as should_stop:
        keeper.trials.add(fakes.trial(0))  # which was under way
        assert should_stop()


@pytest.mark.parametrize(("status", "kind", "error"), [
    (413, "text/html", ServiceError), (302, "text/html", UnreachableError),
    (403, "application/problem+json; charset=utf-8", LeaseLostError),
])  # fmt: skip
def test_refusals_of_the_service_and_of_a_proxy(submit, offer, calls, status, kind, error):
    submit()
    answer = httpx.Response(status, headers={"Content-Type": kind})
    refused = calls(offer(), transport=httpx.MockTransport(lambda _: answer), patience_s=0)
    with pytest.raises(ServiceError) as caught:
        refused.get_bytes("/module")
    assert caught.type is error


def test_a_token_opens_its_job_alone(submit, offer, client, post):
    first, second = submit(), submit(PROBLEM + ",bias")
    given = offer()
    assert given.job_id == first
    for path in ("begin", "alive"):
        answer = post(given, path, {"owner": OWNER, "toolchain": TOOLCHAIN}, job_id=second)
        assert answer.status_code == 401 and f"job {second}" in answer.json()["detail"]
    headers = {"Authorization": f"Bearer {given.token}"}
    assert client.post("/v1/jobs", json={}, headers=headers).status_code == 401
    for wrong in ({}, {"Authorization": "Bearer twr_nothing"}):
        answer = client.post(f"/v1/runs/{first}/alive", headers=wrong)
        assert answer.status_code == 401 and "token of an offer" in answer.json()["detail"]


def test_crashes_fail_a_job_that_gets_nowhere(submit, offer, begin, post, sessions, job):
    job_id = submit()

    def crash(trial=None):
        given = offer()
        keeper = begin(given)
        if trial is not None:
            keeper.trials.add(trial)
        for _ in "twice":
            post(given, "crashed", {"why": "signal SIGSEGV"})
        with writing(sessions) as session:
            offers.settle(session, offers.digest(given.token), "counted already")

    crash()
    crash()
    crash(fakes.trial(0))
    assert (job(job_id).state, job(job_id).crashes) == ("queued", 1), "a trial begins anew"
    crash()
    crash()
    assert job(job_id).error == "the worker died 3 times; the last time: signal SIGSEGV"


@pytest.mark.full
def test_a_run_outlasts_lost_answers(
    submit, offer, begin, client, sessions, run_there, monkeypatch
):
    monkeypatch.setattr("tilewise.service.runs.http._FIRST_PAUSE_S", 0.01)
    job_id = submit(trials=5)
    flaky = Flaky(client._transport)
    keeper = begin(offer(), transport=flaky, patience_s=60.0)
    keeper.note(SearchPhase("search", 0, 5))
    run_there(keeper)
    assert [t.number for t in SqlTrialStore(sessions, job_id).trials()] == list(range(5))
    assert flaky.calls > 20
