import signal
from contextlib import suppress
from datetime import timedelta

import psutil
import pytest

from tests.service.archive.stores import opened_store
from tests.service.cluster.farm import is_alive
from tests.service.processes import wait_until
from tests.service.surviving.conftest import TRIALS, problem
from tilewise.service.db import make_engine, models, writing


@pytest.mark.full
def test_two_pools_share_the_jobs_and_never_run_one(on_postgresql):
    services = on_postgresql
    asked = {m: services.ask(m) for m in (101, 102, 103, 104)}
    owners: set[str | None] = set()

    def have_all_ended():
        rows = [services.row(job_id) for job_id in asked.values()]
        owners.update(row.owner for row in rows)
        return all(row.state == "done" for row in rows)

    wait_until(have_all_ended)
    for m, job_id in asked.items():
        services.assert_whole(job_id, m)
    assert len(owners - {None}) == 2


@pytest.mark.full
def test_two_services_answer_as_one(on_postgresql):
    services = on_postgresql
    body = {"problem": problem(201), "trials": TRIALS}
    answers = [
        one.client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "once"})
        for one in services.started
    ]
    assert [answer.status_code for answer in answers] == [202, 202]
    (job_id,) = {answer.json()["id"] for answer in answers}
    wait_until(services.is_done(job_id))
    for one in services.started:
        assert one.client.get(f"/v1/jobs/{job_id}").json()["state"] == "done"
    services.assert_whole(job_id, 201)


@pytest.mark.full
def test_an_owner_that_was_stopped_and_wakes_writes_nothing(on_postgresql):
    services = on_postgresql
    job_id = services.ask(301)
    wait_until(services.has_timed(job_id))
    pid = int(services.row(job_id).owner.split(":")[1])
    services.started.sort(key=lambda one: one.process.pid == pid)  # the first one is asked
    stopped = services.started[-1]
    service, *workers = everybody = [stopped.process, *stopped.workers()]
    stop_between_transactions(services.url, everybody)
    seems_silent_for(services.url, job_id, timedelta(minutes=2))
    wait_until(lambda: services.row(job_id).epoch == 2)
    wait_until(services.has_timed(job_id, TRIALS - 2))
    send(reversed(everybody), signal.SIGCONT)
    wait_until(services.is_done(job_id))
    wait_until(lambda: not any(map(is_alive, workers)))
    found = services.client.get(f"/v1/jobs/{job_id}/trials").json()["trials"]
    assert [trial["number"] for trial in found] == list(range(TRIALS))
    job = services.row(job_id)
    assert (job.epoch, job.crashes, is_alive(service)) == (2, 0, True)
    # What was under way when its owner was stopped is all that was timed twice.
    assert TRIALS <= sum(services.timed(301).values()) <= TRIALS + 1


def send(processes, what):
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(what)


def stop_between_transactions(url, processes):
    """Stop processes; one that holds a lock would first have the server free it, in a minute."""
    engine = make_engine(url)
    held = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%'"

    def are_stopped():
        send(processes, signal.SIGSTOP)
        with engine.connect() as connection:
            is_held = connection.exec_driver_sql(held).scalar()
        send(processes if is_held else (), signal.SIGCONT)
        return not is_held

    wait_until(are_stopped)
    engine.dispose()


def seems_silent_for(url, job_id, time):
    with opened_store(url) as sessions, writing(sessions) as session:
        session.get_one(models.Job, job_id).heartbeat_at -= time
