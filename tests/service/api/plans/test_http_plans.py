"""`/v1/plans` over HTTP, without workers: asking, looking, lists, refusals."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.api.plans.modules import MODULE, NOTHING, OTHERS, PROBLEMS, TEXT
from tests.service.conftest import ClientFactory

ADDRESS = "/v1/plans"


def ask(client: TestClient, query: str = "?trials=3", **more: Any) -> Any:
    return client.post(f"{ADDRESS}{query}", content=MODULE, headers={**TEXT, **more})


def test_each_problem_in_each_layout_gets_a_job(client: TestClient) -> None:
    answer = ask(client, "?trials=3&seed=7&name=small.mlir")
    assert answer.status_code == 202, answer.text
    told = answer.json()
    assert answer.headers["location"] == told["links"]["self"] == f"{ADDRESS}/1"
    assert set(told["links"]) == {"self", "script", "runner", "events", "page"}
    assert [(one["problem"], one["count"]) for one in told["problems"]] == [(PROBLEMS[0], 2)]
    assert [one["problem"] for one in told["variants"]] == OTHERS
    named = [told[name] for name in ("state", "phase", "trials", "seed", "layouts", "name")]
    assert named == ["queued", "tuning", 3, 7, "all", "small.mlir"]
    assert told["plan"] is told["totals"] is told["error"] is None
    for one in (*told["problems"], *told["variants"]):
        job = client.get(f"/v1/jobs/{one['job']}").json()
        assert (job["problem"], job["state"]) == (one["problem"], "queued")
        assert job["trials"]["asked"] == 3
    assert client.get(f"{ADDRESS}/1").json() == told


def test_layouts_of_the_model_alone_need_fewer_jobs(client: TestClient) -> None:
    told = ask(client, "?layouts=model").json()
    assert [one["problem"] for one in told["problems"]] == PROBLEMS
    assert told["variants"] == []


def test_plans_outlive_the_service_and_are_listed(client_factory: ClientFactory) -> None:
    first = ask(client_factory()).json()
    again = client_factory()
    second = ask(again).json()
    assert second["id"] == 2 and second["sha256"] == first["sha256"]
    assert [one["job"] for one in second["problems"]] == [one["job"] for one in first["problems"]]
    page = again.get(f"{ADDRESS}?limit=1").json()
    assert [one["id"] for one in page["plans"]] == [2]
    last = again.get(page["next"]).json()
    assert [one["id"] for one in last["plans"]] == [1] and last["next"] is None
    shown = {name: first[name] for name in last["plans"][0]}
    assert last["plans"][0] == shown and "problems" not in shown
    assert again.get(f"{ADDRESS}?state=done").json()["plans"] == []


def test_a_request_that_is_sent_again_names_the_same_plan(client: TestClient) -> None:
    first = ask(client, **{"Idempotency-Key": "one"}).json()
    assert ask(client, **{"Idempotency-Key": "one"}).json() == first
    assert ask(client, **{"Idempotency-Key": "two"}).json()["id"] == 2
    refused = ask(client, "?trials=4", **{"Idempotency-Key": "one"})
    assert refused.status_code == 422
    assert [one["field"] for one in refused.json()["errors"]] == ["Idempotency-Key"]


def test_a_plan_runs_once_a_job_has_begun_and_waits_once_all_have_ended(
    client: TestClient,
) -> None:
    told = ask(client).json()
    seen = []
    for one in (*told["problems"], *told["variants"]):
        client.delete(f"/v1/jobs/{one['job']}")
        now = client.get(f"{ADDRESS}/1").json()
        seen.append((now["state"], now["phase"]))
    assert set(seen[:-1]) == {("running", "tuning")} and seen[-1] == ("running", "waiting")


@pytest.mark.parametrize(
    ("query", "body", "field"),
    [
        ("", "no module", "module"),
        ("", NOTHING, "module"),
        ("?trials=0", MODULE, "trials"),
        ("?layouts=some", MODULE, "layouts"),
        ("?cache=warm", MODULE, "cache"),
        ("?target=cpu:z80", MODULE, "target"),
        ("?target=iree:host", MODULE, "target"),
        ("?name=", MODULE, "name"),
        ("?name=a%0Ab", MODULE, "name"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    client: TestClient, query: str, body: str, field: str
) -> None:
    refused = client.post(f"{ADDRESS}{query}", content=body, headers=TEXT)
    assert refused.status_code == 422, refused.text
    assert [one["field"] for one in refused.json()["errors"]] == [field]
    assert client.get(ADDRESS).json()["plans"] == []
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_what_is_not_there_is_not_found(client: TestClient) -> None:
    assert client.get(f"{ADDRESS}/1").status_code == 404
    assert client.get(f"{ADDRESS}/0").status_code == 422
