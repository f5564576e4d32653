"""Backends: searches in this process, requests to a service, and costs from a store."""

import json
import os
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.service import fakes
from tests.tilewise.client import documents
from tests.tilewise.conftest import PROBLEM, Cli, search_by
from tilewise import Client
from tilewise.backends import local, local_search
from tilewise.backends import remote as remote_module
from tilewise.backends.base import TrialSeen, prediction_of
from tilewise.backends.choose import local_backend
from tilewise.backends.costs import stored_costs
from tilewise.client import transport
from tilewise.errors import MissingError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Winograd
from tilewise.kernels.system.children import ONE_THREAD
from tilewise.kernels.system.toolchain import identity
from tilewise.kernels.target import detect
from tilewise.search.progress import SearchPhase
from tilewise.search.records import TuneRequest
from tilewise.service.db import make_engine, make_sessions, schema, writing
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease, queue
from tilewise.service.runs.sql import SqlRunStore
from tilewise.service.workers import job_run


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    return search_by(monkeypatch)


def tuned(cli: Cli, *options: str) -> dict[str, Any]:
    return cli("tune", PROBLEM, "--json", *options).json


def test_results_and_trials_are_of_one_cache_mode(cli, runs) -> None:
    """Hot and cold times differ in kind: a T4 file that mixes them misleads."""
    assert tuned(cli, "--trials", "3", "--cache", "hot")["cache"] == "hot"
    assert tuned(cli, "--trials", "2", "--cache", "cold")["cache"] == "cold"
    for name, options, number in (("hot", (), 3), ("cold", ("--cache", "cold"), 2)):
        assert cli("show", PROBLEM, "--json", *options).json["cache"] == name
        exported = cli("trials", PROBLEM, "--format", "t4", *options).json
        assert len(exported["results"]) == number
    for options, number in (((), 5), (("--cache", "hot"), 3)):
        assert len(cli("trials", PROBLEM, "--json", *options).json) == number


@pytest.mark.parametrize("wanted", [TuneRequest(4), TuneRequest(2, peers=True)])
def test_what_a_joined_job_leaves_out_is_searched_for_then(database, runs, monkeypatch, wanted):
    """Another process runs the job of a smaller budget; its trials are reported meanwhile."""
    schema.upgrade(database)
    sessions, reported = make_sessions(make_engine(database)), list[TrialSeen]()
    given = (parse_problem(PROBLEM), detect().canonical, TuneRequest(2), identity())
    with writing(sessions) as session:
        job = queue.create_or_join(session, *given).job
        held = lease.claim_one(session, job.id, me())
    running = SqlRunStore(sessions, held)

    def another_process(*given: Any, **options: Any) -> Any:
        given[3].add(fakes.failed_trial(0))
        return fakes.tune(*given, **options)

    def end_it(_seconds: float) -> None:
        job_run.run_job(running, tuner=another_process, prover=fakes.prove)

    monkeypatch.setattr(job_run, "time", SimpleNamespace(sleep=end_it, monotonic=lambda: 0.0))
    found = local.LocalBackend(database).tune(PROBLEM, "host", wanted, reported.append)
    timed = wanted.trials - 1
    assert found["trials"] == {"asked": wanted.trials, "timed": timed, "pruned": 0, "failed": 1}
    assert bool(found["peers"]) is wanted.peers
    assert [(seen.number, seen.state, seen.gflops) for seen in reported] == [
        (0, "failed", None), (1, "timed", 11.0), (2, "timed", 12.0), (3, "timed", 13.0)
    ][: wanted.trials]  # fmt: skip
    assert len(runs) == 1, "the first was another's"


def test_the_threads_of_a_search_leave_the_processors_to_its_candidates(database, monkeypatch):
    for name in ONE_THREAD:
        monkeypatch.setenv(name, "8")
    with local_backend(database):
        assert {name: os.environ[name] for name in ONE_THREAD} == ONE_THREAD


def test_again_times_the_finalists_and_says_which_result_is_kept(cli, runs) -> None:
    assert tuned(cli, "--trials", "3")["previous"] is None
    ran = cli("tune", PROBLEM, "--trials", "3")
    assert "answered from the store" in ran.err and len(runs) == 1
    found = tuned(cli, "--again")  # of 64 trials, unless a result is stored
    assert (found["trials"]["asked"], found["previous"]["state"]) == (3, "superseded")
    assert len(runs) == 2
    assert "\nhistory   replaced 12.0 GFLOP/s" in cli("show", PROBLEM).out


def test_again_rechecks_the_result_of_an_earlier_toolchain(cli, runs, monkeypatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(local_search, "identity", lambda: "an earlier one")
        assert tuned(cli, "--trials", "8")["match"]["kind"] == "toolchain"
    found = tuned(cli, "--again", "--peers")
    assert (found["match"]["kind"], found["trials"]["asked"]) == ("exact", 4), "the finalists"
    assert len(runs) == 2 and found["peers"]


CONV = "conv2d:n=1,h=9,w=9,ci=8,co=16,kh=3,kw=3,pad=1,dtype=f32,weights=constant"
DIRECT = Schedule((Register(rows=6, cols=16),))
WINOGRAD = Schedule((Winograd(4), Pack("B"), Pack("A"), Register(rows=7, cols=16)))


def row(schedule: Schedule, time_us: float | None, **changed: Any) -> dict[str, Any]:
    return {
        "hash": schedule.hash, "steps": schedule.to_json(), "time_us": time_us, "state": "timed",
        "cache": "hot", "toolchain": "now", "origin": "prior", **changed,
    }  # fmt: skip


class Store:
    """A backend with one problem, which counts how often it is asked."""

    def __init__(self, best: dict[str, Any] | None, *trials: dict[str, Any], stale: bool = False):
        self.best, self.stored, self.stale, self.asked = best, list(trials), stale, 0

    def show(self, problem: str, target: str, cache: str | None, *, match: str) -> dict[str, Any]:
        assert match == "range"
        self.asked += 1
        if self.best is None:
            raise MissingError("nothing")
        return {"best": self.best, "stale": self.stale, "toolchain": "now"}

    def trials(self, problem: str, target: str) -> list[dict[str, Any]]:
        if not self.stored and not self.stale:  # as of one size of a range
            raise MissingError("no trials")
        return self.stored


def costs_of(store: Store) -> list[tuple[str, float]]:
    costs = stored_costs(store, "cpu:znver4,threads=1", "hot")  # type: ignore[arg-type]
    known = costs.schedules(CONV)
    assert costs.schedules(CONV) is known
    assert store.asked == 1
    return [(one.algorithm, one.time_us) for one in known]


FASTEST = [("winograd F4", 10.0)]
OTHERS = [{"cache": "cold"}, {"toolchain": "before"}, {"state": "pruned"}, {"state": "failed"},
          {"time_us": None}, {"origin": "recheck"}]  # fmt: skip


@pytest.mark.parametrize(("store", "costs"), [
    (Store(row(WINOGRAD, 10.0), row(DIRECT, 14.0), row(DIRECT, 12.0), row(WINOGRAD, 9.0)),
     [*FASTEST, ("direct", 12.0)]),  # the finals' time counts
    *((Store(row(WINOGRAD, 10.0), row(DIRECT, 5.0) | other), FASTEST) for other in OTHERS),
    (Store(row(DIRECT, 3.0)), [("direct", 3.0)]),  # of a range a size has its variant alone
    (Store(None), []), (Store(row(DIRECT, 1.0), stale=True), []),
    (Store(row(WINOGRAD, 10.0), row(DIRECT, 5.0, steps=[{"step": "gone"}])), FASTEST),
])  # fmt: skip
def test_each_algorithm_is_had_once_the_fastest_first(store, costs) -> None:
    assert costs_of(store) == costs


def test_several_of_an_algorithm_are_had_for_whoever_times_them_again() -> None:
    other = Schedule((Register(rows=4, cols=16),))
    store = Store(
        row(WINOGRAD, 10.0), row(DIRECT, 14.0, state="pruned"), row(other, 12.0), row(DIRECT, 15.0),
        row(Schedule((Register(rows=2, cols=16),)), 16.0), row(WINOGRAD, 9.0),
    )  # fmt: skip
    costs = stored_costs(store, "cpu:znver4,threads=1", "hot", most=2)  # type: ignore[arg-type]
    assert [(one.hash, one.time_us) for one in costs.schedules(CONV)] == [
        (WINOGRAD.hash, 10.0), (other.hash, 12.0), (DIRECT.hash, 14.0)]  # fmt: skip


SMALL = documents.PROBLEM
TARGET = "cpu:znver4,threads=2"


class Service:
    """Runs one job; keeps the path, the query and the body of each request."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else {}
        path = request.url.path
        self.asked.append((path, dict(request.url.params), body))
        if path.endswith("trials"):
            page = [documents.stored_trial() if path == "/v1/trials" else documents.trial()]
            return httpx.Response(200, json={"trials": page, "next": None})
        if path.endswith(("script", "kernel")):
            return httpx.Response(200, text="it\n")
        if path == "/v1/schedules":
            return httpx.Response(200, json=documents.result(problem=SMALL))
        if path.endswith("events"):
            return httpx.Response(200, text=events())
        trials = {"asked": 6, "timed": 0, "pruned": 0, "failed": 0}
        return httpx.Response(202, json=documents.job(state="queued", trials=trials, target=TARGET))

    def last(self, path: str) -> dict[str, Any]:
        return next(query for asked, query, _ in reversed(self.asked) if asked == path)


def events() -> str:
    """One that failed, a slow and a fast one, one that was pruned, and what came after."""
    counts = {"asked": 6, "timed": 2, "pruned": 1, "failed": 1}
    reported = [
        ("phase", {"name": "search", "done": 0, "total": 6}),
        ("trial", documents.trial(0, state="failed", gflops=None), 0),
        ("trial", documents.trial(1, gflops=7.0), 1),
        ("trial", documents.trial(2, gflops=5.0), 2),
        ("trial", documents.trial(3, state="pruned", gflops=99.0), 3),
        ("phase", {"name": "finals", "done": 1, "total": 5}),
        ("phase", {"name": "of a newer service", "done": 1, "total": 5}),
        ("end", documents.job(state="done", target=TARGET, trials=counts)),
    ]
    return "".join(documents.event(*one) for one in reported)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    transport = httpx.MockTransport(made)
    monkeypatch.setattr(remote_module, "Client", lambda url: Client(url, transport))
    return made


def test_a_search_is_asked_for_with_all_its_options(service: Service) -> None:
    request = TuneRequest(6, 20.0, 7, "random", True, "cold")
    reported: list[TrialSeen] = []
    phases: list[SearchPhase] = []
    with remote_module.RemoteBackend("http://fake") as remote:
        remote.tune(SMALL, TARGET, request, reported.append, phases.append)
    _, _, body = service.asked[0]
    assert body == {
        "problem": SMALL, "target": TARGET, "trials": 6, "seconds": 20.0, "seed": 7,
        "sampler": "random", "peers": True, "cache": "cold",
    }  # fmt: skip
    assert [(seen.number, seen.state, seen.gflops) for seen in reported] == [
        (0, "failed", None), (1, "timed", 7.0), (2, "timed", 5.0), (3, "pruned", 99.0)
    ]  # fmt: skip
    assert reported[1].interval == (4.0, 6.0)
    assert phases == [SearchPhase("search", 0, 6), SearchPhase("finals", 1, 5)]
    found = service.last("/v1/schedules")
    assert found == {"problem": SMALL, "target": TARGET, "cache": "cold"}


@pytest.mark.parametrize(("command", "options", "path", "query"), [
    ("show", ("--cache", "cold"), "schedules", {"problem": SMALL, "cache": "cold"}),
    ("script", ("--flavor", "air"), "/script", {"flavor": "air"}), ("kernel", (), "/kernel", {}),
    ("trials", (), "/v1/trials", {"problem": SMALL, "limit": str(transport.PAGE)}),
])  # fmt: skip
def test_what_is_stored_is_asked_for_by_target_and_cache_mode(
    cli: Cli, service: Service, monkeypatch: pytest.MonkeyPatch,
    command: str, options: tuple[str, ...], path: str, query: Any,
) -> None:  # fmt: skip
    ran = cli(command, SMALL, "--target", TARGET, "--server", "http://fake", *options)
    assert ran.code == 0 and (command in ("show", "trials") or ran.out == "it\n")
    asked, params, _ = service.asked[-1]
    assert asked.endswith(path) and params == {"target": TARGET, **query}
    monkeypatch.setenv("TILEWISE_SERVER", "http://fake")
    assert cli(command, SMALL, "--target", TARGET, *options) == ran
    here = cli(command, SMALL, "--db", "sqlite:////x.db", *options)
    assert here.code == (2 if command == "script" else 3), "an option comes before the variable"


def test_again_is_asked_for_once(service: Service) -> None:
    """The job has the budget of the stored result, which may be less than that of the request."""
    with remote_module.RemoteBackend("http://fake") as remote:
        remote.tune(SMALL, TARGET, TuneRequest(64), lambda _: None, again=True)
    posted = [body for path, _, body in service.asked if path == "/v1/jobs"]
    assert [body["again"] for body in posted] == [True]
    with pytest.raises(MissingError, match="job 7 searches for one"):
        prediction_of(parse_problem(SMALL), TARGET, None, 7)
