"""Calls of a client: what it asks for, and what it makes of any answer."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.tilewise.client import documents
from tests.tilewise.client.documents import PROBLEM, RANGE, Answer, Json
from tilewise import Client, MissingError, TilewiseError
from tilewise.client import Event, Job, JobEnded, PhaseReached, Result, TrialEnded, api, events
from tilewise.client.events import JobSubmitted
from tilewise.client.transport import MOST_TRIES
from tilewise.kernels.problem import parse_problem
from tilewise.schema.base import read


class FakeService:
    """Runs job 1 for a few trials already; then takes what is asked for."""

    def __init__(self, ends: str = "done") -> None:
        self.posted: list[dict[str, object]] = []
        self.keys: list[str] = []
        self.ends = ends

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            self.posted.append(json.loads(request.content))
            self.keys.append(request.headers["Idempotency-Key"])
            state = "queued" if len(self.posted) > 1 else "running"
            return httpx.Response(202, json=self.job(state))
        if request.url.path == "/v1/schedules":
            made = documents.tuned_range if self.posted[0]["problem"] == RANGE else documents.result
            return httpx.Response(200, json=made(elapsed_s=float(len(self.posted))))
        return httpx.Response(200, text=documents.stream(0, 1, end=self.job(self.ends)))

    def job(self, state: str) -> documents.Json:
        asked = (4, 64)[len(self.posted) - 1]
        trials = {**documents.COUNTS, "asked": asked}
        return documents.job(id=len(self.posted), state=state, trials=trials, error="it")


@pytest.mark.parametrize(("tune", "problem"), [("tune", PROBLEM), ("tune_range", RANGE)])
@pytest.mark.parametrize(("options", "asked"), [
    ({"trials": 4}, 1), ({"trials": 3}, 1), ({"trials": 9}, 2),
    ({}, 2), ({"trials": 3, "peers": True}, 2),
])  # fmt: skip
def test_what_a_joined_job_leaves_out_is_asked_for_again(tune, problem, options, asked) -> None:
    service, seen = FakeService(), list[Event]()
    with Client("http://fake", httpx.MockTransport(service)) as client:
        found = getattr(client, tune)(problem, seen.append, **options)
    assert found.elapsed_s == asked
    assert service.posted == [{"problem": problem, **options}] * asked
    assert len(set(service.keys)) == asked, "each request has a key of its own"
    kinds = [JobSubmitted, TrialEnded, TrialEnded, JobEnded]
    assert [type(one) for one in seen] == kinds * asked


def test_a_job_that_fails_is_an_error_with_its_reason() -> None:
    said = refused(FakeService(ends="failed"), lambda client: client.tune(PROBLEM, trials=4))
    assert "1 failed: it" in said
    assert "call tune_range" in refused(FakeService(), lambda client: client.tune(RANGE))


def test_pages_are_followed_with_their_filters() -> None:
    asked: list[str] = []

    def pages(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.query.decode())
        number = len(asked)
        following = f"/v1/trials?cursor={number}" if number < 3 else None
        page = [documents.stored_trial(number)]
        return httpx.Response(200, json={"trials": page, "next": following})

    with Client("http://fake", httpx.MockTransport(pages)) as client:
        found = list(client.stored_trials(PROBLEM, state="timed"))
    assert [one.number for one in found] == [1, 2, 3]
    first = httpx.QueryParams(asked[0])
    assert (first["problem"], first["state"]) == (PROBLEM, "timed") and "target" not in first
    assert asked[1:] == ["cursor=1", "cursor=2"]


A, B, C = (f"matmul:m={n},n=4,k=4,dtype=f32" for n in (1, 2, 3))


def test_many_problems_are_looked_up_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MOST_PROBLEMS", 2)
    bodies = []

    def look_up(request: httpx.Request) -> httpx.Response:
        bodies.append(body := json.loads(request.content))
        assert (request.url.path, body["target"]) == ("/v1/schedules/lookup", "t")
        found = [{"problem": p, "key": "k",
                  "schedule": documents.result(problem=p) if p != B else None}
                 for p in body["problems"]]  # fmt: skip
        return httpx.Response(200, json={"target": "t", "schedules": found})

    a, c = (parse_problem(one).key for one in (A, C))
    known = {a: {"cpu": "1"}, c: {"cpu": "3"}, "absent": {"cpu": "4"}}
    found = documents.call(look_up, "look_up", [A, B, C], "t", files=["cpu"], known=known)
    assert [one.problem for one in found] == [A, B, C]
    assert [one.result and one.result.problem for one in found] == [A, None, C]
    assert [len(body["problems"]) for body in bodies] == [2, 1]
    assert [body["known"] for body in bodies] == [{a: {"cpu": "1"}}, {c: {"cpu": "3"}}]
    assert all(body["files"] == ["cpu"] for body in bodies)


def test_results_are_frozen_values_that_keep_what_the_service_said() -> None:
    source = documents.result(something_new={"x": 1})
    found = read(Result, source)
    assert found.document == source
    assert found.best.interval == (4.5, 5.5) and found.peers["openblas"].gflops == 4.0
    assert found.trials.ended == 4 and found.proof and found.proof.executed
    assert found.created == datetime(2026, 11, 23, 10, tzinfo=UTC)
    assert found == read(Result, documents.result()), "what is unknown makes no difference"
    assert "something_new" not in repr(found)
    with pytest.raises(AttributeError):
        found.key = ""  # type: ignore[misc]
    del source["match"], source["created"]
    assert read(Result, source).match is None, "an older service says less"
    job = documents.job()
    del job["phase"]
    assert read(Job, job).phase is None and not read(Job, job).has_ended


@pytest.mark.parametrize(("change", "said"), [
    ({"key": 5}, "Result.key is 5, not of type str"),
    ({"best": None}, "Result.best is None, not of type dict"),
    ({"best": {**documents.BEST, "gflops": "fast"}}, "Result.best.gflops is 'fast'"),
    ({"best": {"hash": "h"}}, "Result.best has no gflops, interval, peak_fraction, steps"),
    ({"created": "soon"}, "Result.created is 'soon', not a moment"),
    ({"complete": 1}, "Result.complete is 1, not of type bool"),
])  # fmt: skip
def test_an_answer_of_another_form_is_an_error_that_names_the_field(change, said) -> None:
    with pytest.raises(TilewiseError, match=f"unexpected answer from the service: {said}"):
        read(Result, documents.result(**change))


def test_a_text_says_what_it_belongs_to() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        headers = {"ETag": 'W/"abc"', "Tilewise-Match": "processor", "Tilewise-Target": "cpu:x"}
        if request.headers.get("If-None-Match") == '"abc"':
            return httpx.Response(304, headers=headers)
        return httpx.Response(200, text="it", headers=headers)

    with Client("http://fake", httpx.MockTransport(answer)) as client:
        text = client.script(PROBLEM, match="nearest")
        again = client.text("/v1/schedules/k/script?target=t&flavor=cpu", known="abc")
    assert (text.text, text.etag, text.match, text.target) == ("it", "abc", "processor", "cpu:x")
    assert again.text is None and again.etag == "abc"
    assert asked[0].url.params["match"] == "nearest"
    assert {one.headers["Accept-Encoding"] for one in asked} == {"identity"}
    assert str(asked[1].url).endswith("/script?target=t&flavor=cpu")


def test_a_token_is_shown_and_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []

    def answer(request: httpx.Request) -> httpx.Response:
        shown.append(request.headers.get("Authorization"))
        return httpx.Response(401, json={"detail": "who are you?"})

    monkeypatch.setenv("TILEWISE_TOKEN", "tw_environment")
    for token in (None, "tw_given", ""):
        client = Client("http://fake", httpx.MockTransport(answer), token=token)
        with client, pytest.raises(TilewiseError, match=r"who are.*TILEWISE_TOKEN") as caught:
            client.job(1)
        assert "tw_" not in str(caught.value) + repr(client)
    assert shown == ["Bearer tw_environment", "Bearer tw_given", None]
    for token in ("a b", "a\nb", "é"):
        with pytest.raises(TilewiseError, match="is not a token") as caught:
            Client("http://fake", token=token)
        assert token not in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [
    ("ALL_PROXY", "socks5://h:1"), ("HTTP_PROXY", "socks4://h:1"), ("HTTP_PROXY", "http://[::1"),
    ("SSL_CERT_FILE", "/nonexistent.pem"),
])  # fmt: skip
def test_an_unusable_environment_is_named(name, value, monkeypatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(TilewiseError, match="proxies or certificates of the environment"):
        Client("http://fake")


@pytest.mark.parametrize("method", ["script", "kernel", "object_files"])
def test_what_is_missing_of_a_problem_is_an_error_with_the_problem_not_its_key(method: str) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        key = request.url.path.split("/")[3]
        said = f"no schedule of a problem with the key {key} is stored for cpu:znver4,threads=1"
        return httpx.Response(404, json={"detail": said})

    spelled = "matmul: k=4, m=1, n=4, dtype=f32"
    said = refused(refuse, lambda client: getattr(client, method)(spelled), MissingError)
    assert said == f"no schedule of {A} is stored for cpu:znver4,threads=1"


TRIALS = 7


class Polled:
    """Runs job 1, of which each look finds more trials; restarts often, and has no events."""

    def __init__(self, job: Json, streamed: str = "") -> None:
        self.job, self.streamed = job, streamed
        self.looks, self.streams, self.asked = 0, 0, 0
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
        self.asked += 1
        if self.asked % 14 <= MOST_TRIES + 2:
            return httpx.Response(502 + self.asked % 3)
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
    seen = list[Event]()
    documents.call(service, "tune", PROBLEM, seen.append, is_async=is_async)
    return seen


def numbers(seen: list[Event]) -> list[int]:
    return [one.trial.number for one in seen if isinstance(one, TrialEnded)]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_service_without_events_or_whose_streams_bring_nothing_is_polled(is_async: bool) -> None:
    service = Polled(documents.job(links={"self": "/v1/jobs/1"}))
    seen = tuned(service, is_async=is_async)
    assert service.streams == 0
    assert numbers(seen) == list(range(TRIALS)) and isinstance(seen[-1], JobEnded)
    assert [one.phase.done for one in seen if isinstance(one, PhaseReached)] == [2, 4, 6, 7]
    assert len(service.pages) < 4 + 3, "a page that was full is asked for once more at most"
    service = Polled(documents.job(), documents.stream(0, 1, 2))
    seen = tuned(service, is_async=is_async)
    assert service.streams > events.MOST_LOSSES
    assert numbers(seen) == list(range(TRIALS)), "also those that a stream had brought, once"


ASKED: dict[str, Callable[[Client], Any]] = {
    "jobs": lambda client: list(client.jobs()),
    "trials": lambda client: list(client.trials(1)),
    "look_up": lambda client: client.look_up([PROBLEM]),
    "tokens": lambda client: client.tokens(),
    "events": lambda client: list(client.events(1)),
}


def refused(
    answer: Answer, ask: Callable[[Client], Any], kind: type[TilewiseError] = TilewiseError
) -> str:
    """Return the message of the error that a call ends with."""
    transport = httpx.MockTransport(answer)
    client = Client("http://fake", transport, token="t", sleep=lambda _: None)
    with client, pytest.raises(kind) as caught:
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
        assert not asked, "a token is shown to its own service alone"
        asked.append(request.url.host)
        return httpx.Response(200, json={"jobs": [], "next": following})

    assert "next" in refused(answer, ASKED["jobs"])
    assert asked == ["fake"]


def test_no_file_leads_to_another_host_and_no_name_of_a_token_is_a_path() -> None:
    for place in ("http://elsewhere/script", "//elsewhere/script", "elsewhere/script"):
        said = refused(pytest.fail, lambda client, at=place: client.text(at))
        assert "elsewhere" in said
    asked: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path)
        return httpx.Response(404, json={"detail": "no"})

    refused(answer, lambda client: client.revoke_token("../jobs/5?x#y"))
    assert asked == [b"/v1/tokens/..%2Fjobs%2F5%3Fx%23y"]


@pytest.mark.parametrize("status", [307, 420, 499, 520, 599, 600, 999])
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_a_redirect_or_a_status_that_nobody_has_heard_of_is_an_error(ask, status) -> None:
    answer = httpx.Response(status, headers={"Location": "http://elsewhere/"})
    assert refused(lambda _: answer, ask).startswith(f"{status} from http://fake/")


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
