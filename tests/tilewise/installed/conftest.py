"""A release, built once, and environments that several tests run commands in."""

import fcntl
import os
from pathlib import Path

import pytest

from tests.tilewise.installed import environments
from tests.tilewise.installed.environments import Distributions, Environment


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """A wheel and an sdist; processes of one run of pytest-xdist share them."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with (folder / "release.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return environments.build_once(folder / "release")


@pytest.fixture(scope="session")
def base(release: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The base package, from the wheel."""
    return with_extras(release, tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="session")
def with_service(release: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The extra `service`, from the wheel."""
    return with_extras(release, tmp_path_factory.mktemp("service"), "service")


def with_extras(release: Distributions, folder: Path, *extras: str) -> Environment:
    """Install the wheel; pip refuses where a requirement is missing."""
    made = environments.make(folder, release.wheel, frozenset(extras))
    named = f"tilewise[{','.join(extras)}] @ {release.wheel.as_uri()}"
    installed = made.pip("install", "--no-index", "--no-compile", named)
    assert installed.code == 0, installed
    return made
