import json
from typing import Any

import httpx
import pytest

from tests.tilewise.client import documents
from tests.tilewise.conftest import Cli
from tilewise import Client
from tilewise.backends import remote as remote_module
from tilewise.backends.base import TrialSeen
from tilewise.client import transport
from tilewise.search.progress import SearchPhase
from tilewise.search.records import TuneRequest

PROBLEM = "matmul:m=4,n=4,k=4,dtype=f32"
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
            return httpx.Response(200, json=documents.result(problem=PROBLEM))
        if path.endswith("events"):
            return httpx.Response(200, text=events())
        trials = {"asked": 6, "timed": 0, "pruned": 0, "failed": 0}
        return httpx.Response(202, json=documents.job(trials=trials, target=TARGET))

    def last(self, path: str) -> dict[str, Any]:
        return next(query for asked, query, _ in reversed(self.asked) if asked == path)


def events() -> str:
    """One that failed, a slow and a fast one, one that was pruned, and what came after."""
    done = documents.job(
        state="done", target=TARGET, trials={"asked": 6, "timed": 2, "pruned": 1, "failed": 1}
    )
    told = [
        documents.event("phase", {"name": "search", "done": 0, "total": 6}),
        documents.event("trial", documents.trial(0, state="failed", gflops=None), 0),
        documents.event("trial", documents.trial(1, gflops=7.0), 1),
        documents.event("trial", documents.trial(2, gflops=5.0), 2),
        documents.event("trial", documents.trial(3, state="pruned", gflops=99.0), 3),
        documents.event("phase", {"name": "finals", "done": 1, "total": 5}),
        documents.event("phase", {"name": "of a newer service", "done": 1, "total": 5}),
        documents.event("end", done),
    ]
    return "".join(told)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    transport = httpx.MockTransport(made)
    monkeypatch.setattr(remote_module, "Client", lambda url: Client(url, transport))
    return made


def test_a_search_is_asked_for_with_all_its_options(service: Service) -> None:
    request = TuneRequest(6, 20.0, 7, "random", True, "cold")
    told: list[TrialSeen] = []
    phases: list[SearchPhase] = []
    with remote_module.RemoteBackend("http://fake") as remote:
        remote.tune(PROBLEM, TARGET, request, told.append, phases.append)
    _, _, body = service.asked[0]
    assert body == {
        "problem": PROBLEM, "target": TARGET, "trials": 6, "seconds": 20.0, "seed": 7,
        "sampler": "random", "peers": True, "cache": "cold",
    }  # fmt: skip
    assert [(seen.number, seen.state, seen.gflops) for seen in told] == [
        (0, "failed", None), (1, "timed", 7.0), (2, "timed", 5.0), (3, "pruned", 99.0)
    ]  # fmt: skip
    assert told[1].interval == (4.0, 6.0)
    assert phases == [SearchPhase("search", 0, 6), SearchPhase("finals", 1, 5)]
    found = service.last("/v1/schedules")
    assert found == {"problem": PROBLEM, "target": TARGET, "cache": "cold"}


def test_what_is_stored_is_asked_for_by_target_and_cache_mode(cli: Cli, service: Service) -> None:
    given = (PROBLEM, "--target", TARGET, "--server", "http://fake")
    assert cli("show", *given, "--cache", "cold", "--json").code == 0
    assert service.last("/v1/schedules") == {
        "problem": PROBLEM, "target": TARGET, "cache": "cold"
    }  # fmt: skip
    assert cli("script", *given, "--flavor", "air").out == "it\n"
    path, query, _ = service.asked[-1]
    assert path.endswith("/script") and query == {"target": TARGET, "flavor": "air"}
    assert cli("kernel", *given).out == "it\n"
    path, query, _ = service.asked[-1]
    assert path.endswith("/kernel") and query == {"target": TARGET}
    assert cli("trials", *given, "--json").code == 0
    assert service.last("/v1/trials") == {
        "problem": PROBLEM, "target": TARGET, "limit": str(transport.PAGE)
    }  # fmt: skip


def test_the_environment_names_the_service(
    cli: Cli, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWISE_SERVER", "http://fake")
    assert json.loads(cli("show", PROBLEM, "--json").out) == documents.result(problem=PROBLEM)
    refused = cli("show", PROBLEM, "--db", "sqlite:////x.db")
    assert refused.code == 2 and "not both" in refused.err


def test_again_is_asked_for_once(service: Service) -> None:
    """The job has the budget of the stored result, which may be less than that of the request."""
    with remote_module.RemoteBackend("http://fake") as remote:
        remote.tune(PROBLEM, TARGET, TuneRequest(64), lambda _: None, again=True)
    posted = [body for path, _, body in service.asked if path == "/v1/jobs"]
    assert [body["again"] for body in posted] == [True]
