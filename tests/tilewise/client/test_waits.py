"""Answers that are late, lost or broken off, and answers that are none."""

import random
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.tilewise.client import documents
from tests.tilewise.client.documents import PROBLEM, Answer, Json
from tilewise import BadInputError, Client, TilewiseError
from tilewise.backends import remote as remote_module
from tilewise.client import Event, JobEnded, PhaseReached, TrialEnded, events
from tilewise.client import transport as transport_module
from tilewise.errors import NoAnswerError


class Clock:
    def __init__(self) -> None:
        self.pauses: list[float] = []

    def now_s(self) -> float:
        return sum(self.pauses)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(transport_module, "now_s", made.now_s)
    monkeypatch.setattr(Service, "sleep", made.sleep, raising=False)
    return made


class Service:
    """Gives these answers in turn, the last one for ever; keeps what it was asked."""

    sleep: Callable[[float], None]

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.keys: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.method} {request.url.path}")
        self.keys.append(request.headers.get("Idempotency-Key"))
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def client(self) -> Client:
        return Client("http://fake", httpx.MockTransport(self), sleep=self.sleep)


def busy(seconds: str | None = "2", status: int = 503) -> httpx.Response:
    kind = {"Content-Type": "application/problem+json; charset=utf-8"}
    headers = kind if seconds is None else kind | {"Retry-After": seconds}
    return httpx.Response(status, headers=headers, json={"detail": "too many requests"})


def being_made(seconds: str | None = "3") -> httpx.Response:
    return busy(seconds, 202)


LOST = [
    httpx.ReadError("reset"), httpx.ReadTimeout("late"), httpx.RemoteProtocolError("closed"),
    httpx.ConnectError("refused"), httpx.WriteError("reset"),
]  # fmt: skip

SAFE: list[tuple[Callable[[Client], object], str, Json]] = [
    (lambda client: client.submit(PROBLEM), "POST /v1/jobs", documents.job()),
    (lambda client: client.look_up([PROBLEM]), "POST /v1/schedules/lookup", {"schedules": []}),
    (lambda client: client.cancel(1), "DELETE /v1/jobs/1", documents.job()),
    (lambda client: client.job(1), "GET /v1/jobs/1", documents.job()),
    (lambda client: client.targets(), "GET /v1/targets", {"targets": []}),
]


@pytest.mark.parametrize("lost", LOST, ids=lambda lost: type(lost).__name__)
@pytest.mark.parametrize(("call", "sent", "answer"), SAFE, ids=lambda one: str(one)[:20])
def test_what_is_safe_is_sent_again_when_its_answer_was_lost(call, sent, answer, lost, clock):
    service = Service(lost, lost, httpx.Response(200, json=answer))
    with service.client as client:
        call(client)
    assert service.asked == [sent] * 3
    first, second = clock.pauses
    assert 0.125 <= first <= 0.25 <= second <= 0.5, "pauses grow, and chance spreads them"
    assert len(set(service.keys)) == 1, "again under the same key"
    service = Service(*OUTAGE, lost, httpx.Response(200, json=answer))
    with service.client as client:
        call(client)
    assert service.asked == [sent] * 8 and clock.now_s() > 60, "a minute without a database"
    assert len(set(service.keys)) == 1


@pytest.mark.parametrize("lost", [*LOST, httpx.Response(503, headers={"Retry-After": "1"})])
def test_a_new_token_is_asked_for_once(lost: Exception | httpx.Response, clock: Clock) -> None:
    service = Service(lost, httpx.Response(201, json={}))
    with service.client as client, pytest.raises(TilewiseError):
        client.create_token("ci", "read")
    assert service.asked == ["POST /v1/tokens"] and clock.pauses == []


@pytest.mark.parametrize("lost", [*LOST, *map(httpx.Response, (502, 504))], ids=repr)
def test_a_service_that_is_not_there_is_given_up(lost: Any, clock: Clock) -> None:
    service, is_late = Service(lost), getattr(lost, "status_code", None) == 504
    with service.client as client, pytest.raises(TilewiseError, match="from http://fake") as caught:
        client.job(1)
    assert isinstance(caught.value, NoAnswerError) != is_late, "other requests may be answered"
    assert len(service.asked) == transport_module.MOST_TRIES
    assert len(clock.pauses) == transport_module.MOST_TRIES - 1


def test_a_request_that_was_put_off_is_sent_again_when_the_service_says(clock: Clock) -> None:
    found = httpx.Response(200, json=documents.job())
    service = Service(busy("2"), busy("7", 429), busy("0"), found)
    with service.client as client:
        assert client.job(1).document == documents.job()
    assert service.asked == ["GET /v1/jobs/1"] * 4
    assert clock.pauses == [2.0, 7.0, 0.0]


@pytest.mark.parametrize("said", ["1", "0", "10"])
def test_a_service_that_stays_busy_is_given_up_when_patience_ends(clock: Clock, said: str) -> None:
    service = Service(busy(said))
    with service.client as client, pytest.raises(TilewiseError, match="too many requests"):
        client.job(1)
    assert transport_module.PATIENCE_S - 10 < sum(clock.pauses) <= transport_module.PATIENCE_S
    assert len(service.asked) == len(clock.pauses) + 1 < 130, "not without a pause"


OUTAGE = [busy("10")] * 6  # a minute without a database


@pytest.mark.parametrize(("patience_s", "tries"), [(0.0, 1), (25.0, 3), (60.0, 7)])
def test_patience_is_the_callers(clock: Clock, patience_s: float, tries: int) -> None:
    service = Service(*OUTAGE, httpx.Response(200, json=documents.job()))
    transport = httpx.MockTransport(service)
    client = Client("http://fake", transport, patience_s=patience_s, sleep=clock.sleep)
    with client, suppress(TilewiseError):
        client.job(1)
    assert len(service.asked) == tries


def test_a_fault_that_does_not_pass_is_told_at_once(clock: Clock) -> None:
    for answer in (busy(None), busy("1", 500)):
        service = Service(answer)
        with service.client as client, pytest.raises(TilewiseError):
            client.job(1)
        assert len(service.asked) == 1
    assert clock.pauses == []


@pytest.mark.parametrize("ask", [Client.script, Client.kernel])
def test_a_text_that_is_being_made_is_waited_for(ask: Callable[..., Any], clock: Clock) -> None:
    service = Service(being_made("3"), being_made(None), busy("1"), httpx.Response(200, text="it"))
    told: list[None] = []
    with service.client as client:
        assert ask(client, PROBLEM, on_wait=lambda: told.append(None)).text == "it"
    assert clock.pauses == [3.0, transport_module.RETRY_S, 1.0]
    assert len(told) == 1, "one word for the whole wait"
    assert len(set(service.asked)) == 1 and len(service.asked) == 4


def test_a_text_that_is_never_made_is_given_up(clock: Clock) -> None:
    service, said = Service(being_made("7")), r"/script was not generated within 180 s; .* retry"
    with service.client as client, pytest.raises(TilewiseError, match=said):
        client.script(PROBLEM)
    waited = sum(clock.pauses)
    assert transport_module.MADE_WITHIN_S - 7 < waited <= transport_module.MADE_WITHIN_S


@pytest.mark.parametrize("said", [
    "-5", "1e9", "inf", "nan", "soon", "", "9" * 5000, "²", "0.5", "Wed, 21 Oct 2037 07:28:00 GMT",
], ids=lambda text: ascii(text)[:30])  # fmt: skip
def test_no_service_makes_the_client_wait_for_long(clock: Clock, said: str) -> None:
    late = httpx.Response(202, headers={"Retry-After": said.encode()})
    with Service(late, httpx.Response(200, text="it")).client as client:
        assert client.script(PROBLEM).text == "it"
    assert len(clock.pauses) == 1
    assert 0 <= clock.pauses[0] <= transport_module.LONGEST_RETRY_S


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000, '"state"', "NaN", "9" * 5000])
def test_an_answer_that_is_no_object_is_an_error(text: str) -> None:
    for status, said in ((200, "did not answer with"), (500, "500 from http://fake")):
        service = Service(httpx.Response(status, text=text))
        with service.client as client, pytest.raises(TilewiseError, match=said):
            client.job(1)


@pytest.mark.parametrize("url", [
    *("", "fake", "ftp://fake", "http://", "http:fake", "//fake", "http://[::1", "http://\0"),
    *("http://h:port", "http://h:0", "http://h:-1", "http://h:65536", "http://h:" + "9" * 5000),
    *("http://\udcff", "http://\u2028", "http://xn--/", "http://a..b", "http://" + "x" * 64),
    *("http://user:secret@h:99999", "http://user:secret@a..b", "http://user:secret@h:port"),
], ids=lambda text: ascii(text)[:30])  # fmt: skip
def test_a_server_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(BadInputError, match="server") as caught:
        Client(url)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 2500
    assert "secret" not in str(caught.value)


def test_a_password_is_not_shown_when_a_service_fails() -> None:
    for answer in (httpx.Response(500), httpx.Response(200, text="{"), httpx.ReadError("reset")):
        transport = httpx.MockTransport(Service(answer))
        client = Client("http://user:secret@fake", transport, sleep=Service.sleep)
        with client, pytest.raises(TilewiseError) as caught:
            client.job(1)
        assert "fake" in str(caught.value) and "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["\ud800", "a\udcff"])
def test_what_is_no_text_is_not_sent(text: str) -> None:
    service = Service(httpx.Response(200, json={}))
    with service.client as client:
        for call in (client.submit, client.tune, client.schedule, lambda t: client.look_up([t])):
            with pytest.raises(BadInputError, match="cannot be sent"):
                call(text)
        with pytest.raises(BadInputError, match="is not a problem"):
            client.script(text)
        with pytest.raises(BadInputError, match="cannot be sent"):
            client.script(PROBLEM, target=text)
    assert service.asked == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("command", "said"), [("script", "proves the script"), ("kernel", "prints the kernel")]
)
def test_the_command_line_says_why_it_waits(cli, monkeypatch, command: str, said: str) -> None:
    service = Service(being_made(), httpx.Response(200, text="it\n"))
    monkeypatch.setattr(remote_module, "Client", lambda _: service.client)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    ran = cli(command, PROBLEM, "--server", "http://fake")
    assert (ran.code, ran.out, len(service.asked)) == (0, "it\n", 2)
    assert ran.err == f"tilewise: the service {said}, which takes a moment\n"


def test_a_model_is_asked_for_again_until_its_module_was_read() -> None:
    reading = httpx.Response(202, json={"detail": "being read", "location": "/v1/models"},
                             headers={"Retry-After": "2"})  # fmt: skip
    service = Service(reading, reading, httpx.Response(202, json=documents.model()))
    told: list[str] = []
    with service.client as client:
        model = client.submit_model("module {}", lambda: told.append("waits"))
    assert (model.id, model.state, model.has_ended) == (1, "running", False)
    assert (model.problems[0].count, model.problems[0].job) == (2, 1)
    assert service.asked == ["POST /v1/models"] * 3
    assert told == ["waits"]


END = documents.job(state="done")


class Torn(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that comes in pieces of chance, and breaks off."""

    def __init__(self, text: str, rng: random.Random, *, breaks: bool) -> None:
        self._raw, self._rng, self._breaks = text.encode(), rng, breaks

    def __iter__(self):
        left = self._raw
        while left:
            size = self._rng.randrange(1, 40)
            yield left[:size]
            left = left[size:]
        if self._breaks:
            raise httpx.ReadError("torn")

    async def __aiter__(self):
        for piece in self:
            yield piece


class Breaking:
    """Has a job of so many trials; each stream breaks off somewhere, but the last."""

    def __init__(self, trials: int, streams: int, seed: int) -> None:
        self.trials, self.streams = trials, streams
        self.rng = random.Random(seed)
        self.asked: list[int] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        after = int(request.headers["Last-Event-ID"])
        self.asked.append(after)
        # A service may begin before what was asked for: the client has seen it.
        first = max(0, after + 1 - self.rng.randrange(3))
        whole = documents.stream(*range(first, self.trials), end=END)
        is_last = len(self.asked) > self.streams
        text = whole if is_last else whole[: self.rng.randrange(len(whole))]
        return httpx.Response(200, stream=Torn(text, self.rng, breaks=not is_last))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_async", [False, True])
def test_each_trial_comes_once_however_streams_break(seed: int, is_async: bool) -> None:
    service = Breaking(12, 6, seed)
    seen = collect(service, is_async=is_async)
    assert [e.trial.number for e in seen if isinstance(e, TrialEnded)] == list(range(12))
    assert isinstance(seen[-1], JobEnded) and seen[-1].job.state == "done"
    assert service.asked == sorted(service.asked) and service.asked[0] == -1


def collect(service: Answer, *, is_async: bool = False, after: int | None = None) -> list[Event]:
    return documents.call(service, "events", 1, after, is_async=is_async)


def test_a_stream_begins_after_the_known_trial_with_phases_and_what_is_new() -> None:
    service = Breaking(5, 0, 0)
    seen = collect(service, after=2)
    assert service.asked == [2]
    assert [e.trial.number for e in seen if isinstance(e, TrialEnded)] == [3, 4]
    phase = {"name": "finals", "done": 1, "total": 5, "more": 1}
    told = (("phase", phase), ("invented", {"x": 1}), ("end", END))
    text = ": heartbeat\n\n" + "".join(documents.event(*one) for one in told)
    first, second = collect(lambda _: httpx.Response(200, text=text))
    assert isinstance(first, PhaseReached) and first.phase.name == "finals"
    assert isinstance(second, JobEnded)


@pytest.mark.parametrize("status", [503, 429, 502])
def test_a_stream_of_a_service_that_is_busy_is_asked_for_again(status: int) -> None:
    answers = [busy("1", status), httpx.Response(200, text=documents.stream(0, end=END))]
    assert len(collect(lambda _: answers.pop(0))) == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_service_that_only_breaks_off_is_given_up(is_async: bool) -> None:
    service = Service(httpx.ConnectError("refused"))
    with pytest.raises(TilewiseError, match="broke off 11 times in a row"):
        collect(service, is_async=is_async)
    assert len(service.asked) == events.MOST_LOSSES + 1


def test_a_heartbeat_says_that_the_service_lives() -> None:
    beats = ["retry: 1000\n\n: heartbeat\n\n"] * 3 * events.MOST_LOSSES
    texts = [*beats, documents.stream(end=END)]
    assert len(collect(Service(*(httpx.Response(200, text=text) for text in texts)))) == 1


@pytest.mark.parametrize("data", ["{", "[1]", '"x"', "{}", "[" * 100_000])
def test_an_event_that_is_none_is_an_error(data: str) -> None:
    with pytest.raises(TilewiseError):
        collect(lambda _: httpx.Response(200, text=f"event: trial\ndata: {data}\n\n"))
