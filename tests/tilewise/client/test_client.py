"""Both clients, method by method; examples of the documentation, models and plans."""

import asyncio
import inspect
import json
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.api.test_http_networks import MODULE, OTHER
from tests.service.conftest import PROBLEM as FIRST
from tests.service.plans.makers import SCRIPT
from tests.tilewise.client import documents
from tests.tilewise.client.documents import PROBLEM, RANGE
from tilewise import AsyncClient, BadInputError, Client, MissingError
from tilewise.client import PartEnded, PlanEnded


def methods(kind: type) -> dict[str, str]:
    """Public methods with their signatures, without what is `async` about them."""
    found = {}
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") or name == "__init__":
            text = str(inspect.signature(method))
            for of_async in ("AsyncIterator", "AsyncBaseTransport"):
                text = text.replace(of_async, of_async.removeprefix("Async"))
            text = text.replace("collections.abc.Awaitable[None]", "None")
            found[name] = text.partition(", sleep")[0]
    return found


def test_both_have_the_same_methods_and_every_one_is_tried() -> None:
    assert methods(AsyncClient) == methods(Client)
    assert {name for name, *_ in CALLS} | {"__init__", "close"} == set(methods(Client))


def test_the_plain_client_works_inside_an_event_loop() -> None:
    async def steps() -> list[int]:  # as in a notebook
        with Client("http://fake", httpx.MockTransport(Service())) as client:
            jobs = client.jobs()
            first = next(jobs)
            jobs.close()
            return [first.id, client.job(1).id]

    assert asyncio.run(steps()) == [1, 1]


class Service:
    """Answers everything; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        is_text = request.headers.get("Content-Type") == "text/x-mlir"
        body = request.content if is_text else json.loads(request.content or b"null")
        self.asked.append((request.method, str(request.url), body))
        path = request.url.path
        if path.startswith("/v1/plans") and path.endswith("/events"):
            return httpx.Response(200, text=documents.plan_stream())
        if path.endswith("/events"):
            end = documents.job(state="done")
            return httpx.Response(200, text=documents.stream(0, 1, end=end))
        if path == "/v1/jobs/404":
            return httpx.Response(404, json={"detail": "no"})
        answer = self.answer(request.method, path)
        if body == {"problem": RANGE} or request.url.params.get("problem") == RANGE:
            answer = documents.tuned_range()
        return httpx.Response(200, json=answer, headers={"ETag": '"e"'})

    def answer(self, method: str, path: str) -> Any:
        one = next((made for start, made in ONE.items() if path.startswith(start)), None)
        name, form = LISTS.get((method, path), (None, None))
        if form is not None:
            return {name: [form()], "next": None}
        if path.endswith("/trials"):
            return {"trials": [documents.trial()], "next": None}
        if path.endswith("/kernel"):
            return documents.object_files()
        if one is not None:
            return one()
        if method == "POST":
            return documents.new_token()
        return {"targets": ["t"], "tokens": [documents.token()], "status": "ok"}


LISTS = {
    ("GET", "/v1/jobs"): ("jobs", documents.job),
    ("GET", "/v1/plans"): ("plans", documents.plan),
    ("GET", "/v1/suite-reports"): ("reports", documents.suite_report),
    ("GET", "/v1/trials"): ("trials", documents.stored_trial),
}
FOUND = {"problem": PROBLEM, "count": 1, "where": ["@f"]}
ONE: dict[str, Callable[[], Any]] = {
    "/v1/schedules/lookup": lambda: {"schedules": []}, "/v1/schedules": documents.result,
    "/v1/problems/parse": lambda: {"problems": [FOUND], "skipped": []},
    "/v1/problems/script": lambda: {"problem": PROBLEM, "place": "@f", "script": "module {}"},
    "/v1/plans": documents.plan, "/v1/models": documents.model,
    "/v1/suite-reports": documents.suite_report, "/v1/jobs": documents.job,
    "/v1/tokens/": documents.token,
}  # fmt: skip

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((name, (), {}) for name in ("jobs", "targets", "ready", "tokens")),
    *((name, (1,), {}) for name in ("job", "cancel", "events", "model")),
    *((name, (1,), {})
      for name in ("plan", "cancel_plan", "plan_events", "plan_script", "plan_runner")),
    *((name, (PROBLEM,), {}) for name in ("kernel", "object_files", "stored_trials")),
    *((name, (PROBLEM,), {"trials": 3}) for name in ("submit", "tune")),
    ("submit", (RANGE,), {}), ("tune_range", (RANGE,), {"trials": 3}),
    ("range", (RANGE,), {"cache": "hot"}), ("jobs", (), {"state": "running"}),
    ("schedule", (PROBLEM,), {"match": "nearest"}), ("script", (PROBLEM,), {"flavor": "air"}),
    ("import_module", ("module {}",), {}),
    ("op_script", ("module {}",), {"place": "@f 2:8", "with_payload": True}),
    ("submit_model", ("module {}",), {"trials": 3, "accuracy": "standard"}),
    ("submit_plan", ("module {}",), {"layouts": "model"}), ("plans", (), {"state": "done"}),
    ("text", ("/v1/x?y=1",), {"known": "k"}), ("trials", (1,), {"state": "timed"}),
    ("look_up", ([PROBLEM],), {"files": ["cpu"]}), ("store_report", ({"suite": "square"},), {}),
    ("suite_reports", (), {"suite": "square"}), ("suite_report", (3,), {}),
    ("create_token", ("ci", "read"), {"days": 3}), ("revoke_token", ("ci",), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "options"), CALLS, ids=lambda one: str(one)[:12])
def test_both_ask_and_answer_the_same(name, given, options) -> None:
    one, other = Service(), Service()
    found = documents.call(one, name, *given, **options)
    assert documents.call(other, name, *given, is_async=True, **options) == found
    assert one.asked == other.asked and one.asked


ROOT = Path(__file__).parents[3]
EXAMPLE = re.compile(r"^```python\n(from tilewise import .*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.full
@pytest.mark.parametrize("name", ["README.md", "docs/service.md"])
def test_an_example_does_what_it_says(name: str, served, capsys) -> None:
    found = EXAMPLE.findall((ROOT / name).read_text())
    assert found, f"{name} has no example any more"
    for text in found:
        assert "http://localhost:8000" in text
        exec(compile(text.replace("http://localhost:8000", served), name, "exec"), {})
        printed = capsys.readouterr().out
        assert re.search(r"^\d+\.\d+ ", printed, re.MULTILINE), "a speed"
        assert "\nmodule" in printed, "a script"


needs_iree = pytest.mark.skipif(not find_spec("iree"), reason="IREE's compiler is not installed")


@pytest.mark.full
@needs_iree
def test_a_model_is_tuned_to_its_end(served: str) -> None:
    with Client(served) as client:
        model = client.submit_model(MODULE, trials=2)
        assert [part.problem for part in model.problems] == [FIRST, OTHER]
        for part in model.problems:
            client.tune(part.problem, trials=2)
        ended = client.model(model.id)
        assert (ended.state, ended.has_ended) == ("done", True)
        assert ended.time_us == sum(part.count * (part.time_us or 0) for part in ended.problems)
        with pytest.raises(MissingError):
            client.model(model.id + 1)
        with pytest.raises(BadInputError, match="the module has no matmul or convolution"):
            client.submit_model("module {}")
        strict = client.submit_model(MODULE, trials=2, accuracy="strict")
        assert (model.accuracy, strict.accuracy) == ("standard", "strict")
        wanted = [f"{one},accuracy=strict" for one in (FIRST, OTHER)]
        assert [part.problem for part in strict.problems] == wanted
        imported = client.import_module(MODULE, accuracy="strict")
        assert [one.problem for one in imported.problems] == wanted


@pytest.mark.full
@needs_iree
def test_a_plan_is_followed_to_its_end(served: str) -> None:
    with Client(served) as client:
        asked = client.submit_plan(MODULE, trials=2, layouts="model", name="two.mlir")
        assert [part.problem for part in asked.problems] == [FIRST, OTHER]
        events = list(client.plan_events(asked.id))
        parts = [event for event in events if isinstance(event, PartEnded)]
        assert {event.part.problem for event in parts} == {FIRST, OTHER}
        assert [(event.done, event.total) for event in parts] == [(1, 2), (2, 2)]
        assert isinstance(events[-1], PlanEnded) and events[-1].plan.state == "done"
        plan = client.plan(asked.id)
        assert (plan.name, plan.has_ended, plan.error) == ("two.mlir", True, None)
        assert plan.totals is not None and plan.plan is not None
        assert client.plan_script(plan.id).text == SCRIPT
        assert plan.sha256 in (client.plan_runner(plan.id).text or "")
        assert [one.id for one in client.plans(state="done")] == [plan.id]
        with pytest.raises(MissingError):
            client.plan(plan.id + 1)
        strict = client.submit_plan(MODULE, trials=2, layouts="model", accuracy="strict")
        assert (plan.accuracy, strict.accuracy) == ("standard", "strict")
        assert all("accuracy=strict" in part.problem for part in strict.problems)
