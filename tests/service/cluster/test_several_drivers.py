from dataclasses import replace
from datetime import timedelta
from unittest.mock import Mock

from tests.service.cluster.conftest import FIRST, FOREIGN, HOUR, SECOND, problems
from tilewise.service.db import models, writing
from tilewise.service.db.base import now
from tilewise.service.errors import OutageError
from tilewise.service.host.process_identity import Owner
from tilewise.service.jobs import queue
from tilewise.service.runs import offers


def test_two_drivers_give_no_job_and_no_worker_twice(driver, cluster, submit, stored_offers):
    first, second = map(submit, problems(2))
    cluster.join(FIRST)
    one, other = driver("one:1:1"), driver("other:1:1")
    one.tick()
    other.tick()
    assert [task.offer.job_id for task in cluster.tasks] == [first]
    cluster.join(SECOND)
    other.tick()
    one.tick()
    assert [task.offer.job_id for task in cluster.tasks] == [first, second]
    assert {row.driver for row in stored_offers()} == {"one:1:1", "other:1:1"}


def test_frozen_drivers_write_nothing(driver, cluster, submit, begin, job, sessions, stored_offers):
    """The second takes its job over; the first then finds its offer gone, and changes nothing."""
    job_id = submit()
    cluster.join(FIRST, SECOND)
    frozen, other = driver("frozen:1:1"), driver("other:1:1")
    frozen.tick()
    stale = begin(cluster.tasks[0])
    other.tick()
    assert len(cluster.tasks) == 1, "it shows itself"
    with writing(sessions) as session:
        session.query(models.Offer).one().seen_at = now() - timedelta(seconds=16)
    other.tick()
    assert len(cluster.tasks) == 2
    held = begin(cluster.tasks[1])
    cluster.tasks[0].end = "killed"
    frozen.tick()
    assert (job(job_id).epoch, job(job_id).crashes) == (held.epoch, 0) == (stale.epoch + 1, 0)
    frozen.stop()
    assert job(job_id).state == "running" and len(stored_offers()) == 1


def test_an_outage_costs_no_job(driver, cluster, submit, sessions, monkeypatch, stored_offers):
    submit()
    cluster.join(FIRST)
    silenced, other = driver("silenced:1:1"), driver("other:1:1")
    silenced.tick()
    with writing(sessions) as session:  # the outage took longer than a driver may be silent
        session.query(models.Offer).one().seen_at = now() - timedelta(seconds=60)
    with monkeypatch.context() as away:
        away.setattr(offers, "abandoned", Mock(side_effect=OutageError("the database is away")))
        other.tick()
    other.tick()
    assert [row.driver for row in stored_offers()] == ["silenced:1:1"]
    other._spares_until_s = 0.0
    other.tick()
    assert [row.driver for row in stored_offers()] == ["other:1:1"], "it stayed silent"


def test_a_dead_driver_of_this_host_is_taken_over_at_once(driver, cluster, submit, begin, job):
    job_id = submit()
    cluster.join(FIRST)
    gone = driver(str(replace(Owner.here(), pid=99999999)))
    gone.tick()
    begin(cluster.tasks[0])
    driver().tick()
    assert [task.offer.job_id for task in cluster.tasks] == [job_id, job_id]
    assert job(job_id).state == "queued" and job(job_id).crashes == 0


def test_a_job_that_nobody_serves_fails(driver, cluster, submit, job, sessions, client):
    job_id = submit()
    cluster.join(FIRST, targets=(FOREIGN,))
    made = driver()
    made.tick()
    since = job(job_id).unserved_since
    shown = client.get(f"/v1/jobs/{job_id}").json()
    assert shown["state"] == "queued" and shown["unserved_since"] is not None
    made.tick()
    assert job(job_id).unserved_since == since
    with writing(sessions) as session:
        queue.get(session, job_id).unserved_since -= 2 * HOUR
    driver().tick()
    assert job(job_id).state == "queued", "that driver has just started"
    made._began -= 2 * HOUR
    made.tick()
    assert job(job_id).state == "failed"
    assert job(job_id).error.startswith(f"no live worker has served {cluster.machine.target}")
    assert "for 3600 s; start one" in job(job_id).error
