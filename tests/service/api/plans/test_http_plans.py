import re
from functools import cache
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from tests.service.api.plans.modules import MODULE, NOTHING, OTHERS, PROBLEMS, TEXT
from tests.service.conftest import TOOLCHAIN, ClientFactory, settings_for
from tests.service.plans.makers import PLAN
from tests.service.processes import wait_until
from tilewise.kernels.mlir.frontend.read import read_graph
from tilewise.schema.base import Scope
from tilewise.service.api.routes import modules
from tilewise.service.app import create_app
from tilewise.service.db import Sessions, tokens, writing
from tilewise.service.host.machine import MachineInfo
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import claims, lease, plans
from tilewise.service.jobs.plans import Made, PackOutcome

ADDRESS = "/v1/plans"

READ = cache(read_graph)
"""Reads each module once for all tests, since a child that loads MLIR takes seconds."""


@pytest.fixture(autouse=True)
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "read_graph", READ)


def ask(client: TestClient, query: str = "?trials=3", **more: Any) -> Any:
    return client.post(f"{ADDRESS}{query}", content=MODULE, headers={**TEXT, **more})


def events(client: TestClient, number: int, wanted: str, query: str = "") -> list[str]:
    found: list[str] = []

    def look() -> bool:
        told = client.get(f"{ADDRESS}/{number}/events{query}").text
        found[:] = re.findall("event: (.*)", told)
        return wanted in found

    wait_until(look)
    return found


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


def test_plans_outlive_the_service_and_are_listed(client_factory: ClientFactory) -> None:
    first = ask(client_factory()).json()
    again = client_factory()
    second = ask(again, "?trials=3&name=two").json()
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
    other = ask(client, "?trials=3&seed=7", **{"Idempotency-Key": "two"}).json()
    assert other["id"] == 2
    refused = ask(client, "?trials=4", **{"Idempotency-Key": "one"})
    assert refused.status_code == 422
    assert [one["field"] for one in refused.json()["errors"]] == ["Idempotency-Key"]


def test_a_strict_plan_has_jobs_of_its_own(client: TestClient) -> None:
    key = {"Idempotency-Key": "one"}
    standard = ask(client, **key).json()
    strict = ask(client, "?trials=3&accuracy=strict").json()
    assert (standard["accuracy"], strict["accuracy"]) == ("standard", "strict")
    for kind in ("problems", "variants"):
        assert [one["problem"] for one in strict[kind]] == [
            f"{one['problem']},accuracy=strict" for one in standard[kind]
        ]
        jobs = [{one["job"] for one in told[kind]} for told in (standard, strict)]
        assert not jobs[0] & jobs[1]
    assert ask(client, "?trials=3&accuracy=standard").json()["id"] == standard["id"]
    assert ask(client, "?trials=3&accuracy=strict").json()["id"] == strict["id"]
    assert ask(client, "?trials=3&accuracy=strict", **key).status_code == 422
    assert [one["accuracy"] for one in client.get(ADDRESS).json()["plans"]] == [
        "strict", "standard"
    ]  # fmt: skip


def test_a_token_has_so_many_plans_in_flight(
    url: str, machine: MachineInfo, sessions: Sessions
) -> None:
    settings = settings_for(url, require_tokens=True, jobs_in_flight=5)
    app = create_app(settings, 0, machine=machine, toolchain=TOOLCHAIN)
    with writing(sessions) as session:
        made = [tokens.create(session, name, "submit", None) for name in "ab"]
    keys = [{"Authorization": f"Bearer {token}"} for token in made]
    with TestClient(app) as client:
        for number in range(5):  # their jobs are the same
            asked = ask(client, f"?trials=3&name={number}", **keys[0])
            assert asked.status_code == 202, asked.text
        refused = ask(client, "?trials=3&name=5", **keys[0])
        assert (
            refused.status_code == 429
            and "already has 5 queued or running plans" in refused.json()["detail"]
        )
        assert int(refused.headers["retry-after"]) > 0
        assert ask(client, "?trials=3&name=4", **keys[0]).json()["id"] == 5, "joined"
        assert ask(client, "?trials=3&name=5", **keys[1]).status_code == 202


def test_a_plan_is_called_off_and_its_jobs_go_on(client: TestClient) -> None:
    told = ask(client, **{"Idempotency-Key": "one"}).json()
    jobs = [one["job"] for one in (*told["problems"], *told["variants"])]
    for _twice in range(2):
        answer = client.delete(f"{ADDRESS}/1")
        assert answer.status_code == 200, answer.text
        shown = answer.json()
        assert (shown["state"], shown["phase"], shown["error"]) == ("cancelled", None, None)
        assert shown["finished"] and client.get(f"{ADDRESS}/1").json() == shown
    assert {client.get(f"/v1/jobs/{job}").json()["state"] for job in jobs} == {"queued"}
    assert [one["id"] for one in client.get(f"{ADDRESS}?state=cancelled").json()["plans"]] == [1]
    assert events(client, 1, "end") == ["end"]
    for what in ("script", "runner"):
        gone = client.get(f"{ADDRESS}/1/{what}")
        assert gone.status_code == 404 and gone.json()["detail"].endswith("it was cancelled")
    assert ask(client, **{"Idempotency-Key": "one"}).json()["id"] == 1, "as those of jobs"
    assert ask(client).json()["id"] == 2
    assert client.delete(f"{ADDRESS}/9").status_code == 404


def test_a_plan_that_has_ended_cannot_be_called_off(
    client: TestClient, sessions: Sessions, ready: int
) -> None:
    with writing(sessions) as session:
        session.execute(text("UPDATE jobs SET state = 'failed' WHERE kind = 'model'"))
    refused = client.delete(f"{ADDRESS}/{ready}")
    assert refused.status_code == 409
    assert refused.json()["detail"] == f"plan {ready} is failed and cannot be cancelled"


def test_who_may_call_off_a_plan(url: str, machine: MachineInfo, sessions: Sessions) -> None:
    app = create_app(
        settings_for(url, require_tokens=True), 0, machine=machine, toolchain=TOOLCHAIN
    )
    scopes: tuple[tuple[str, Scope], ...] = (
        ("mine", "submit"), ("other", "submit"), ("reader", "read"), ("admin", "admin")
    )  # fmt: skip
    with writing(sessions) as session:
        made = {name: tokens.create(session, name, scope, None) for name, scope in scopes}
    keys = {name: {"Authorization": f"Bearer {token}"} for name, token in made.items()}
    with TestClient(app) as client:
        for name in ("one", "two"):
            ask(client, f"?trials=3&name={name}", **keys["mine"])
        for name in ("other", "reader"):
            refused = client.delete(f"{ADDRESS}/1", headers=keys[name])
            assert refused.status_code == 403, refused.text
        assert client.get(f"{ADDRESS}/1", headers=keys["mine"]).json()["state"] == "queued"
        assert client.delete(f"{ADDRESS}/1", headers=keys["mine"]).json()["state"] == "cancelled"
        assert client.delete(f"{ADDRESS}/2", headers=keys["admin"]).json()["state"] == "cancelled"


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


REFUSED = [
    ("", "no module", "module"),
    ("", NOTHING, "module"),
    ("?trials=0", MODULE, "trials"),
    ("?layouts=some", MODULE, "layouts"),
    ("?cache=warm", MODULE, "cache"),
    ("?accuracy=loose", MODULE, "accuracy"),
    ("?target=cpu:z80", MODULE, "target"),
    ("?target=iree:host", MODULE, "target"),
    ("?name=", MODULE, "name"),
    ("?name=a%0Ab", MODULE, "name"),
]


def test_what_cannot_be_planned_is_refused(client: TestClient) -> None:
    for query, body, field in REFUSED:
        refused = client.post(f"{ADDRESS}{query}", content=body, headers=TEXT)
        assert refused.status_code == 422, (query, refused.text)
        assert [one["field"] for one in refused.json()["errors"]] == [field], query
    assert client.get(ADDRESS).json()["plans"] == []
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_what_is_not_there_is_not_found(client: TestClient) -> None:
    assert client.get(f"{ADDRESS}/1").status_code == 404
    assert client.get(f"{ADDRESS}/0").status_code == 422


def test_texts_and_events_of_plans_that_have_ended(
    client: TestClient, sessions: Sessions, machine: MachineInfo, ready: int, plan: Any
) -> None:
    with writing(sessions) as session:
        held = claims.claim(session, me(), machine.targets, TOOLCHAIN)
        assert held is not None
        assert plans.done(session, held, Made(PLAN, PackOutcome(error="nothing packs")))
    refused = client.get(f"{ADDRESS}/{ready}/script")
    assert refused.status_code == 404
    assert refused.json()["detail"] == f"plan {ready} has no script: nothing packs"
    runner = client.get(f"{ADDRESS}/{ready}/runner")
    assert runner.status_code == 200 and "ab" * 32 in runner.text
    assert "tilewise/plan/1" in runner.text
    assert events(client, ready, "end") == ["part", "end"]
    assert events(client, ready, "end", "?after=0") == ["end"]
    with writing(sessions) as session:
        session.execute(text("UPDATE plans SET sha256 = name"))
    for path in ("", "/script", "/runner"):
        assert client.get(f"{ADDRESS}/{ready}{path}").status_code == 500

    failing = plan()
    with writing(sessions) as session:
        held = claims.claim(session, me(), machine.targets, TOOLCHAIN)
        assert held is not None and lease.end(session, held, state="failed", error="no layer")
    for what in ("script", "runner"):
        gone = client.get(f"{ADDRESS}/{failing}/{what}")
        assert gone.status_code == 404 and gone.json()["detail"].endswith("it failed: no layer")
    shown = client.get(f"{ADDRESS}/{failing}").json()
    assert (shown["state"], shown["error"], shown["phase"]) == ("failed", "no layer", None)
