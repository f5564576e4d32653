import contextlib
import json
import re
import sqlite3
from pathlib import Path

import httpx
import pytest

from tests.service.db.released import dumps
from tests.tilewise.conftest import PROBLEM
from tests.tilewise.installed import environments
from tests.tilewise.installed.distributions import Distributions
from tests.tilewise.installed.environments import Ended, Environment
from tilewise.kernels.system.toolchain import identity
from tilewise.service.db import schema
from tilewise.version import VERSION

FORMER = ("kernels", "search", "service", "migrations")
"""Packages that version 0.1.0 had at the top."""
TUNE = ("tune", PROBLEM, "--trials", "2", "--json")
PAGES = ("/", "/jobs", "/suites", "/submit", "/docs")
ASSET = re.compile(r"\"(/assets/[^\"]+/[^\"]+)\"")


def assert_works(made: Environment) -> None:
    imported = made.python_code("import tilewise; tilewise.Client; print(tilewise.__file__)")
    assert imported.out == f"{made.packages}/tilewise/__init__.py\n", imported
    assert made.tilewise("--version") == Ended(0, f"tilewise {VERSION}\n", "")
    examined = made.tilewise("doctor")
    assert (examined.code, examined.err) == (0, "") and "ready " in examined.out


def former_names(made: Environment) -> set[str]:
    found = made.python_code(
        f"from importlib.util import find_spec; print(*filter(find_spec, {FORMER}))"
    )
    assert found.code == 0, found
    return set(found.out.split())


def assert_serves(made: Environment, database: str, *pages: str) -> None:
    """Serve a database: health, documents, pages, and all that pages load."""
    with made.serving(database) as url, httpx.Client(base_url=url, timeout=60) as client:
        assert client.get("/healthz").json() == {"status": "ok", "version": VERSION}
        assert client.get("/readyz").is_success
        assert client.get("/openapi.json").json()["info"]["version"] == VERSION
        assets = set[str]()
        for page in pages:
            answer = client.get(page, headers={"Accept": "text/html"})
            assert answer.is_success, (page, answer.text)
            assert answer.headers["content-type"].startswith("text/html")
            assets.update(ASSET.findall(answer.text))
        assert assets
        for asset in assets:
            assert client.get(asset).is_success, asset


def assert_installed(made: Environment, *names: str | Path) -> None:
    done = made.pip("install", "--no-index", "--no-build-isolation", *names)
    assert done.code == 0, done


@pytest.mark.full
def test_the_base_package_of_a_wheel_works(base: Environment) -> None:
    assert_works(base)
    assert not former_names(base)


@pytest.mark.full
def test_the_base_package_of_an_sdist_works_and_goes_without_a_trace(
    release: Distributions, tmp_path: Path
) -> None:
    made = environments.make(tmp_path, release.wheel, frozenset(), "setuptools")
    before = made.tree()
    assert_installed(made, release.sdist)
    assert_works(made)
    assert not former_names(made)
    assert made.pip("uninstall", "--yes", "tilewise").code == 0
    assert made.tree() == before


@pytest.mark.full
def test_the_service_tunes_and_serves(with_service: Environment, tmp_path: Path) -> None:
    assert_works(with_service)
    assert not former_names(with_service)
    database = f"sqlite:///{tmp_path}/results.db"
    tuned = with_service.tilewise(*TUNE, TILEWISE_DB=database)
    assert tuned.code == 0, tuned
    found = json.loads(tuned.out)
    assert found["toolchain"] == identity(), "the same generator as in the checkout"
    script = with_service.tilewise("script", PROBLEM, TILEWISE_DB=database)
    assert script.code == 0 and "transform.named_sequence" in script.out
    assert_serves(with_service, database, *PAGES, f"/problems/{found['key']}")


@pytest.mark.full
def test_a_store_of_the_first_schema_is_upgraded_and_served(
    with_service: Environment, tmp_path: Path
) -> None:
    file = tmp_path / "results.db"
    database = f"sqlite:///{file}"
    dumps.load(database, dumps.REVISIONS[0])
    upgraded = with_service.tilewise("db", "upgrade", TILEWISE_DB=database)
    assert upgraded.code == 0, upgraded
    assert schema_of(file) == schema.HEAD
    assert_serves(with_service, database, "/", "/jobs")


def schema_of(file: Path) -> str:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        ((found,),) = connection.execute(f"SELECT version_num FROM {schema.VERSION_TABLE}")
    return str(found)
