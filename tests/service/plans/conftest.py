"""Pools that make plans with `tests.service.plans.makers`."""

from collections.abc import Callable, Iterator

import pytest

from tests.service.conftest import TOOLCHAIN
from tests.service.plans.makers import LOG
from tilewise.service.db import Sessions
from tilewise.service.host.machine import MachineInfo
from tilewise.service.workers.pool import Pool, PoolWork


@pytest.fixture
def start(
    sessions: Sessions,
    url: str,
    machine: MachineInfo,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., Pool]]:
    """Starts a pool with a fake search and a maker of plans; stops it after the test."""
    log = tmp_path_factory.mktemp("made") / "made.txt"
    log.touch()
    monkeypatch.setenv(LOG, str(log))
    started: list[Pool] = []

    def make(maker: str = "make", workers: int = 1) -> Pool:
        arguments = (
            "--tuner=tests.service.fakes:tune",
            "--prover=tests.service.fakes:prove",
            f"--planner=tests.service.plans.makers:{maker}",
        )
        work = PoolWork(machine.targets, TOOLCHAIN, workers, arguments)
        started.append(Pool(sessions, url, work, poll_s=0.05))
        started[-1].start()
        return started[-1]

    yield make
    for pool in started:
        pool.stop()
