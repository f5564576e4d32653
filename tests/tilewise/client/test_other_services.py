import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.tilewise.client import documents
from tests.tilewise.client.documents import PROBLEM, Json
from tilewise import AsyncClient, Client, TilewiseError
from tilewise.client import Event, JobEnded, PhaseReached, TrialEnded, events

Answer = Callable[[httpx.Request], httpx.Response]
TRIALS = 7


class Polled:
    """Runs job 1, of which each look finds more trials; has no events that work."""

    def __init__(self, job: Json, streamed: str = "") -> None:
        self.job, self.streamed = job, streamed
        self.looks, self.streams = 0, 0
        self.pages: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/v1/jobs":
            return httpx.Response(202, json=self.seen("queued"))
        if path == "/v1/schedules":
            return httpx.Response(200, json=documents.result())
        if path.endswith("/events"):
            self.streams += 1
            return httpx.Response(200, text=self.streamed)
        if path.endswith("/trials"):
            return self.page(request)
        self.looks += 1
        return httpx.Response(200, json=self.seen("done" if self.ended == TRIALS else "running"))

    @property
    def ended(self) -> int:
        return min(2 * self.looks, TRIALS)

    def seen(self, state: str) -> Json:
        phase = {"name": "search", "done": self.ended, "total": TRIALS}
        counts = {"asked": TRIALS, "timed": self.ended, "pruned": 0, "failed": 0}
        return {**self.job, "state": state, "phase": phase, "trials": counts}

    def page(self, request: httpx.Request) -> httpx.Response:
        self.pages.append(request.url.query.decode())
        first = int(request.url.params.get("cursor", 0))
        rows = [documents.trial(n) for n in range(first, min(first + 3, self.ended))]
        following = f"/v1/jobs/1/trials?cursor={first + 3}" if self.ended > first + 3 else None
        return httpx.Response(200, json={"trials": rows, "next": following})


def tuned(service: Answer, *, is_async: bool) -> list[Event]:
    transport, seen = httpx.MockTransport(service), list[Event]()
    if not is_async:
        with Client("http://fake", transport, sleep=lambda _: None) as client:
            client.tune(PROBLEM, seen.append)
        return seen

    async def steps() -> None:
        async def sleep(_seconds: float) -> None: ...

        async with AsyncClient("http://fake", transport, sleep=sleep) as client:
            await client.tune(PROBLEM, seen.append)

    asyncio.run(steps())
    return seen


def numbers(seen: list[Event]) -> list[int]:
    return [one.trial.number for one in seen if isinstance(one, TrialEnded)]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_service_without_events_is_polled(is_async: bool) -> None:
    service = Polled(documents.job(links={"self": "/v1/jobs/1"}))
    seen = tuned(service, is_async=is_async)
    assert service.streams == 0
    assert numbers(seen) == list(range(TRIALS)) and isinstance(seen[-1], JobEnded)
    phases = [one.phase.done for one in seen if isinstance(one, PhaseReached)]
    assert phases == [2, 4, 6, 7]
    assert len(service.pages) < 4 + 3, "a page that was full is asked for once more at most"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_search_goes_on_where_streams_bring_nothing_more(is_async: bool) -> None:
    service = Polled(documents.job(), documents.stream(0, 1, 2))
    seen = tuned(service, is_async=is_async)
    assert service.streams > events.MOST_LOSSES
    assert numbers(seen) == list(range(TRIALS)), "also those that a stream had brought, once"


OF_MODULES: dict[str, Callable[[Client], Any]] = {
    "import": lambda client: client.import_module("module {}", accuracy="strict"),
    "script": lambda client: client.op_script("module {}", accuracy="strict"),
    "model": lambda client: client.submit_model("module {}", accuracy="strict"),
    "plan": lambda client: client.submit_plan("module {}", accuracy="strict"),
}


@pytest.mark.parametrize("name", OF_MODULES)
def test_a_service_that_knows_of_no_accuracy_is_refused_where_it_matters(name: str) -> None:
    """It leaves out the parameter, and answers with problems that any method may compute."""
    found = {"problem": PROBLEM, "count": 1, "where": ["@f"]}
    part = {**found, "key": "0", "state": "queued", "job": 1, "time_us": None}
    asked = {"id": 1, "state": "queued", "sha256": "0", "target": "host", "toolchain": "t",
             "cache": "hot", "trials": 1, "problems": [part], "skipped": [],
             "time_us": None}  # fmt: skip
    of_plan = {"phase": None, "name": "n", "seed": 0, "layouts": "all", "totals": None,
               "script_error": None, "error": None}  # fmt: skip
    of_op = {"problem": PROBLEM, "place": "@f", "script": "module {}"}
    answers = {
        "import": {"problems": [found], "skipped": []}, "script": of_op, "model": asked,
        "plan": {**asked, **of_plan},
    }  # fmt: skip

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=answers[name])

    told = refused(answer, OF_MODULES[name])
    assert f"got accuracy=strict and answers with {PROBLEM}: it is too old" in told


@pytest.mark.parametrize(
    ("problem", "is_taken"),
    [(f"{PROBLEM},sparsity=none,accuracy=strict", True), (f"{PROBLEM},sparsity=none", False)],
)
def test_a_newer_service_may_say_more_of_a_strict_problem(problem: str, is_taken: bool) -> None:
    found = {"problems": [{"problem": problem, "count": 1, "where": ["@f"]}], "skipped": []}

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=found)

    if is_taken:
        with Client("http://fake", httpx.MockTransport(answer)) as client:
            imported = client.import_module("module {}", accuracy="strict")
        assert [one.problem for one in imported.problems] == [problem]
    else:
        assert f"answers with {problem}" in refused(answer, OF_MODULES["import"])


ASKED: dict[str, Callable[[Client], Any]] = {
    "jobs": lambda client: list(client.jobs()),
    "trials": lambda client: list(client.trials(1)),
    "look_up": lambda client: client.look_up([PROBLEM]),
    "tokens": lambda client: client.tokens(),
    "events": lambda client: list(client.events(1)),
}


def refused(answer: Answer, ask: Callable[[Client], Any]) -> str:
    with (
        Client(
            "http://fake", httpx.MockTransport(answer), token="t", sleep=lambda _: None
        ) as client,
        pytest.raises(TilewiseError) as caught,
    ):
        ask(client)
    return str(caught.value)


@pytest.mark.parametrize("name", ["jobs", "trials", "look_up", "tokens"])
@pytest.mark.parametrize("listed", [None, {}, "x", [5], [None], ...], ids=repr)
def test_a_list_of_another_form_is_an_error_that_names_it(name: str, listed: Any) -> None:
    field = "schedules" if name == "look_up" else name
    answer = {"next": None} if listed is ... else {field: listed, "next": None}
    said = refused(lambda _: httpx.Response(200, json=answer), ASKED[name])
    assert f"unexpected answer from the service: {field}" in said


@pytest.mark.parametrize(
    "following", ["http://elsewhere/v1/jobs", "//elsewhere/", "/\\elsewhere/", "x", "", 5]
)
def test_no_page_leads_to_another_host(following: Any) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(200, json={"jobs": [], "next": following})

    assert "next" in refused(answer, ASKED["jobs"])
    assert asked == ["fake"], "a token is shown to its own service alone"


def test_no_file_leads_to_another_host() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(200, text="it")

    for place in ("http://elsewhere/script", "//elsewhere/script", "elsewhere/script"):
        assert "elsewhere" in refused(answer, lambda client, at=place: client.text(at))
    assert asked == []


@pytest.mark.parametrize("status", [420, 499, 520, 599, 600, 999])
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_a_status_that_nobody_has_heard_of_is_an_error(
    ask: Callable[[Client], Any], status: int
) -> None:
    assert refused(lambda _: httpx.Response(status), ask).startswith(f"{status} from http://fake/")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("space", ["", " "])
def test_events_are_read_as_the_standard_writes_them(end: str, space: str) -> None:
    first, *rest = json.dumps(documents.job(state="done"), indent=1).splitlines()
    lines = [":note", f"data:{space}{first}", *(f"data:{space}{one}" for one in rest),
             f"event:{space}end", "retry", "", ""]  # fmt: skip
    text = end.join(lines)
    with Client("http://fake", httpx.MockTransport(lambda _: httpx.Response(200, text=text))) as c:
        (ended,) = c.events(1)
    assert isinstance(ended, JobEnded) and ended.job.id == 1


def test_a_name_of_a_token_is_no_path() -> None:
    asked: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path)
        return httpx.Response(404, json={"detail": "no"})

    refused(answer, lambda client: client.revoke_token("../jobs/5?x#y"))
    assert asked == [b"/v1/tokens/..%2Fjobs%2F5%3Fx%23y"]
