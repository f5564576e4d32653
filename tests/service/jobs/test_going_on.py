import pytest

from tests.service import fakes
from tests.service.conftest import PROBLEM
from tilewise.service.db import models, reading, writing
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease, queue
from tilewise.service.jobs.lease import LEASE
from tilewise.service.jobs.trial_store import SqlTrialStore


def ended(sessions, job_id, trials):
    store = SqlTrialStore(sessions, job_id)
    for trial in trials:
        store.add(trial)
    with writing(sessions) as session:
        queue.cancel(session, job_id)


def numbers(sessions, job_id):
    with reading(sessions) as session:
        return [trial.number for trial in queue.trials_page(session, job_id)]


@pytest.mark.parametrize(
    ("first", "second", "seconds"),
    [(10, 50, 50.0), (50, 10, 50.0), (10, None, None), (None, 10, None)],
)
def test_a_waiting_job_takes_the_longer_time(job, submit, first, second, seconds):
    waiting = submit(seconds=first)
    assert submit(seconds=second) == waiting
    assert job(waiting).seconds == seconds


def test_a_job_goes_on_from_the_one_of_its_caches_that_came_furthest(sessions, submit, monkeypatch):
    with monkeypatch.context() as alone:
        alone.setattr(queue, "_inherit", lambda *_: None)
        for count in (1, 5, 2):
            ended(sessions, submit(trials=9, cache="cold"), [fakes.trial(n) for n in range(count)])
    assert numbers(sessions, submit()) == []
    assert numbers(sessions, submit(trials=4, cache="cold")) == [0, 1, 2, 3]


def test_the_best_so_far_was_timed_to_its_end(client, sessions, submit):
    job_id = submit()
    store = SqlTrialStore(sessions, job_id)
    store.add(fakes.replace(fakes.trial(0, gflops=900.0), state="pruned"))
    assert client.get(f"/v1/jobs/{job_id}").json()["best"] is None
    store.add(fakes.trial(1, gflops=5.0))
    assert client.get(f"/v1/jobs/{job_id}").json()["best"]["gflops"] == 5.0


def test_a_job_that_goes_on_keeps_the_moment_of_its_first_start(job, sessions, submit):
    job_id = submit()
    with writing(sessions) as session:
        held = lease.claim_one(session, job_id, me())
        queue.get(session, job_id).started_at -= LEASE
        session.flush()
        first = queue.get(session, job_id).started_at
        lease.release(session, held)
    assert job(job_id).finished_at is None, "it waits again"
    with writing(sessions) as session:
        lease.claim_one(session, job_id, me())
    assert job(job_id).started_at == first


def test_a_waiting_request_gets_its_result(client, sessions, submit, run, tuned, monkeypatch):
    """The job ends while the request waits; hot and cold results are stored."""
    feeds = client.app.state.services.feeds

    async def wait(source, _is_gone):
        run(source[1])

    monkeypatch.setattr(feeds, "wait_for_end", wait)
    body = {"problem": PROBLEM, "trials": 4, "cache": "cold", "wait": True}
    answer = client.post("/v1/jobs", json=body)
    assert (answer.status_code, answer.json()["cache"]) == (200, "cold")
    with reading(sessions) as session:
        assert session.query(models.Schedule).count() == 2
