import threading

import pytest

from tests.service import fakes
from tests.service.cluster.conftest import FIRST, FOREIGN, SECOND, problems
from tests.service.conftest import PROBLEM
from tilewise.service.cluster.driver import MOST_MISSED
from tilewise.service.db import writing
from tilewise.service.errors import LeaseLostError
from tilewise.service.jobs import queue
from tilewise.service.jobs.trial_store import SqlTrialStore


def test_each_free_worker_gets_one_job_the_oldest_first(driver, cluster, submit):
    first, second, third = map(submit, problems(3))
    cluster.join(FIRST, SECOND)
    made = driver()
    made.tick()
    made.tick()
    assert [task.offer.job_id for task in cluster.tasks] == [first, second]
    assert {task.offer.worker for task in cluster.tasks} == {FIRST, SECOND}
    cluster.tasks[1].end = "ended"
    made.tick()
    # That one never began, so it waits again, and is older than the third.
    assert cluster.tasks[2].offer.job_id == second and third


def test_a_worker_gets_nothing_of_another_target_or_other_compilers(driver, cluster, ready, submit):
    submit(f"{PROBLEM},batch=2")
    cluster.join(FIRST, targets=(FOREIGN,))
    cluster.join(SECOND, toolchain="another")
    driver().tick()
    assert not cluster.tasks


def test_the_death_of_a_worker_counts_once_its_job_has_begun(driver, cluster, submit, begin, job):
    job_id, made = submit(), driver()
    cluster.join(FIRST)
    made.tick()
    cluster.tasks[0].end = "killed"
    made.tick()
    assert (job(job_id).state, job(job_id).crashes) == ("queued", 0), "it had not begun"
    cluster.join(SECOND)
    for count in (1, 2, 3):
        made._paused.clear()
        made.tick()
        begin(cluster.tasks[-1])
        cluster.tasks[-1].end = "killed"
        made.tick()
        assert (job(job_id).crashes, job(job_id).state == "failed") == (count, count == 3)
    assert job(job_id).error.startswith("the worker died 3 times; the last time: the worker tcp")


def test_a_worker_that_leaves_gives_its_job_back(running, cluster, job, sessions, stored_offers):
    made, job_id, held = running
    del cluster.present[FIRST]
    for _ in range(MOST_MISSED + 1):
        made.tick()
    assert cluster.tasks[0].is_cancelled and not stored_offers()
    assert (job(job_id).state, job(job_id).crashes) == ("queued", 0)
    with pytest.raises(LeaseLostError):
        SqlTrialStore(sessions, job_id, held).add(fakes.trial(0))


def test_a_scheduler_that_is_away_costs_no_running_job(running, cluster, job):
    made, job_id, _ = running
    cluster.is_away = True
    for _ in range(2 * MOST_MISSED):
        made.tick()
    assert job(job_id).state == "running" and not cluster.tasks[0].is_cancelled
    cluster.is_away = False
    made.tick()
    assert job(job_id).state == "running" and len(cluster.tasks) == 1


def test_a_driver_that_stops_gives_its_jobs_back(running, cluster, job):
    made, job_id, _ = running
    stopped = threading.Event()
    stopped.set()
    made.run(stopped)
    assert job(job_id).state == "queued" and job(job_id).crashes == 0
    assert cluster.is_closed and cluster.tasks[0].is_cancelled


def test_a_cancelled_job_keeps_no_worker(running, cluster, job, sessions, stored_offers):
    made, job_id, _ = running
    with writing(sessions) as session:
        queue.cancel(session, job_id)
    cluster.tasks[0].end = "ended"  # its worker was told
    made.tick()
    assert job(job_id).state == "cancelled" and not stored_offers()


def test_workers_are_shown_with_what_they_reach_until_they_leave(driver, cluster, client):
    made = driver()
    cluster.join(FIRST)
    cluster.join(SECOND, targets=(FOREIGN,))
    made.tick()
    shown = client.get("/v1/targets").json()
    assert FOREIGN in shown["targets"] and len(shown["workers"]) == 2
    assert shown["workers"][0]["peaks"] == {"f32": 100.0}
    del cluster.present[SECOND]
    made.tick()
    assert FOREIGN not in client.get("/v1/targets").json()["targets"]


def test_a_worker_is_given_a_plan_before_a_job(driver, cluster, ready, submit, look):
    waiting = submit(f"{PROBLEM},batch=2")
    cluster.join(FIRST)
    made = driver()
    made.tick()
    (task,) = cluster.tasks
    assert (task.offer.worker, task.offer.kind) == (FIRST, "model")
    made.tick()
    assert len(cluster.tasks) == 1, "the worker is busy"
    cluster.join(SECOND)
    made.tick()
    assert [one.offer.job_id for one in cluster.tasks] == [task.offer.job_id, waiting]


def test_a_plan_whose_problems_are_searched_for_is_not_given(driver, cluster, plan):
    plan()
    cluster.join(FIRST, SECOND)
    driver().tick()
    assert [one.offer.kind for one in cluster.tasks] == ["tune"]
