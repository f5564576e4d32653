"""Stored configurations of IREE's own code: displayed and copied, and no kernel is made of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.service import fakes
from tests.tilewise.conftest import Cli
from tests.tilewise.test_kernel_asm import server
from tilewise.backends import local, local_search
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.tuning_spec.config import read_steps
from tilewise.kernels.problem import Problem
from tilewise.kernels.target import Target
from tilewise.search.records import Best, TuneRequest, TuneResult
from tilewise.search.store import TrialStore
from tilewise.service.workers.job_run import run_job

__all__ = ["server"]  # a fixture

pytest.importorskip("iree.runtime", reason="without IREE's runtime the target is refused")

PROBLEM, TARGET = "matmul:m=64,n=96,k=40,dtype=f32", ("--target", "iree:host")
STEPS = [
    {"step": "level", "at": "distribution", "dim": "m", "size": 64},
    {"step": "level", "at": "distribution", "dim": "n", "size": 96},
    {"step": "level", "at": "vector_reduction", "dim": "k", "size": 4},
    {"step": "pipeline", "passes": "DoubleTilingExpert", "remainders": "masked"},
]


def tune(
    _problem: Problem, _target: Target, request: TuneRequest, store: TrialStore, **_: Any
) -> TuneResult:
    """A search of which every trial has the same configuration."""
    config = read_steps(STEPS)
    for number in range(request.trials):
        store.add(replace(fakes.trial(number), schedule=config))
    best = Best(config, fakes.measurement(90.0), 100.0)
    return TuneResult(best, tuple(store.trials()), 0.5, True)


def unproven(*_: object, **_named: object) -> None:
    raise UnsupportedError("nothing is proven here")


@pytest.fixture(autouse=True)
def stored(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result in the database of the test."""
    monkeypatch.chdir(tmp_path)

    def run(keeper: Any, **options: Any) -> Any:
        return run_job(keeper, tuner=tune, prover=unproven, **options)

    monkeypatch.setattr(local_search, "run_job", run)
    local.LocalBackend(database).tune(PROBLEM, TARGET[1], TuneRequest(2), lambda *_: None)


def told(cli: Cli, *arguments: str) -> Any:
    """The JSON that a command prints."""
    ran = cli(*arguments, *TARGET)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_it_is_shown_and_copied(cli: Cli, server: str) -> None:
    here = told(cli, "show", PROBLEM, "--json")
    assert (here["best"]["steps"], here["best"]["instruction"]) == (STEPS, None)
    assert here["best"]["hash"] == read_steps(STEPS).hash
    trials = told(cli, "trials", PROBLEM, "--format", "json")
    assert [trial["steps"] for trial in trials] == [STEPS, STEPS]
    for command in (("show", PROBLEM), ("trials", PROBLEM, "--format", "csv")):
        ran = cli(*command, *TARGET)
        assert ran.code == 0 and "level at=distribution dim=n size=96" in ran.out
    assert told(cli, "show", PROBLEM, "--json", "--server", server) == here
    assert cli("store", "export", "all.zip").code == 0
    other = ("--db", "sqlite:///other.db")
    assert cli("store", "import", "all.zip", *other).code == 0
    assert told(cli, "show", PROBLEM, "--json", *other) == here


@pytest.mark.full
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
def test_no_kernel_is_made_of_it(cli: Cli, command: tuple[str, ...], server: str) -> None:
    for where in ((), ("--server", server)):
        ran = cli(*command, *TARGET, *where)
        assert ran.code != 0 and ran.err.count("\n") == 1
        assert "no step of a schedule for a target cpu:NAME" in ran.err
