"""Winners of an earlier toolchain, timed again under the present one."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tilewise.search.engine.tune import tune
from tilewise.search.records import Measurement
from tilewise.search.verdicts import Verdict
from tilewise.service.db import models, reading, writing
from tilewise.service.jobs import queue
from tilewise.service.jobs.rechecks import OffPeak
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.results import regressions
from tilewise.service.results.trials import trials_for_same_work
from tilewise.service.settings import Settings
from tilewise.service.workers.retiming import Retiming

ALWAYS = OffPeak(0, 24, 60.0)
TRIALS = 8


@pytest.fixture
def stale(submit, run):
    """The number of the job of a result of another toolchain, of 17 GFLOP/s."""
    job_id = submit(toolchain="an earlier one", trials=TRIALS)
    assert run(job_id).state == "done"
    return job_id


@pytest.fixture
def ask(client):
    def post(**body):
        return client.post("/v1/jobs", json={"problem": PROBLEM, "kind": "recheck", **body})

    return post


def at_speed(gflops):
    """A search that tries nothing new, and finds its trials at one speed."""

    def search(*given, **hooks):
        found = fakes.tune(*given, **hooks)
        assert len(found.trials) == queue.FINALISTS
        speed = Measurement(gflops, (0.99 * gflops, 1.01 * gflops), 196.608 / gflops)
        return replace(found, best=replace(found.best, measurement=speed))

    return search


@pytest.mark.parametrize(("gflops", "verdict", "regressed"), [
    (12.0, "slower", 1), (17.0, "same", 0), (17.4, "undecided", 0), (20.0, "faster", 0),
])  # fmt: skip
def test_a_recheck_has_a_verdict(client, ask, stale, run, sessions, gflops, verdict, regressed):
    answer = ask()
    job = answer.json()
    assert (answer.status_code, job["kind"], job["verdict"]) == (202, "recheck", None)
    assert job["trials"] == {"asked": 4, "timed": 4, "pruned": 0, "failed": 0}
    assert ask().json()["id"] == job["id"]
    copies = SqlTrialStore(sessions, job["id"]).trials()
    assert [one.schedule for one in copies] == [fakes.schedule(n) for n in (7, 6, 5, 4)]
    assert {(one.speed_factor, one.origin) for one in copies} == {(None, "recheck")}
    listed = client.get("/v1/trials", params={"problem": PROBLEM}).json()["trials"]
    assert "recheck" not in {one["origin"] for one in listed}
    assert run(job["id"], tuner=at_speed(gflops)).state == "done"
    found = client.get(f"/v1/jobs/{job['id']}").json()
    assert (found["verdict"], found["kept"]) == (verdict, True)
    assert client.get(f"/v1/jobs/{stale}").json()["verdict"] is None
    stored = client.get("/v1/schedules", params={"problem": PROBLEM}).json()
    assert (stored["toolchain"], stored["best"]["grade"]) == (TOOLCHAIN, "proven")
    assert f"tilewise_regressed_problems {regressed}.0" in client.get("/metrics").text
    assert verdict in client.get("/jobs?kind=recheck", headers={"Accept": "text/html"}).text
    assert ask().status_code == 200, "a fresh result answers"
    with reading(sessions) as session:  # times of the earlier toolchain are none of this one
        assert not [*trials_for_same_work(session, session.get(models.Job, job["id"]), ("timed",))]
    assert ask(kind="tune", trials=6).json()["trials"]["timed"] == 0


def test_a_search_takes_the_place_of_a_recheck_that_waits(ask, stale, client, run):
    number = ask().json()["id"]
    job = client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 6}).json()
    assert (job["id"], job["kind"], job["trials"]["asked"]) == (number, "tune", 6)
    assert job["trials"]["timed"] == 0, "trials of the earlier toolchain count for nothing"
    assert run(number).state == "done"
    assert client.get(f"/v1/jobs/{number}").json()["best"]["gflops"] == 15.0


def test_what_cannot_be_rechecked_is_refused(ask, client, sessions, stale):
    assert ask(problem="matmul:m=1,n=2,k=3,dtype=f32").status_code == 404
    answer = ask(problem="matmul:m=1..8,n=2,k=3,dtype=f32")
    assert answer.status_code == 422 and "not rechecked" in answer.text
    gone = {"steps": [{"step": "of another version"}]}
    for change in (lambda trials: trials.update(gone), lambda trials: trials.delete()):
        with writing(sessions) as session:
            change(session.query(models.Trial))
        answer = ask()
        assert answer.status_code == 404 and "trials" in answer.text


def test_idle_workers_recheck_stale_results_once(sessions, machine, submit, run, stale):
    other = "matmul:m=64,n=48,k=64,dtype=f32"
    for toolchain in ("an earlier one", "one of a damaged row"):
        run(job_id := submit(other, toolchain=toolchain, trials=TRIALS))
    with writing(sessions) as session:
        session.query(models.Schedule).filter_by(job_id=job_id).update({"gflops": 1.0})
    kind = ((machine.target,), TOOLCHAIN)

    def queued(off_peak: OffPeak | None):
        Retiming(sessions, off_peak=off_peak).tick([kind])
        with reading(sessions) as session:
            job = session.scalar(select(models.Job).where(models.Job.state == "queued"))
            return job and (job.id, job.problem.canonical)

    assert queued(None) is None
    first, problem = queued(ALWAYS)
    assert problem == other, "the newest"
    assert run(first, tuner=at_speed(17.0)).state == "done"
    with writing(sessions) as session:
        session.get_one(models.Job, first).elapsed_s = 60.0
    assert queued(ALWAYS) is None, "the seconds of this day are spent"
    with writing(sessions) as session:
        session.get_one(models.Job, first).created_at -= timedelta(days=1)
    moment = datetime.now(UTC) + timedelta(hours=2)
    assert queued(replace(ALWAYS, begin=moment.hour, end=moment.hour + 1)) is None
    second, problem = queued(ALWAYS)
    assert problem == PROBLEM
    run(second, tuner=lambda *_, **__: fakes.TuneResult(None, (), 0.1, True, {}))
    assert queued(ALWAYS) is None, "one that failed is not tried again"
    with reading(sessions) as session:
        assert regressions.count_regressed(session, TOOLCHAIN) == 0


@pytest.mark.parametrize(("text", "inside", "outside"), [
    ("22-6", (22, 23, 0, 5), (6, 12, 21)), ("1-3", (1, 2), (0, 3)), ("0-24", (0, 23), ()),
])  # fmt: skip
def test_hours_of_the_day(text, inside, outside):
    off_peak = OffPeak.of(Settings(recheck_hours=text).recheck_hours, 1.0)
    day = {hour: off_peak.holds(datetime(2026, 1, 31, hour, tzinfo=UTC)) for hour in range(24)}
    assert all(day[hour] for hour in inside) and not any(day[hour] for hour in outside)


@pytest.mark.parametrize("text", ["22", "24-6", "a-b", "1-25", "-1-3"])
def test_hours_that_are_none(text):
    with pytest.raises(ValueError, match="two hours"):
        Settings(recheck_hours=text)


@pytest.mark.full
@pytest.mark.sqlite_only
def test_the_search_itself_times_nothing_but_the_finalists(client, ask, submit, run):
    job_id = submit(toolchain="an earlier one", trials=6)
    assert run(job_id, tuner=tune).state == "done"
    number = ask().json()["id"]
    assert run(number, tuner=tune).state == "done"
    found = client.get(f"/v1/jobs/{number}").json()
    assert found["trials"] == {"asked": 4, "timed": 4, "pruned": 0, "failed": 0}
    assert found["kept"] and found["verdict"] in tuple(Verdict)
    trials = client.get(f"/v1/jobs/{job_id}/trials").json()["trials"]
    assert found["best"]["hash"] in {one["hash"] for one in trials}
