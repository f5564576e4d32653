import subprocess
import sys
from unittest.mock import Mock

import pytest

from tests.service.cluster.conftest import FOREIGN
from tests.service.conftest import PROBLEM
from tests.service.processes import wait_until
from tilewise.service.cluster import driver_process, task
from tilewise.service.cluster.driver_process import DriverProcess
from tilewise.service.runs.process import UNREACHABLE
from tilewise.service.settings import Settings

SCHEDULER = "tcp://127.0.0.1:1"
SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def child():
    started = []

    def make(program=SLEEP):
        started.append(subprocess.Popen([sys.executable, "-c", program], start_new_session=True))
        return started[-1]

    make.started = started
    yield make
    for one in started:
        one.kill()
        one.wait()


@pytest.fixture
def watched(monkeypatch):
    """Watches a child, which the service lets go on, to its end; the crashes that it reports."""
    monkeypatch.setattr(task, "BEAT_S", 0.05)

    def watch(child, is_member=lambda: True):
        calls = Mock(**{"goes_on.return_value": True})
        task.watch(child, calls, is_member)
        return [(path, said.why) for (path, said, _), _ in calls.post.call_args_list]

    return watch


@pytest.mark.parametrize(
    ("program", "reasons"),
    [("", []), (f"raise SystemExit({UNREACHABLE})", []),
     ("raise SystemExit(3)", ["exit status 3; its log says more"]),
     ("import os; os.abort()", ["signal SIGABRT"])],
)  # fmt: skip
def test_the_death_of_a_child_is_told_with_its_reason(child, watched, program, reasons):
    assert watched(child(program)) == [("/crashed", reason) for reason in reasons]


def test_a_worker_that_leaves_its_cluster_ends_its_run(child, watched):
    running, answers = child(), iter((True, False))
    assert watched(running, lambda: next(answers)) == []
    assert running.returncode is not None


def test_a_driver_that_dies_is_started_again_and_ends_with_the_service(child, monkeypatch):
    monkeypatch.setattr(driver_process, "start", lambda *_arguments, **_environment: child())
    monkeypatch.setattr(driver_process, "POLL_S", 0.02)
    monkeypatch.setattr(driver_process, "PAUSE_S", 0.02)
    driver, started = DriverProcess(Settings(scheduler=SCHEDULER)), child.started
    driver.start()
    wait_until(lambda: started)
    started[0].kill()
    wait_until(lambda: len(started) == 2)
    assert driver.is_alive
    driver.stop()
    assert started[1].returncode is not None and not driver.is_alive and len(started) == 2


def test_a_service_of_a_cluster_takes_jobs_for_other_processors(client_factory):
    client = client_factory(scheduler=SCHEDULER)
    asked = {"problem": PROBLEM, "target": FOREIGN}
    answer = client.post("/v1/jobs", json=asked)
    assert answer.status_code == 202 and answer.json()["target"] == FOREIGN
    large = {**asked, "problem": "matmul:m=1000000,n=1000000,k=8,dtype=f32"}
    assert client.post("/v1/jobs", json=large).status_code == 202, "its machine may be larger"
    assert client.post("/v1/jobs", json={**asked, "target": "gpu"}).status_code == 422
