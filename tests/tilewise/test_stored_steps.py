"""Stored results of which no kernel can be made: displayed and copied, and never run."""

import json
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.service import fakes
from tests.tilewise.conftest import Cli
from tests.tilewise.test_kernel_asm import server
from tilewise.backends import local, local_search
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.tuning_spec.config import read_steps
from tilewise.kernels.schedule import Register, Schedule, Stream, Sweep
from tilewise.search.records import TuneRequest, TuneResult, Winner
from tilewise.service.workers.job_run import run_job

__all__ = ["server"]  # a fixture

RETIRED = [
    {"step": "divide", "dim": "k", "size": 24},
    {"step": "alternate", "dim": "k"},
    *Schedule((Stream("k", 8), Register(2, 32), Sweep("n"))).to_json(),
]
OF_IREE = [
    {"step": "level", "at": "distribution", "dim": "m", "size": 64},
    {"step": "level", "at": "distribution", "dim": "n", "size": 96},
    {"step": "level", "at": "vector_reduction", "dim": "k", "size": 4},
    {"step": "pipeline", "passes": "DoubleTilingExpert", "remainders": "masked"},
]
PARAMS = {"unroll": 1, "outer": "cols", "pack_a": False, "pack_b": False, "tile": "2x2w8e"}


@dataclass(frozen=True)
class Case:
    problem: str
    target: str
    steps: list[Any]
    shown: str
    refusal: str


CASES = {
    "retired": Case(
        "matmul:m=2,n=131,k=101,dtype=f32,bias,epilogue=relu", "host", RETIRED,
        "divide dim=k size=24", "an earlier version had this step; search again",
    ),
    "iree": Case(
        "matmul:m=64,n=96,k=40,dtype=f32", "iree:host", OF_IREE,
        "level at=distribution dim=n size=96", "no step of a schedule for a target cpu:NAME",
    ),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(
    request: pytest.FixtureRequest, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Case:
    """A result whose trials all have the steps, in the database of the test."""
    if request.param == "iree" and find_spec("iree.runtime") is None:
        pytest.skip("without IREE's runtime the target is refused")
    made = CASES[request.param]
    steps = read_steps(made.steps)

    def tune(_problem: Any, _target: Any, request: TuneRequest, store: Any, **_: Any) -> TuneResult:
        for number in range(request.trials):
            store.add(replace(fakes.trial(number), params=PARAMS, schedule=steps))
        best = Winner(steps, fakes.measurement(90.0), 100.0)
        return TuneResult(best, tuple(store.trials()), 0.5, True)

    def unproven(*_: object, **_named: object) -> None:
        raise UnsupportedError("nothing is proven here")

    def run(keeper: Any, **options: Any) -> Any:
        return run_job(keeper, tuner=tune, prover=unproven, **options)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local_search, "run_job", run)
    local.LocalBackend(database).tune(made.problem, made.target, TuneRequest(2), lambda *_: None)
    return made


def test_it_is_shown_and_copied(cli: Cli, case: Case, server: str) -> None:
    given = (case.problem, "--target", case.target)

    def told(command: str, *more: str) -> Any:
        ran = cli(command, *given, *more)
        assert ran.code == 0, ran.err
        return json.loads(ran.out)

    here = told("show", "--json")
    assert here["best"]["steps"] == case.steps
    assert here["best"]["hash"] == read_steps(case.steps).hash
    trials = told("trials", "--format", "json")
    assert [trial["steps"] for trial in trials] == [case.steps] * 2
    assert trials[0]["params"]["tile"] == PARAMS["tile"]
    for command in (("show",), ("trials",), ("trials", "--format", "csv")):
        ran = cli(command[0], *given, *command[1:])
        assert ran.code == 0 and case.shown in ran.out
    assert told("show", "--json", "--server", server) == here
    assert told("trials", "--format", "json", "--server", server) == trials
    assert cli("store", "export", "all.zip").code == 0
    assert cli("store", "import", "all.zip", "--db", "sqlite:///other.db").code == 0
    assert told("show", "--json", "--db", "sqlite:///other.db") == here


COMMANDS = (
    ("kernel",), ("kernel", "--format", "object", "-o", "made.o"), ("asm",),
    ("plot", "--kind", "nest", "-o", "nest.svg"),
)  # fmt: skip


def test_no_kernel_is_made_of_it(cli: Cli, case: Case, server: str) -> None:
    for command, where in product(COMMANDS, ((), ("--server", server))):
        ran = cli(command[0], case.problem, "--target", case.target, *command[1:], *where)
        assert ran.code != 0 and ran.err.count("\n") == 1
        assert case.refusal in ran.err
