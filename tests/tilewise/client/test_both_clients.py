import asyncio
import inspect
import json
import subprocess
import sys
from typing import Any

import httpx
import pytest

from tests.tilewise.client import documents
from tests.tilewise.client.documents import PROBLEM, RANGE
from tilewise import AsyncClient, Client


def methods(kind: type) -> dict[str, str]:
    """Public methods with their signatures, without what is `async` about them."""
    found = {}
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") or name == "__init__":
            text = str(inspect.signature(method))
            for of_async, plain in (
                ("AsyncIterator", "Iterator"),
                ("AsyncBaseTransport", "BaseTransport"),
                ("collections.abc.Awaitable[None]", "None"),
                ("sleep>", "sleep>"),
            ):
                text = text.replace(of_async, plain)
            found[name] = text.partition(", sleep")[0]
    return found


def test_both_have_the_same_methods() -> None:
    assert methods(AsyncClient) == methods(Client)
    assert {"submit", "tune", "events", "look_up", "targets", "ready"} <= set(methods(Client))


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
        if path == "/v1/schedules" and request.url.params["problem"] == RANGE:
            answer = documents.tuned_range()
        return httpx.Response(200, json=answer, headers={"ETag": '"e"'})

    def answer(self, method: str, path: str) -> Any:
        if path == "/v1/jobs" and method == "GET":
            return {"jobs": [documents.job()], "next": None}
        if path.endswith("/trials"):
            page = documents.stored_trial if path == "/v1/trials" else documents.trial
            return {"trials": [page()], "next": None}
        if path.endswith("/kernel"):
            return documents.object_files()
        if path == "/v1/schedules":
            return documents.result()
        if path == "/v1/problems/parse":
            return {"problems": [{"problem": PROBLEM, "count": 1, "where": ["@f"]}], "skipped": []}
        if path == "/v1/problems/script":
            return {"problem": PROBLEM, "place": "@f", "script": "module {}"}
        if path == "/v1/plans" and method == "GET":
            return {"plans": [documents.plan()], "next": None}
        if path.startswith("/v1/plans"):
            return documents.plan()
        if path.startswith("/v1/models"):
            return documents.model()
        if path == "/v1/schedules/lookup":
            return {"schedules": []}
        if path == "/v1/suite-reports" and method == "GET":
            return {"reports": [documents.suite_report()], "next": None}
        if path.startswith("/v1/suite-reports"):
            return documents.suite_report()
        if path.startswith("/v1/jobs"):
            return documents.job()
        if path.startswith("/v1/tokens/"):
            return documents.token()
        if method == "POST":
            return documents.new_token()
        return {"targets": ["t"], "tokens": [documents.token()], "status": "ok"}


CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("submit", (PROBLEM,), {"trials": 3}),
    ("tune", (PROBLEM,), {"trials": 3}),
    ("tune_range", (RANGE,), {"trials": 3}),
    ("range", (RANGE,), {"cache": "hot"}),
    ("job", (1,), {}),
    ("jobs", (), {}),
    ("jobs", (), {"state": "running"}),
    ("cancel", (1,), {}),
    ("schedule", (PROBLEM,), {"match": "nearest"}),
    ("script", (PROBLEM,), {"flavor": "air"}),
    ("kernel", (PROBLEM,), {}),
    ("object_files", (PROBLEM,), {}),
    ("import_module", ("module {}",), {}),
    ("op_script", ("module {}",), {"place": "@f 2:8", "with_payload": True}),
    ("submit_model", ("module {}",), {"trials": 3, "accuracy": "standard"}),
    ("model", (1,), {}),
    ("submit_plan", ("module {}",), {"layouts": "model"}),
    ("plan", (1,), {}),
    ("cancel_plan", (1,), {}),
    ("plans", (), {"state": "done"}),
    ("plan_events", (1,), {}),
    ("plan_script", (1,), {}),
    ("plan_runner", (1,), {}),
    ("text", ("/v1/x?y=1",), {"known": "k"}),
    ("trials", (1,), {"state": "timed"}),
    ("stored_trials", (PROBLEM,), {}),
    ("look_up", ([PROBLEM],), {"files": ["cpu"]}),
    ("store_report", ({"suite": "square"},), {}),
    ("suite_reports", (), {"suite": "square"}),
    ("suite_report", (3,), {}),
    ("targets", (), {}),
    ("ready", (), {}),
    ("events", (1,), {}),
    ("tokens", (), {}),
    ("create_token", ("ci", "read"), {"days": 3}),
    ("revoke_token", ("ci",), {}),
]


@pytest.mark.parametrize(("name", "given", "options"), CALLS, ids=lambda one: str(one)[:12])
def test_both_ask_and_answer_the_same(
    name: str, given: tuple[Any, ...], options: dict[str, Any]
) -> None:
    one, other = Service(), Service()
    with Client("http://fake", httpx.MockTransport(one)) as client:
        found = getattr(client, name)(*given, **options)
        found = list(found) if inspect.isgenerator(found) or isinstance(found, map) else found

    async def steps() -> Any:
        async with AsyncClient("http://fake", httpx.MockTransport(other)) as client:
            made = getattr(client, name)(*given, **options)
            if inspect.isasyncgen(made):
                return [event async for event in made]
            return await made

    assert asyncio.run(steps()) == found
    assert one.asked == other.asked and one.asked


def test_every_method_was_tried() -> None:
    assert {name for name, *_ in CALLS} | {"__init__", "close"} == set(methods(Client))


def test_the_client_loads_nothing_heavy() -> None:
    program = (
        "import sys; from tilewise import AsyncClient, Client; "
        "print(sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    loaded = done.stdout.decode()  # httpx itself loads rich, where that is installed
    for heavy in ("numpy", "numba", "llvmlite", "iree", "optuna", "sqlalchemy", "fastapi",
                  "pydantic", "service"):  # fmt: skip
        assert f"'{heavy}'" not in loaded
