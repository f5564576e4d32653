from dataclasses import replace

import httpx
import pytest

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.runs import simulated
from tilewise.kernels.problem import parse_problem
from tilewise.search.progress import SearchPhase
from tilewise.search.records import rescaled
from tilewise.service.db import reading, writing
from tilewise.service.errors import LeaseLostError
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import queue
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.results.schedules import find_schedule
from tilewise.service.runs import offers
from tilewise.service.runs.http import HttpKeeper, RunCalls
from tilewise.service.workers.job_run import run_job

DRIVER, WORKER = "driver-host:1:1", "tcp://10.0.0.2:4000"
OWNER = "worker-host:7:7"


@pytest.fixture
def offer(sessions, machine):
    def make(worker=WORKER):
        with writing(sessions) as session:
            made = offers.make(session, worker, machine.targets, TOOLCHAIN, DRIVER)
        assert made is not None
        return made

    return make


@pytest.fixture
def calls(client):
    def make(offer, token=None, **options):
        given = {"transport": client._transport, "patience_s": 1.0, **options}
        return RunCalls("http://testserver", offer.job_id, token or offer.token, **given)

    return make


@pytest.fixture
def begin(calls):
    def make(offer, owner=OWNER, toolchain=TOOLCHAIN):
        return HttpKeeper(calls(offer), owner, toolchain, offer.job_id)

    return make


def of_worker(machine):
    return replace(machine, host="worker-host")


def told(trials):
    return [replace(trial, compile_s=0.0, pace=None) for trial in trials]


def test_the_trials_of_one_seed_are_the_same_as_with_the_database(
    submit, run, offer, begin, sessions, machine
):
    """The second job must not go on from the first, so it is for cold caches."""
    request = {"trials": 24, "seed": 5}
    here, there = submit(**request), None
    assert run(here, tuner=simulated.tune).state == "done"
    found = SqlTrialStore(sessions, here).trials()
    with writing(sessions) as session:  # as if it had never been
        for name in ("script_proofs", "scripts", "schedules", "trials", "jobs"):
            session.connection().exec_driver_sql(f"DELETE FROM {name}")
    there = submit(**request)
    ended = run_job(
        begin(offer()), tuner=simulated.tune, prover=fakes.prove, machine=of_worker(machine)
    )
    assert ended.state == "done"
    assert told(SqlTrialStore(sessions, there).trials()) == told(found) and len(found) == 24


def test_what_was_found_is_stored_whole(submit, run, offer, begin, sessions, machine, job):
    def stored(job_id, peers):
        with reading(sessions) as session:
            row = find_schedule(session, parse_problem(PROBLEM), machine.target, TOOLCHAIN)
            assert row.job_id == job_id and (row.peers is not None) == peers
            return row.hash, row.gflops, row.measured, row.scratch_bytes, row.peak_gflops

    first = submit()
    run(first)
    found = stored(first, peers=False)
    second = submit(trials=4, peers=True)
    keeper = begin(offer())
    assert job(second).state == "running" and job(second).host == "worker-host"
    ended = run_job(keeper, tuner=fakes.tune, prover=fakes.prove, machine=of_worker(machine))
    assert ended.state == "done"
    assert stored(second, peers=True) == found
    assert job(second).phase == "finals" and job(second).complete


def test_what_is_said_twice_counts_once(submit, offer, begin, sessions, machine, job):
    job_id = submit()
    given = offer()
    first, again = begin(given), begin(given)
    assert first.epoch == again.epoch == job(job_id).epoch == 1
    first.trials.add(fakes.trial(0))
    again.trials.add(fakes.trial(0))
    with pytest.raises(LeaseLostError, match="has another trial 0 already"):
        again.trials.add(fakes.trial(0, gflops=1.0).__class__(**{
            **vars(fakes.trial(0)), "samples": (1.0,)}))  # fmt: skip
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
    assert stored[0].pace == pytest.approx(fakes.trial(0).pace / 0.4)


def test_only_one_process_begins_with_a_token(submit, offer, begin):
    submit()
    given = offer()
    begin(given)
    with pytest.raises(LeaseLostError, match="was begun with this token already"):
        begin(given, owner="elsewhere:8:8")


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


def test_a_cancelled_run_is_told_to_stop(submit, offer, begin, calls, sessions):
    job_id = submit()
    given = offer()
    asks = calls(given)
    assert asks.goes_on()
    keeper = begin(given)
    assert asks.goes_on()
    with writing(sessions) as session:
        queue.cancel(session, job_id)
    assert asks.goes_on() is False
    with keeper.beating() as should_stop:
        keeper.trials.add(fakes.trial(0))  # which was under way
        assert should_stop()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("trials", {"epoch": 1, "trial": {"number": -1}}),
        ("trials", {"epoch": 1}),
        ("phase", {"epoch": 1, "name": "holiday", "done": 0, "total": 0}),
        ("done", {"epoch": 1, "best": {}}),
    ],
)
def test_nonsense_is_refused_by_its_field(submit, offer, begin, client, path, body):
    job_id = submit()
    given = offer()
    begin(given)
    headers = {"Authorization": f"Bearer {given.token}"}
    answer = client.post(f"/v1/runs/{job_id}/{path}", json=body, headers=headers)
    assert answer.status_code == 422 and answer.json()["errors"]


def test_a_trial_that_is_none_is_refused(submit, offer, begin, calls):
    submit()
    given = offer()
    begin(given)
    for broken in (
        replace(fakes.trial(0), measurement=None),
        replace(fakes.trial(0), pace=-1.0),
    ):
        with pytest.raises(ValueError, match=r"without a speed|its pace"):
            HttpKeeper(calls(given), OWNER, TOOLCHAIN, given.job_id).trials.add(broken)


def test_a_token_opens_its_job_alone(submit, offer, client):
    first, second = submit(), submit(PROBLEM + ",bias")
    given = offer()
    assert given.job_id == first
    for path in (f"/v1/runs/{second}/begin", f"/v1/runs/{second}/alive"):
        body = {"owner": OWNER, "toolchain": TOOLCHAIN}
        headers = {"Authorization": f"Bearer {given.token}"}
        answer = client.post(path, json=body, headers=headers)
        assert answer.status_code == 401 and f"job {second}" in answer.json()["detail"]
    assert client.post("/v1/jobs", json={}, headers=headers).status_code == 401
    for wrong in ({}, {"Authorization": "Bearer twr_nothing"}):
        answer = client.post(f"/v1/runs/{first}/alive", headers=wrong)
        assert answer.status_code == 401 and "token of an offer" in answer.json()["detail"]


def test_crashes_fail_a_job_that_gets_nowhere(submit, offer, begin, client, sessions, job):
    job_id = submit()

    def crash(trial=None):
        given = offer()
        keeper = begin(given)
        if trial is not None:
            keeper.trials.add(trial)
        headers = {"Authorization": f"Bearer {given.token}"}
        for _ in "twice":
            why = {"why": "signal SIGSEGV"}
            client.post(f"/v1/runs/{job_id}/crashed", json=why, headers=headers)
        with writing(sessions) as session:
            offers.settle(session, offers.digest(given.token), "counted already")

    crash()
    crash()
    crash(fakes.trial(0))
    assert (job(job_id).state, job(job_id).crashes) == ("queued", 1), "a trial begins anew"
    crash()
    crash()
    assert job(job_id).error == "the worker died 3 times; the last time: signal SIGSEGV"


class Flaky(httpx.BaseTransport):
    """Loses every second answer, or asks to come again."""

    def __init__(self, inner):
        self.inner, self.calls = inner, 0

    def handle_request(self, request):
        self.calls += 1
        answer = self.inner.handle_request(request)
        if self.calls % 3 == 1:
            raise httpx.ReadTimeout("the answer is lost")
        return httpx.Response(503, json={"detail": "busy"}) if self.calls % 3 == 2 else answer


@pytest.mark.full
def test_a_run_outlasts_lost_answers(submit, offer, calls, client, sessions, machine):
    job_id = submit(trials=5)
    given = offer()
    flaky = Flaky(client._transport)
    keeper = HttpKeeper(calls(given, transport=flaky, patience_s=60.0), me(), TOOLCHAIN, job_id)
    keeper.note(SearchPhase("search", 0, 5))
    assert run_job(keeper, tuner=fakes.tune, prover=fakes.prove, machine=machine).state == "done"
    assert [t.number for t in SqlTrialStore(sessions, job_id).trials()] == list(range(5))
    assert flaky.calls > 20
