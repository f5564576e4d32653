"""The command line as users meet it: arguments in; exit code, stdout and stderr out."""

import contextlib
import json
import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.service import fakes, processes
from tests.service.archive.stores import add_range, opened_store
from tests.short_timings import peaks
from tilewise import Client
from tilewise.backends import local, local_search, remote
from tilewise.cli import main
from tilewise.search.records import TuneRequest
from tilewise.service.app import create_app
from tilewise.service.db import schema
from tilewise.service.settings import Settings
from tilewise.service.workers.job_run import run_job

measured_briefly = peaks.measured_briefly


@dataclass(frozen=True)
class Ran:
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed as JSON, of a command that did not fail."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    def error(self, code: int = 2) -> str:
        """Return the one line of a command that failed and printed nothing else."""
        assert (self.code, self.out, self.err.count("\n")) == (code, "", 1), self
        return self.err


Cli = Callable[..., Ran]


def written(path: Path, content: object) -> str:
    """Write a text, or anything else as JSON, to a file; its path."""
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A command that serves sends the log of its process to stderr, which a test replaces."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def absent_databases_are_made_by_copying(migrated_sqlite, tmp_path_factory) -> Iterator[None]:
    """The migrations take longer than most commands; `tests.service.db` runs them from nothing."""
    made = tmp_path_factory.mktemp("made") / "empty.db"
    migrated_sqlite(made)
    migrate = schema.upgrade

    def upgrade(url: str) -> None:
        file = Path(url.removeprefix("sqlite:///"))
        if schema.is_absent(url) and os.access(file.parent, os.W_OK):
            shutil.copyfile(made, file)
        else:
            migrate(url)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "upgrade", upgrade)
        yield


@pytest.fixture
def database(tmp_path: Path) -> str:
    """URL of a database that does not exist yet."""
    return f"sqlite:///{tmp_path / 'results.db'}"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, database: str) -> Cli:
    """Run a command in this process against `database`."""
    monkeypatch.setenv("TILEWISE_DB", database)
    monkeypatch.delenv("TILEWISE_SERVER", raising=False)

    def run(*arguments: str) -> Ran:
        try:
            code = main(arguments)
        except SystemExit as left:
            code = int(left.code or 0)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


PROBLEM = "matmul:m=64,n=48,k=32,dtype=f32"


def search_by(
    patch: pytest.MonkeyPatch, tuner: Any = fakes.tune, prover: Any = fakes.prove
) -> list[dict[str, Any]]:
    """Replace the searches of this process; return the options of each that is run."""
    seen: list[dict[str, Any]] = []

    def run(keeper: Any, **options: Any) -> Any:
        seen.append(options)
        return run_job(keeper, tuner=tuner, prover=prover, **options)

    patch.setattr(local_search, "run_job", run)
    return seen


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches of this process find the schedules that the model likes best, and time none."""
    search_by(monkeypatch, fakes.direct_tune)


def store_result(
    database: str, patch: pytest.MonkeyPatch, problem: str = PROBLEM, tuner: Any = fakes.tune
) -> None:
    """Put a result into a database, which nobody timed."""
    search_by(patch, tuner)
    local.LocalBackend(database).tune(problem, "host", TuneRequest(4), lambda *_: None)


@pytest.fixture(scope="session")
def with_a_result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SQLite file of such a database."""
    file = tmp_path_factory.mktemp("tuned") / "results.db"
    with pytest.MonkeyPatch.context() as patch:
        store_result(f"sqlite:///{file}", patch)
    return file


@pytest.fixture
def tuned(with_a_result: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with a result, which nobody timed; other searches are faked as well."""
    search_by(monkeypatch)
    copied(with_a_result, database)
    return database


@pytest.fixture
def ranged(tuned: str) -> str:
    """The same database with a range, of schedules that serve all its sizes."""
    with opened_store(tuned) as sessions:
        add_range(sessions)
    return tuned


def copied(file: Path, database: str) -> None:
    """Copy an SQLite file, and what was written and is not in it yet."""
    of, into = sqlite3.connect(file), sqlite3.connect(database.removeprefix("sqlite:///"))
    with contextlib.closing(of), contextlib.closing(into):
        of.backup(into)


@pytest.fixture
def server(database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A service in this process, which the client reaches without a network."""
    with TestClient(create_app(Settings(db=database, allowed_hosts="testserver"), 0)) as answering:

        def forward(request: httpx.Request) -> httpx.Response:
            path, kind = request.url.raw_path.decode(), "Content-Type"
            headers = {kind: request.headers.get(kind, "")}
            answer = answering.request(
                request.method, path, content=request.content, headers=headers
            )
            headers = {kind: answer.headers[kind]}
            return httpx.Response(answer.status_code, headers=headers, content=answer.content)

        transport = httpx.MockTransport(forward)
        monkeypatch.setattr(remote, "Client", lambda url: Client(url, transport))
        yield "http://tilewise.test"


@contextlib.contextmanager
def serving(database: str, workers: int) -> Iterator[str]:
    """A service on a database, with workers that fake their searches; its URL."""
    arguments = (
        "--tuner=tests.service.fakes:tune",
        "--prover=tests.service.fakes:prove",
        "--planner=tests.service.plans.makers:make",
    )
    app = create_app(Settings(db=database), workers, worker_arguments=arguments)
    with processes.serving(app, log_level="warning") as port:
        url = f"http://127.0.0.1:{port}"
        processes.wait_until(
            lambda: not workers or bool(httpx.get(f"{url}/v1/targets").json()["targets"])
        )
        yield url


@pytest.fixture
def served(tuned: str) -> Iterator[str]:
    """A service on that database, with a worker."""
    with serving(tuned, 1) as url:
        yield url


@pytest.fixture
def served_as_stored(tuned: str) -> Iterator[str]:
    """A service on that database without a worker, whose start takes a second."""
    with serving(tuned, 0) as url:
        yield url
