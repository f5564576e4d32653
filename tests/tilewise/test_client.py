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
