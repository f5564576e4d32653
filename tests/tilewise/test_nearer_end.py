"""Stored schedules that begin at the nearer end, by the commands that read and copy a store."""

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.service import fakes
from tests.tilewise.conftest import Cli
from tests.tilewise.test_kernel_asm import server
from tilewise.backends import local, local_search
from tilewise.kernels.native.objects.elf import Elf
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import (
    Alternate,
    Divide,
    Register,
    Schedule,
    Split,
    Step,
    Stream,
    Sweep,
    Tile,
)
from tilewise.kernels.target import Target
from tilewise.search.records import Best, TuneRequest, TuneResult
from tilewise.search.store import TrialStore
from tilewise.service.workers.job_run import run_job

__all__ = ["server"]  # a fixture

ROWS = "matmul:m=47,n=1,k=70,dtype=f32,bias,epilogue=relu"
PARTS = "matmul:m=2,n=131,k=101,dtype=f32,bias,epilogue=relu"
SWEPT = (Divide("k", 24), Alternate("k"), Stream("k", 8), Register(2, 32), Sweep("n"))
SPLIT = (Tile("m", 6), Alternate("m"), Register(3, 1), Split("k", 16))
BEST: dict[str, tuple[tuple[Step, ...], str]] = {ROWS: (SPLIT, "3x1s1e"), PARTS: (SWEPT, "2x2w8e")}
POINT = {"unroll": 1, "outer": "cols", "pack_a": False, "pack_b": False, "depth": 0, "cols": 0}


def tune(
    problem: Problem, _target: Target, request: TuneRequest, store: TrialStore, **_: Any
) -> TuneResult:
    """A search whose last trial is the best, and those before of tiles without the mark."""
    steps, tile = BEST[problem.canonical]
    in_order = tuple(step for step in steps if not isinstance(step, Alternate))
    for number in range(request.trials):
        is_last = number == request.trials - 1
        params: dict[str, Any] = POINT | {"tile": tile if is_last else tile.removesuffix("e")}
        made = replace(fakes.trial(number), params=params)
        store.add(replace(made, schedule=Schedule(steps if is_last else in_order)))
    best = Best(Schedule(steps), fakes.measurement(90.0), 100.0)
    return TuneResult(best, tuple(store.trials()), 0.5, True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Callable[[Path], str]) -> Path:
    """A database with both problems."""
    file = tmp_path_factory.mktemp("ends") / "results.db"
    url = migrated_sqlite(file)
    with pytest.MonkeyPatch.context() as patch:

        def run(keeper: Any, **options: Any) -> Any:
            return run_job(keeper, tuner=tune, prover=fakes.prove, **options)

        patch.setattr(local_search, "run_job", run)
        for problem in BEST:
            local.LocalBackend(url).tune(problem, "host", TuneRequest(3), lambda *_: None)
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


@pytest.mark.parametrize("problem", BEST)
def test_trials_are_told_and_drawn(cli: Cli, problem: str, tmp_path: Path) -> None:
    steps, tile = BEST[problem]
    assert told(cli, "show", problem, "--json")["best"]["steps"] == Schedule(steps).to_json()
    last = told(cli, "trials", problem, "--format", "json")[-1]
    assert last["params"]["tile"] == tile and last["steps"] == Schedule(steps).to_json()
    results = told(cli, "trials", problem, "--format", "t4")["results"]
    assert [one["configuration"]["tile"] for one in results].count(tile) == 1
    assert results[-1]["schedule"]["steps"] == Schedule(steps).to_json()
    line = str(Schedule(steps)).replace("\n", "; ")
    for form in ("table", "csv"):
        assert cli("trials", problem, "--format", form).out.splitlines()[-1].count(line) == 1
    assert cli("plot", problem, "--kind", "nest", "-o", "nest.svg").code == 0
    assert "from the nearer end" in (tmp_path / "nest.svg").read_text()


def test_a_study_has_both_tiles_as_values(cli: Cli) -> None:
    assert cli("export-study", PARTS, "--storage", "sqlite:///study.db", "--name", "s").code == 0
    study = optuna.load_study(study_name="s", storage="sqlite:///study.db")
    assert study.trials[-1].params["tile"] == "2x2w8e"
    assert study.trials[0].distributions["tile"].choices == ("2x2w8", "2x2w8e")


def test_another_store_takes_them_in(cli: Cli, database: str) -> None:
    here = [told(cli, "show", problem, "--json") for problem in BEST]
    assert cli("store", "export", "all.zip").code == 0
    other = ("--db", "sqlite:///other.db")
    assert cli("store", "import", "all.zip", *other).code == 0
    assert [told(cli, "show", problem, "--json", *other) for problem in BEST] == here


def test_a_service_gives_the_same(cli: Cli, server: str, tmp_path: Path) -> None:
    for command in (("show", PARTS, "--json"), ("trials", PARTS, "--format", "json")):
        assert told(cli, *command, "--server", server) == told(cli, *command)
    assert cli("plot", PARTS, "--kind", "nest", "-o", "there.svg", "--server", server).code == 0
    assert cli("plot", PARTS, "--kind", "nest", "-o", "here.svg").code == 0
    there, here = (tmp_path / f"{where}.svg" for where in ("there", "here"))
    assert there.read_bytes() == here.read_bytes()


def test_objects_and_the_inner_loop(cli: Cli, tmp_path: Path) -> None:
    made = told(cli, "kernel", PARTS, "--format", "object", "-o", "parts.o", "--json")
    assert made["proof"]["max_error"] <= made["proof"]["tolerance"]
    found = Elf.read((tmp_path / "parts.o").read_bytes())
    assert made["symbol"] in found.defined and not found.undefined
    scratch = re.search(r"_SCRATCH_BYTES (\d+)", (tmp_path / "parts.h").read_text())
    assert scratch and int(scratch[1]) >= 4 * 5 * 2 * 131, "the sums of five parts"
    assert told(cli, "asm", PARTS, "--json")["fma"] > 0
