"""Commands at a service: what is asked of it, whose answers are made up."""

import json
from typing import Any

import httpx
import pytest

from search.records import TuneRequest
from tests.tilewise.conftest import Cli
from tilewise import Client
from tilewise import client as client_module
from tilewise.backends import remote as remote_module

PROBLEM = "matmul:m=4,n=4,k=4,dtype=f32"
TARGET = "cpu:znver4,threads=2"


class Service:
    """Runs one job; keeps the path, the query and the body of each request."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.looks = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else {}
        path = request.url.path
        self.asked.append((path, dict(request.url.params), body))
        if path.endswith("trials"):
            return httpx.Response(200, json={"trials": [{"cache": "hot"}], "next": None})
        if path.endswith(("script", "kernel")):
            return httpx.Response(200, text="it\n")
        if path == "/v1/schedules":
            return httpx.Response(200, json={"stored": True})
        self.looks += 1
        ended = (0, 1, 2, 3)[min(self.looks, 3)]
        return httpx.Response(200, json={
            "id": 1, "state": "done" if self.looks > 2 else "running", "target": TARGET,
            "trials": {"asked": 6, "timed": ended, "pruned": ended, "failed": ended},
            "best": {"gflops": 5.0} if self.looks > 1 else None, "error": None,
        })  # fmt: skip

    def last(self, path: str) -> dict[str, Any]:
        """The query of the last request for a path."""
        return next(query for asked, query, _ in reversed(self.asked) if asked == path)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    transport = httpx.MockTransport(made)
    monkeypatch.setattr(client_module, "POLL_S", 0.0)
    monkeypatch.setattr(remote_module, "Client", lambda url: Client(url, transport))
    return made


def test_a_search_is_asked_for_with_all_its_options(service: Service) -> None:
    request = TuneRequest(6, 20.0, 7, "random", True, "cold")
    told: list[tuple[int, float | None]] = []
    with remote_module.RemoteBackend("http://fake") as remote:
        remote.tune(PROBLEM, TARGET, request, lambda *seen: told.append(seen))
    _, _, body = service.asked[0]
    assert body == {
        "problem": PROBLEM, "target": TARGET, "trials": 6, "seconds": 20.0, "seed": 7,
        "sampler": "random", "peers": True, "cache": "cold",
    }  # fmt: skip
    assert told == [(3, None), (6, 5.0), (9, 5.0)], "whatever became of the trials"
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
        "problem": PROBLEM, "target": TARGET, "limit": str(client_module.PAGE)
    }  # fmt: skip


def test_trials_are_asked_for_by_their_end(service: Service) -> None:
    with Client("http://fake", httpx.MockTransport(service)) as client:
        assert list(client.trials(3, "pruned")) == list(client.stored_trials(state="pruned"))
        list(client.stored_trials(target=TARGET))
    (of_job, all_jobs, of_target) = service.asked
    assert of_job[:2] == ("/v1/jobs/3/trials", {"state": "pruned", "limit": "500"})
    assert all_jobs[:2] == ("/v1/trials", {"state": "pruned", "limit": "500"})
    assert of_target[1] == {"target": TARGET, "limit": "500"}


def test_the_environment_names_the_service(
    cli: Cli, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWISE_SERVER", "http://fake")
    assert json.loads(cli("show", PROBLEM, "--json").out) == {"stored": True}
    refused = cli("show", PROBLEM, "--db", "sqlite:////x.db")
    assert refused.code == 2 and "not both" in refused.err
