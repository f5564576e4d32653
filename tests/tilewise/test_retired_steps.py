"""Stored schedules with steps that earlier versions had: displayed and copied, and never run."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.service import fakes
from tests.tilewise.conftest import Cli
from tests.tilewise.test_kernel_asm import server
from tilewise.backends import local, local_search
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Register, Schedule, Stream, Sweep
from tilewise.kernels.target import Target
from tilewise.search.records import Best, TuneRequest, TuneResult
from tilewise.search.store import TrialStore
from tilewise.service.workers.job_run import run_job

__all__ = ["server"]  # a fixture

PROBLEM = "matmul:m=2,n=131,k=101,dtype=f32,bias,epilogue=relu"
STEPS = [
    {"step": "divide", "dim": "k", "size": 24},
    {"step": "alternate", "dim": "k"},
    *Schedule((Stream("k", 8), Register(2, 32), Sweep("n"))).to_json(),
]
TILE = "2x2w8e"
POINT = {"unroll": 1, "outer": "cols", "pack_a": False, "pack_b": False, "depth": 0, "cols": 0}


def tune(
    problem: Problem, _target: Target, request: TuneRequest, store: TrialStore, **_: Any
) -> TuneResult:
    """A search of an earlier version: its best trial has steps that went away."""
    schedule = Schedule.from_json(STEPS)
    for number in range(request.trials):
        made = replace(fakes.trial(number), params=POINT | {"tile": TILE})
        store.add(replace(made, schedule=schedule if number else made.schedule))
    best = Best(schedule, fakes.measurement(90.0), 100.0)
    return TuneResult(best, tuple(store.trials()), 0.5, True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Callable[[Path], str]) -> Path:
    """A database with the result."""
    file = tmp_path_factory.mktemp("retired") / "results.db"
    url = migrated_sqlite(file)
    with pytest.MonkeyPatch.context() as patch:

        def run(keeper: Any, **options: Any) -> Any:
            return run_job(keeper, tuner=tune, prover=fakes.prove, **options)

        patch.setattr(local_search, "run_job", run)
        local.LocalBackend(url).tune(PROBLEM, "host", TuneRequest(3), lambda *_: None)
    return file


@pytest.fixture(autouse=True)
def stored(whole: Path, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in the database of the test."""
    monkeypatch.chdir(tmp_path)
    of, into = (sqlite3.connect(file) for file in (whole, database.removeprefix("sqlite:///")))
    with closing(of), closing(into):
        of.backup(into)


def told(cli: Cli, *arguments: str) -> Any:
    """The JSON that a command prints."""
    ran = cli(*arguments)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_they_are_shown(cli: Cli) -> None:
    assert told(cli, "show", PROBLEM, "--json")["best"]["steps"] == STEPS
    last = told(cli, "trials", PROBLEM, "--format", "json")[-1]
    assert last["params"]["tile"] == TILE and last["steps"] == STEPS
    for command in (("show", PROBLEM), ("trials", PROBLEM), ("trials", PROBLEM, "--format", "csv")):
        shown = cli(*command)
        assert shown.code == 0 and "divide dim=k size=24" in shown.out
    assert cli("export-study", PROBLEM, "--storage", "sqlite:///study.db", "--name", "s").code == 0


def test_another_store_takes_them_in(cli: Cli) -> None:
    here = told(cli, "show", PROBLEM, "--json")
    assert cli("store", "export", "all.zip").code == 0
    other = ("--db", "sqlite:///other.db")
    assert cli("store", "import", "all.zip", *other).code == 0
    assert told(cli, "show", PROBLEM, "--json", *other) == here


def test_a_service_gives_the_same(cli: Cli, server: str) -> None:
    for command in (("show", PROBLEM, "--json"), ("trials", PROBLEM, "--format", "json")):
        assert told(cli, *command, "--server", server) == told(cli, *command)


@pytest.mark.parametrize(
    "command",
    [
        ("kernel", PROBLEM),
        ("kernel", PROBLEM, "--format", "object", "-o", "made.o"),
        ("asm", PROBLEM),
        ("plot", PROBLEM, "--kind", "nest", "-o", "nest.svg"),
    ],
    ids=lambda command: "-".join(command[:1] + command[3:4]),
)
def test_none_of_them_runs(cli: Cli, command: tuple[str, ...], server: str) -> None:
    for where in ((), ("--server", server)):
        ran = cli(*command, *where)
        assert ran.code != 0 and ran.err.count("\n") == 1
        assert "an earlier version had this step; search again" in ran.err
