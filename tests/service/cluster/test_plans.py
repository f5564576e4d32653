from tests.service.cluster.conftest import FIRST, FOREIGN, SECOND
from tests.service.conftest import PROBLEM
from tilewise.service.cluster.driver import MOST_MISSED


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


def test_a_worker_of_another_target_makes_no_plan(driver, cluster, ready):
    cluster.join(FIRST, targets=(FOREIGN,))
    cluster.join(SECOND, toolchain="another")
    driver().tick()
    assert not cluster.tasks


def test_a_plan_whose_problems_are_searched_for_is_not_given(driver, cluster, plan):
    plan()
    cluster.join(FIRST)
    cluster.join(SECOND)
    driver().tick()
    assert [one.offer.kind for one in cluster.tasks] == ["tune"]


def test_a_worker_that_leaves_and_a_driver_that_stops_give_plans_back(
    driver, cluster, ready, look, stopped, begin
):
    made = driver()
    cluster.join(FIRST)
    made.tick()
    begin(cluster.tasks[0])
    assert look(ready).state == "running"
    del cluster.present[FIRST]
    for _ in range(MOST_MISSED + 1):
        made.tick()
    assert cluster.tasks[0].is_cancelled
    assert (look(ready).state, look(ready).crashes) == ("queued", 0)
    cluster.join(SECOND)
    made.tick()
    begin(cluster.tasks[1])
    made.run(stopped)
    assert cluster.tasks[1].is_cancelled and look(ready).state == "queued"


def test_of_two_drivers_one_gives_a_plan(driver, cluster, ready):
    cluster.join(FIRST)
    cluster.join(SECOND)
    driver("driver-host:1:1").tick()
    driver("driver-host:2:2").tick()
    assert len(cluster.tasks) == 1
