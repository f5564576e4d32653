import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from sqlalchemy import insert

from tests.service import fakes
from tests.tilewise.conftest import Cli
from tests.tilewise.formats.test_exports import PROBLEM, failed, trial
from tilewise.errors import BadInputError
from tilewise.formats.optuna_study import export
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import detect
from tilewise.search.records import TuneRequest
from tilewise.service.db import make_engine, models, schema, writing
from tilewise.service.db.session import make_sessions
from tilewise.service.db.trials import row as trial_row
from tilewise.service.jobs import queue


def loaded(storage: str) -> optuna.Study:
    return optuna.load_study(study_name=None, storage=storage)


def some_trials() -> list[dict[str, Any]]:
    timed = [trial(n) for n in range(12)]
    pruned = [trial(n, state="pruned", samples_us=[3e3, 4e3]) for n in range(12, 15)]
    return [*timed, *pruned, failed(15, "crash"), failed(16, "wrong")]


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'study.db'}"


def test_optuna_reads_the_study(storage: str) -> None:
    rows = some_trials()
    rows[3]["params"] = rows[3]["params"] | {"prefetch": True}
    told = export(rows, storage)
    assert told["trials"] == {"timed": 12, "pruned": 3, "failed": 2}
    study = loaded(storage)
    assert study.study_name == told["study"] == f"{PROBLEM} on cpu:znver4,threads=1"
    assert study.direction.name == "MINIMIZE" and study.user_attrs["problem"] == PROBLEM
    states = [t.state.name for t in study.trials]
    assert states == ["COMPLETE"] * 12 + ["PRUNED"] * 3 + ["FAIL"] * 2
    assert study.best_trial.user_attrs["hash"] == trial(11)["hash"], "the least time"
    importances = optuna.importance.get_param_importances(study)
    assert importances.keys() == {"tile", "depth", "pack_a", "prefetch"}
    first, pruned, crashed = (study.trials[n] for n in (0, 12, 15))
    assert first.value == 1500.0 and first.params == trial(0)["params"] | {"prefetch": None}
    assert first.intermediate_values == {1: 1500.0, 2: 1495.0, 3: 1500.0}
    assert first.duration.total_seconds() == pytest.approx(0.25 + 4500.5e-6, abs=1e-5)
    assert pruned.intermediate_values == {1: 3000.0, 2: 3500.0}
    assert crashed.user_attrs["failure"] == "crash" and crashed.intermediate_values == {}
    assert first.user_attrs["gflops"] == 100.0 and first.user_attrs["origin"] == "tpe"
    choices = [{name: d.choices for name, d in t.distributions.items()} for t in study.trials]
    assert all(one == choices[0] for one in choices)
    assert choices[0] == {
        "tile": tuple(f"{n}x2" for n in range(1, 18)), "depth": (96, 256, 0),
        "pack_a": (False, True), "prefetch": (True, None),
    }  # fmt: skip


def test_a_study_is_not_written_over(storage: str) -> None:
    export(some_trials(), storage)
    with pytest.raises(BadInputError, match="give another --name"):
        export(some_trials()[:1], storage)
    export(some_trials()[:1], storage, "another")
    assert storage.endswith("study.db")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("study.db", "not the URL of a database"),
        ("nosuch:///study.db", "not the URL of a database"),
        ("sqlite:////no/such/folder/study.db", "cannot be opened"),
        ("postgresql://user:secret@host:port/x", "not the URL of a database"),
        ("sqlite:///x.db?timeout=long", "not the URL of a database"),
        ("sqlite:///\0", "cannot be opened"),
        ("sqlite:///%00", "cannot be opened"),
        ("sqlite:///\udcff", "not the URL of a database"),
        ("sqlite:///" + "x" * 5000, "cannot be opened"),
    ],
    ids=lambda text: ascii(text)[:40],
)
def test_a_storage_that_is_none_is_bad_input(url: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message) as caught:
        export([trial(0)], url)
    assert "secret" not in str(caught.value)


@pytest.fixture
def stored(database: str) -> str:
    """The database, with trials of one job that ended in each way."""
    schema.upgrade(database)
    engine = make_engine(database)
    target = detect().canonical
    with writing(make_sessions(engine)) as session:
        made = queue.create_or_join(
            session, parse_problem(PROBLEM), target, TuneRequest(9), "tools"
        )
        assert isinstance(made.job, models.Job)
        slow = replace(fakes.trial(7), state="pruned")
        for one in (*map(fakes.trial, range(7)), slow, fakes.failed_trial(8)):
            session.execute(insert(models.Trial).values(trial_row(made.job.id, one)))
    engine.dispose()
    return database


@pytest.mark.full
def test_the_command_exports_what_is_stored(cli: Cli, stored: str, storage: str) -> None:
    done = cli("export-study", PROBLEM, "--storage", storage, "--name", "mine", "--json")
    assert done.code == 0, done.err
    counts = {"timed": 7, "pruned": 1, "failed": 1}
    assert json.loads(done.out) == {"study": "mine", "storage": storage, "trials": counts}
    assert loaded(storage).study_name == "mine"
    again = cli("export-study", PROBLEM, "--storage", storage, "--name", "mine")
    assert again.code == 2 and again.err.count("\n") == 1
    ours = cli("export-study", PROBLEM, "--storage", stored)
    assert ours.code == 2 and "Tilewise's own tables" in ours.err
    assert cli("db", "check").code == 0
    assert cli("export-study", PROBLEM + ",bias", "--storage", storage).code == 3
    assert cli("export-study", PROBLEM).code == 2


def test_t4_from_the_command(cli: Cli, stored: str) -> None:
    printed = cli("trials", PROBLEM, "--format", "t4")
    kinds = [r["invalidity"] for r in json.loads(printed.out)["results"]]
    assert kinds == ["correct"] * 8 + ["runtime"]
    assert cli("trials", PROBLEM, "--format", "t4", "--json").out == printed.out
    assert json.loads(cli("trials", PROBLEM, "--format", "csv", "--json").out)[8]["number"] == 8


def test_what_a_slow_moment_did_to_the_samples_is_taken_out(storage: str) -> None:
    """The final time is at pace 1, and so must be the ones before it."""
    rows = [trial(0, pace=2.0, samples_us=[3e3, 5e3]), trial(1, pace=None, samples_us=[3e3])]
    export(rows, storage)
    slow, unknown = loaded(storage).trials
    assert slow.intermediate_values == {1: 1500.0, 2: 2000.0}
    assert unknown.intermediate_values == {1: 3000.0}
