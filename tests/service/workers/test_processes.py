from collections import Counter

import pytest

from tests.service.conftest import KEY, PROBLEM
from tests.service.processes import ServiceProcess, wait_until
from tilewise.service.db import make_engine, make_sessions
from tilewise.service.jobs.trial_store import SqlTrialStore

TRIALS = 30


@pytest.fixture
def start(tmp_path):
    """Starts the service on a database that does not exist at first; ends it after the test."""
    url, log, started = f"sqlite:///{tmp_path / 'tilewise.db'}", tmp_path / "timed.log", []

    def make(tuner="slow_tune"):
        started.append(ServiceProcess(url, f"tests.service.fakes:{tuner}", log))
        return started[-1]

    make.log, make.sessions = log, make_sessions(make_engine(url))
    yield make
    for service in started:
        service.kill()


def begin(service, trials):
    answer = service.client.post("/v1/jobs", json={"problem": PROBLEM, "trials": trials})
    return answer.json()["id"]


def look(service, job_id):
    found = service.client.get(f"/v1/jobs/{job_id}").json()
    return found["state"], found["trials"]["timed"]


@pytest.mark.full
def test_a_job_goes_on_after_kill_9(start):
    service = start()
    job_id = begin(service, TRIALS)
    wait_until(lambda: look(service, job_id)[1] >= 5)
    workers = service.workers()
    service.kill()
    wait_until(lambda: not any(worker.is_running() for worker in workers))
    finished = SqlTrialStore(start.sessions, job_id).trials()
    assert 5 <= len(finished) < TRIALS
    service = start()
    assert begin(service, TRIALS) == job_id
    wait_until(lambda: look(service, job_id)[0] == "done")
    stored = SqlTrialStore(start.sessions, job_id).trials()
    assert stored[: len(finished)] == finished, "no finished trial is lost"
    assert [trial.number for trial in stored] == list(range(TRIALS))
    times = Counter(int(line.split()[1]) for line in start.log.read_text().splitlines())
    assert all(times[trial.number] == 1 for trial in finished), "none is timed again"
    # Only the trial that the kill fell into may have been begun twice.
    assert sum(times.values()) - TRIALS <= 1
    assert service.client.get(f"/v1/schedules/{KEY}/script").status_code == 200


@pytest.mark.full
def test_a_stopped_service_gives_its_job_back(start):
    service = start()
    job_id = begin(service, 1000)
    wait_until(lambda: look(service, job_id)[1] >= 1)
    workers = service.workers()
    service.stop()
    assert not any(worker.is_running() for worker in workers)
    state, timed = look(start("hanging_tune"), job_id)
    assert state in ("queued", "running") and timed >= 1


@pytest.mark.full
def test_a_service_at_rest_is_small(start):
    service = start()
    wait_until(lambda: bool(service.client.get("/v1/targets").json()["targets"]))
    service.client.get("/docs")
    service.client.get("/openapi.json")
    assert service.memory < 150 * 2**20
    assert service.workers() == []
