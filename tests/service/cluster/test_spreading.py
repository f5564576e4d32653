from datetime import timedelta

import pytest

from tests.service.cluster.conftest import FIRST, FOREIGN, SECOND, problems
from tilewise.search.progress import SearchPhase
from tilewise.service.db import models, writing
from tilewise.service.db.base import now
from tilewise.service.jobs.events import note_phase

THIRD, FOURTH = "tcp://10.0.0.4:4000", "tcp://10.0.0.5:4000"


@pytest.fixture
def helped(driver, cluster, submit, begin, sessions):
    """A job that one worker searches for, and the driver; of others, those that join help it."""

    def make(spread=3, others=(SECOND, THIRD, FOURTH), phase="search"):
        made, job_id = driver(), submit(trials=50, spread=spread)
        cluster.join(FIRST)
        made.tick()
        held = begin(cluster.tasks[0])
        note_phase(sessions, held, SearchPhase(phase, 0, 50))
        cluster.join(*others)
        made.tick()
        return made, job_id, held

    return make


def helpers(cluster):
    return [task.offer.worker for task in cluster.tasks if task.offer.role == "helper"]


def test_as_many_workers_help_as_the_job_may_spread_over(helped, cluster):
    made, job_id, _ = helped(spread=3)
    made.tick()
    assert helpers(cluster) == [SECOND, THIRD]
    assert {task.offer.job_id for task in cluster.tasks} == {job_id}


@pytest.mark.parametrize("phase", ["proof", "finals"])
def test_nobody_helps_once_the_search_is_over(helped, cluster, phase):
    helped(phase=phase)
    assert not helpers(cluster)


def test_a_worker_of_another_target_or_other_compilers_does_not_help(helped, cluster):
    made, *_ = helped(others=())
    cluster.join(SECOND, targets=(FOREIGN,))
    cluster.join(THIRD, toolchain="another")
    made.tick()
    assert not helpers(cluster)


def test_a_job_that_waits_comes_before_help_for_another(helped, cluster, submit):
    made, *_ = helped(others=())
    waits = submit(problems(1)[0])
    cluster.join(SECOND, THIRD)
    made.tick()
    made.tick()
    assert [task.offer.job_id for task in cluster.tasks if task.offer.worker == SECOND] == [waits]
    assert helpers(cluster) == [THIRD]


def test_a_helper_is_recalled_for_each_job_that_waits(helped, cluster, submit, stored_offers):
    made, *_ = helped(spread=3, others=(SECOND, THIRD))
    waits = submit(problems(1)[0])
    made.tick()
    made.tick()
    recalled = [row.worker for row in stored_offers("helper") if row.is_recalled]
    assert recalled == [THIRD], "one job waits, so one worker is needed"
    cluster.tasks[-1].end = "ended"  # its worker was told
    made.tick()
    assert [task.offer.job_id for task in cluster.tasks if task.offer.worker == THIRD][-1] == waits
    assert [row.worker for row in stored_offers("helper")] == [SECOND]


def test_a_helper_that_dies_costs_the_job_nothing_and_is_replaced(helped, cluster, job):
    made, job_id, held = helped(spread=2, others=(SECOND, THIRD))
    assert helpers(cluster) == [SECOND]
    cluster.tasks[-1].end = "killed"
    made.tick()
    assert (job(job_id).state, job(job_id).crashes, job(job_id).epoch) == ("running", 0, held.epoch)
    assert helpers(cluster) == [SECOND, THIRD]


def test_two_drivers_give_a_job_no_more_help_than_it_wants(helped, cluster, driver):
    made, *_ = helped(spread=3, others=(SECOND,))
    other = driver("other:1:1")
    cluster.join(THIRD, FOURTH)
    other.tick()
    made.tick()
    assert len(helpers(cluster)) == 2


def test_helpers_of_a_dead_driver_are_withdrawn(helped, driver, sessions, job, stored_offers):
    _, job_id, _ = helped(spread=2, others=(SECOND,))
    with writing(sessions) as session:
        late = now() - timedelta(seconds=16)
        session.query(models.Offer).filter_by(role="helper").update({"seen_at": late})
    driver("other:1:1")._take_over()
    assert not stored_offers("helper") and job(job_id).state == "running"
