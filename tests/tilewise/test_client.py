"""The client against answers that are made up: what it asks, and when it asks again."""

import json

import httpx
import pytest

from tilewise import Client, TilewiseError
from tilewise import client as client_module

PROBLEM = "matmul:m=4,n=4,k=4,dtype=f32"


def job(number: int, asked: int, state: str) -> dict[str, object]:
    return {"id": number, "state": state, "trials": {"asked": asked}, "target": "t", "error": "it"}


class FakeService:
    """Runs job 1 for a few trials already; then takes what is asked for."""

    def __init__(self, ends: str = "done") -> None:
        self.posted: list[dict[str, object]] = []
        self.ends = ends

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            self.posted.append(json.loads(request.content))
            number = len(self.posted)
            return httpx.Response(202, json=job(number, (4, 9)[number - 1], "running"))
        if request.url.path == "/v1/schedules":
            return httpx.Response(200, json={"best": len(self.posted)})
        number = int(request.url.path.rpartition("/")[2])
        return httpx.Response(200, json=job(number, (4, 9)[number - 1], self.ends))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "POLL_S", 0.0)


@pytest.mark.parametrize(("trials", "asked"), [(4, 1), (3, 1), (9, 2)])
def test_what_a_joined_job_leaves_out_is_asked_for_again(trials: int, asked: int) -> None:
    service, seen = FakeService(), []
    with Client("http://fake", httpx.MockTransport(service)) as client:
        found = client.tune(PROBLEM, seen.append, trials=trials)
    assert found == {"best": asked}
    assert [one["trials"] for one in service.posted] == [trials] * asked
    assert [one["state"] for one in seen] == ["running", "done"] * asked


def test_a_job_that_fails_is_an_error_with_its_reason() -> None:
    transport = httpx.MockTransport(FakeService(ends="failed"))
    with Client("http://fake", transport) as client, pytest.raises(TilewiseError, match="1 failed"):
        client.tune(PROBLEM, trials=4)


def test_pages_are_followed_with_their_filters() -> None:
    asked: list[str] = []

    def pages(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.query.decode())
        number = len(asked)
        following = f"/v1/trials?cursor={number}" if number < 3 else None
        return httpx.Response(200, json={"trials": [{"number": number}], "next": following})

    with Client("http://fake", httpx.MockTransport(pages)) as client:
        found = list(client.stored_trials(PROBLEM, state="timed"))
    assert [one["number"] for one in found] == [1, 2, 3]
    first = httpx.QueryParams(asked[0])
    assert (first["problem"], first["state"]) == (PROBLEM, "timed") and "target" not in first
    assert asked[1:] == ["cursor=1", "cursor=2"]


def test_many_problems_are_looked_up_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MOST_PROBLEMS", 2)
    sizes = []

    def look_up(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        assert (request.url.path, body["target"]) == ("/v1/schedules/lookup", "t")
        sizes.append(len(body["problems"]))
        found = [{"problem": p, "schedule": {"key": p} if p != "b" else None}
                 for p in body["problems"]]  # fmt: skip
        return httpx.Response(200, json={"target": "t", "schedules": found})

    with Client("http://fake", httpx.MockTransport(look_up)) as client:
        found = client.look_up(["a", "b", "c"], "t")
    assert found == {"a": {"key": "a"}, "b": None, "c": {"key": "c"}}
    assert sizes == [2, 1]
