"""Databases on the migrated schema, and clients of an application over them."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from tests.service import fakes
from tests.service.plan_rows import wanted
from tests.short_timings import peaks
from tilewise.kernels.problem import parse_problem
from tilewise.schema.base import Scope
from tilewise.search.records import TuneRequest
from tilewise.service.app import create_app
from tilewise.service.db import Sessions, make_engine, models, reading, session, tokens, writing
from tilewise.service.db.session import make_sessions
from tilewise.service.host.machine import MachineInfo, examine_here
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease, model_jobs, queue
from tilewise.service.jobs.queue import Submitter
from tilewise.service.results.schedules import find_schedule
from tilewise.service.results.stored import Lookup
from tilewise.service.runs.sql import SqlRunStore
from tilewise.service.settings import Settings
from tilewise.service.workers.job_run import JobOutcome, run_job

PROBLEM = "matmul:m=64,n=48,k=32,dtype=f32"
KEY = parse_problem(PROBLEM).key
OTHER = "matmul:m=8,n=8,k=8,dtype=f32"
TOOLCHAIN = "toolchain of the tests"
measured_briefly = peaks.measured_briefly


def settings_for(url: str, **others: Any) -> Settings:
    """Settings of an application that a `TestClient` may ask, whose streams end by themselves."""
    return Settings(**{"db": url, "stream_seconds": 0.2, "allowed_hosts": "testserver", **others})


def stored_best(session: Session, machine: MachineInfo) -> models.Schedule | None:
    """What is stored for `PROBLEM` on the machine."""
    return find_schedule(session, KEY, Lookup(machine.target, TOOLCHAIN))


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk() -> Iterator[None]:
    """Nobody cuts the power of this process: its commits to SQLite do not wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "SYNCHRONOUS", "NORMAL")
        yield


@pytest.fixture(scope="session")
def machine() -> MachineInfo:
    return examine_here()


# Tests of these packages and modules run on both databases,
ON_BOTH_DATABASES = (
    "tests.service.jobs.", "tests.service.plans.", "tests.service.api.plans.",
    "tests.service.cluster.test_several_drivers", "tests.service.dashboard.test_fleet",
    "tests.service.runs.test_candidates", "tests.service.db.test_features",
    "tests.service.db.test_sql_trials", "tests.service.api.test_access",
    "tests.service.api.events.test_http_events",
    *(f"tests.service.api.test_http_{name}"
      for name in ("jobs", "lookup", "networks", "schedules", "suites")),
)  # fmt: skip
# and those of these, which concern locks, moments and the order of rows, in `make test` too.
WHERE_DATABASES_DIFFER = (
    "tests.service.jobs.test_leases", "tests.service.cluster.test_several_drivers",
    "tests.service.db.test_sql_trials",
)  # fmt: skip


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test of `ON_BOTH_DATABASES` that has a database on an SQLite and a PostgreSQL."""
    if metafunc.definition.get_closest_marker("sqlite_only") is not None:
        return
    name = metafunc.module.__name__
    if "url" in metafunc.fixturenames and name.startswith(ON_BOTH_DATABASES):
        is_short = name.startswith(WHERE_DATABASES_DIFFER)
        marks = () if is_short else (pytest.mark.full,)
        other = pytest.param("postgresql", marks=marks)
        metafunc.parametrize("url", ["sqlite", other], indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database on the newest schema: an SQLite, unless the test runs on both."""
    if getattr(request, "param", "sqlite") == "postgresql":
        make: Callable[[], str] = request.getfixturevalue("migrated_postgresql")
        return make()
    file = tmp_path / "tilewise.db"
    if "tuned" in request.fixturenames:
        return f"sqlite:///{shutil.copyfile(request.getfixturevalue('tuned_once'), file)}"
    copy: Callable[[Path], str] = request.getfixturevalue("migrated_sqlite")
    return copy(file)


@pytest.fixture
def sessions(url: str) -> Iterator[Sessions]:
    engine = make_engine(url)
    yield make_sessions(engine)
    engine.dispose()


ClientFactory = Callable[..., TestClient]


@pytest.fixture
def client_factory(url: str, machine: MachineInfo) -> Iterator[ClientFactory]:
    """Starts an application, without workers, on the test's database or on another."""
    with ExitStack() as stack:

        def make(
            database: str = url, toolchain: str = TOOLCHAIN, on: MachineInfo = machine,
            raises: bool = True, **settings: Any,
        ) -> TestClient:  # fmt: skip
            app = create_app(settings_for(database, **settings), 0, machine=on, toolchain=toolchain)
            return stack.enter_context(TestClient(app, raise_server_exceptions=raises))

        yield make


@pytest.fixture
def client(client_factory: ClientFactory) -> TestClient:
    return client_factory()


@pytest.fixture
def make_token(sessions: Sessions) -> Callable[..., str]:
    """Creates a token and returns its text."""

    def make(name: str = "ci", scope: Scope = "read", expires: datetime | None = None) -> str:
        with writing(sessions) as session:
            return tokens.create(session, name, scope, expires)

    return make


def bearer(token: str) -> dict[str, str]:
    """The header that presents a token."""
    return {"Authorization": f"Bearer {token}"}


def _submit(
    sessions: Sessions, machine: MachineInfo, /, problem: str = PROBLEM, toolchain: str = TOOLCHAIN,
    **request: object,
) -> int:  # fmt: skip
    wanted = TuneRequest(**{"trials": 4, **request})
    with writing(sessions) as session:
        made = queue.create_or_join(
            session, parse_problem(problem), machine.target, wanted, toolchain
        )
        assert made.job is not None, "a stored schedule answers this"
        return made.job.id


@pytest.fixture
def submit(sessions: Sessions, machine: MachineInfo) -> Callable[..., int]:
    """Queues a job and gives its number."""
    return partial(_submit, sessions, machine)


def _run(sessions: Sessions, machine: MachineInfo, /, job_id: int, **parts: object) -> JobOutcome:
    with writing(sessions) as session:
        held = lease.claim_one(session, job_id, me())
    assert held is not None, "it has ended, or somebody runs it"
    given = {"tuner": fakes.tune, "prover": fakes.prove, "machine": machine}
    return run_job(SqlRunStore(sessions, held), **{**given, **parts})


@pytest.fixture
def run(sessions: Sessions, machine: MachineInfo) -> Callable[..., JobOutcome]:
    """Claims a job and runs it in this process, with the fakes unless told otherwise."""
    return partial(_run, sessions, machine)


@pytest.fixture(scope="session")
def tuned_once(tmp_path_factory, machine, migrated_sqlite) -> Path:
    """The file of an SQLite with a job that is done, and nothing else."""
    file: Path = tmp_path_factory.mktemp("tuned") / "tilewise.db"
    engine = make_engine(migrated_sqlite(file))
    of = make_sessions(engine), machine
    assert _run(*of, _submit(*of)).state == "done"
    engine.dispose()
    return file


@pytest.fixture
def tuned(url: str, submit: Callable[..., int], run: Callable[..., JobOutcome]) -> int:
    """The number of a job that is done; an SQLite has it from its start."""
    if not url.startswith("sqlite"):
        assert run(submit()).state == "done"
    return 1


@pytest.fixture
def job(sessions: Sessions) -> Callable[[int], models.Job]:
    """Reads a job as it is now."""

    def read(job_id: int) -> models.Job:
        with reading(sessions) as session:
            return queue.get(session, job_id)

    return read


@pytest.fixture
def plan(sessions: Sessions, machine: MachineInfo) -> Callable[..., int]:
    """Asks for a plan of one matmul, and gives its number."""

    def make(toolchain: str = TOOLCHAIN, name: str = "one.mlir") -> int:
        named = wanted(machine.target)
        named = replace(named, request=replace(named.request, name=name))
        with writing(sessions) as session:
            return model_jobs.request_plan(session, named, toolchain, Submitter()).id

    return make


class PlanAsItIs:
    """A plan that was read, with the columns of its job beside its own."""

    def __init__(self, plan: models.Plan) -> None:
        self.plan_row, self._job = plan, plan.job

    @property
    def phase(self) -> str | None:
        """What its run does; None where none does."""
        return self._job.phase if self._job.state == "running" else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plan_row if hasattr(self.plan_row, name) else self._job, name)


@pytest.fixture
def look(sessions: Sessions) -> Callable[[int], "PlanAsItIs"]:
    """Reads a plan as it is now, its plan and what it is made of too."""

    def read(number: int) -> PlanAsItIs:
        of_run = models.Plan.plan, models.Plan.script
        with reading(sessions) as session:
            found = model_jobs.get_plan(session, number, *of_run)
            assert found.source is None or found.source.module
            return PlanAsItIs(found)

    return read


@pytest.fixture
def ready(plan, submit, run) -> int:
    """The number of a plan whose job is done."""
    number = plan()
    run(submit())
    return number
