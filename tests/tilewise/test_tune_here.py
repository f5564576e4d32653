import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tilewise.service.runs.keeper import SqlKeeper

from tests.service import fakes
from tests.tilewise.conftest import Cli
from tilewise.backends import local, local_search
from tilewise.backends.choose import local_backend
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.children import ONE_THREAD
from tilewise.kernels.system.toolchain import identity
from tilewise.kernels.target import detect
from tilewise.search.records import TuneRequest
from tilewise.service.db import Sessions, make_engine, schema, writing
from tilewise.service.db.session import make_sessions
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease, queue
from tilewise.service.jobs.lease import Lease
from tilewise.service.workers.job_run import run_job

PROBLEM = "matmul:m=64,n=48,k=32,dtype=f32"
Running = Callable[[int], tuple[Sessions, Lease]]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []

    def run(keeper: Any, **options: Any) -> Any:
        seen.append(options)
        return run_job(keeper, tuner=fakes.tune, prover=fakes.prove, **options)

    monkeypatch.setattr(local_search, "run_job", run)
    return seen


@pytest.fixture
def running(database: str) -> Iterator[Running]:
    """Makes a job of so many trials that another process runs."""
    schema.upgrade(database)
    engine = make_engine(database)
    sessions = make_sessions(engine)

    def make(trials: int) -> tuple[Sessions, Lease]:
        problem, target = parse_problem(PROBLEM), detect().canonical
        with writing(sessions) as session:
            made = queue.create_or_join(session, problem, target, TuneRequest(trials), identity())
            assert made.job is not None
            held = lease.claim_one(session, made.job.id, me())
            assert held is not None
            return sessions, held

    yield make
    engine.dispose()


def tuned(cli: Cli, *options: str) -> dict[str, Any]:
    ran = cli("tune", PROBLEM, "--json", *options)
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def test_a_result_is_that_of_the_caches_that_were_asked_for(
    cli: Cli, runs: list[dict[str, Any]]
) -> None:
    assert tuned(cli, "--trials", "3", "--cache", "hot")["cache"] == "hot"
    assert tuned(cli, "--trials", "2", "--cache", "cold")["cache"] == "cold"
    for options, cache in ((("--cache", "cold"), "cold"), ((), "hot")):
        assert json.loads(cli("show", PROBLEM, "--json", *options).out)["cache"] == cache


def test_trials_of_one_objective_are_of_one_cache_mode(
    cli: Cli, runs: list[dict[str, Any]]
) -> None:
    """Hot and cold times differ in kind: a T4 file that mixes them misleads."""
    tuned(cli, "--trials", "3")
    tuned(cli, "--trials", "2", "--cache", "cold")

    def shown(*options: str) -> int:
        ran = cli("trials", PROBLEM, *options)
        found = json.loads(ran.out)
        return len(found["results"] if isinstance(found, dict) else found)

    assert (shown("--format", "t4"), shown("--format", "t4", "--cache", "cold")) == (3, 2)
    assert (shown("--json"), shown("--json", "--cache", "hot")) == (5, 3)


def test_what_a_joined_job_leaves_out_is_searched_for_then(
    database: str, running: Running, runs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process runs the job of a smaller budget; its trials are told of meanwhile."""
    sessions, held = running(2)
    told: list[tuple[int, str, float | None]] = []

    def another_process(*given: Any, **options: Any) -> Any:
        store = given[3]
        store.add(fakes.failed_trial(0))
        return fakes.tune(*given, **options)

    def end_it(_seconds: float) -> None:
        run_job(SqlKeeper(sessions, held), tuner=another_process, prover=fakes.prove)

    monkeypatch.setattr(local_search, "time", type("", (), {"sleep": staticmethod(end_it)}))
    backend = local.LocalBackend(database)
    found = backend.tune(
        PROBLEM,
        "host",
        TuneRequest(4),
        lambda seen: told.append((seen.number, seen.state, seen.gflops)),
    )
    assert found["trials"] == {"asked": 4, "timed": 3, "pruned": 0, "failed": 1}
    assert told == [
        (0, "failed", None), (1, "timed", 11.0), (2, "timed", 12.0), (3, "timed", 13.0)
    ]  # fmt: skip
    assert len(runs) == 1, "the first was another's"


def test_the_threads_of_a_search_leave_the_processors_to_its_candidates(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ONE_THREAD:
        monkeypatch.setenv(name, "8")
    with local_backend(database):
        assert {name: os.environ[name] for name in ONE_THREAD} == ONE_THREAD


def test_again_times_the_finalists_and_says_which_result_is_kept(
    cli: Cli, runs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tuned(cli, "--trials", "3")["previous"] is None
    ran = cli("tune", PROBLEM, "--trials", "3")
    assert "answered from the store" in ran.err and len(runs) == 1
    found = tuned(cli, "--again")  # of 64 trials, unless a result is stored
    assert (found["trials"]["asked"], found["previous"]["state"]) == (3, "superseded")
    assert len(runs) == 2
    assert "\nhistory   replaced 12.0 GFLOP/s" in cli("show", PROBLEM).out


def test_again_rechecks_the_result_of_an_earlier_toolchain(
    cli: Cli, runs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(local_search, "identity", lambda: "an earlier one")
        assert tuned(cli, "--trials", "8")["match"]["kind"] == "toolchain"
    found = tuned(cli, "--again")
    assert (found["match"]["kind"], found["trials"]["asked"]) == ("exact", 4), "the finalists"
    assert len(runs) == 2
