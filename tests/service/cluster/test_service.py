import subprocess
import sys

import pytest

from tests.service.cluster.conftest import FOREIGN
from tests.service.conftest import PROBLEM
from tests.service.processes import wait_until
from tilewise.service.cluster import driver_process
from tilewise.service.cluster.driver_process import DriverProcess
from tilewise.service.settings import Settings

SCHEDULER = "tcp://127.0.0.1:1"
SLEEP = "import time; time.sleep(600)"


def test_a_service_of_a_cluster_takes_jobs_for_other_processors(client_factory):
    client = client_factory(scheduler=SCHEDULER)
    asked = {"problem": PROBLEM, "target": FOREIGN}
    answer = client.post("/v1/jobs", json=asked)
    assert answer.status_code == 202 and answer.json()["target"] == FOREIGN
    large = {**asked, "problem": "matmul:m=1000000,n=1000000,k=8,dtype=f32"}
    assert client.post("/v1/jobs", json=large).status_code == 202, "its machine may be larger"
    assert client.post("/v1/jobs", json={**asked, "target": "gpu"}).status_code == 422


@pytest.fixture
def started(monkeypatch):
    """The children that stand in for drivers."""
    found = []

    def spawn(*_arguments, **_environment):
        child = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
        found.append(child)
        return child

    monkeypatch.setattr(driver_process, "start", spawn)
    monkeypatch.setattr(driver_process, "POLL_S", 0.02)
    monkeypatch.setattr(driver_process, "PAUSE_S", 0.02)
    return found


def test_a_driver_that_dies_is_started_again_and_ends_with_the_service(started):
    driver = DriverProcess(Settings(scheduler=SCHEDULER))
    driver.start()
    wait_until(lambda: started)
    started[0].kill()
    wait_until(lambda: len(started) == 2)
    assert driver.is_alive
    driver.stop()
    assert started[1].returncode is not None and not driver.is_alive and len(started) == 2
