import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import httpx
import pytest

from tests.tilewise.client import documents
from tests.tilewise.client.documents import PROBLEM, Json
from tests.tilewise.conftest import Cli
from tilewise import BadInputError, Client, TilewiseError
from tilewise.backends import remote as remote_module
from tilewise.client import transport as transport_module


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


def busy(seconds: str | None = "2") -> httpx.Response:
    headers = {} if seconds is None else {"Retry-After": seconds}
    return httpx.Response(503, headers=headers, json={"detail": "too many requests"})


def being_made(seconds: str | None = "3") -> httpx.Response:
    headers = {"Location": "/v1/elsewhere"} | ({} if seconds is None else {"Retry-After": seconds})
    return httpx.Response(202, headers=headers, json={"state": "running"})


LOST = [
    httpx.ReadError("reset"),
    httpx.ReadTimeout("late"),
    httpx.RemoteProtocolError("closed"),
    httpx.ConnectError("refused"),
    httpx.WriteError("reset"),
]


SAFE: list[tuple[Callable[[Client], object], str, Json]] = [
    (lambda client: client.submit(PROBLEM), "POST /v1/jobs", documents.job()),
    (lambda client: client.look_up([PROBLEM]), "POST /v1/schedules/lookup", {"schedules": []}),
    (lambda client: client.cancel(1), "DELETE /v1/jobs/1", documents.job()),
    (lambda client: client.job(1), "GET /v1/jobs/1", documents.job()),
    (lambda client: client.targets(), "GET /v1/targets", {"targets": []}),
]


@pytest.mark.parametrize("lost", LOST, ids=lambda lost: type(lost).__name__)
@pytest.mark.parametrize(("call", "sent", "answer"), SAFE, ids=lambda one: str(one)[:20])
def test_what_is_safe_is_sent_again_when_its_answer_was_lost(
    call: Callable[[Client], object], sent: str, answer: Json, lost: Exception, clock: Clock
) -> None:
    service = Service(lost, lost, httpx.Response(200, json=answer))
    with service.client as client:
        call(client)
    assert service.asked == [sent] * 3
    first, second = clock.pauses
    assert 0.125 <= first <= 0.25 <= second <= 0.5, "pauses grow, and chance spreads them"
    assert len(set(service.keys)) == 1, "again under the same key"


def test_a_search_is_never_sent_again_under_another_key() -> None:
    service = Service(httpx.Response(202, json=documents.job()))
    with service.client as client:
        client.submit(PROBLEM)
        client.submit(PROBLEM)
    assert len(set(service.keys)) == 2 and all(service.keys)


@pytest.mark.parametrize("lost", [*LOST, httpx.Response(503, headers={"Retry-After": "1"})])
def test_a_new_token_is_asked_for_once(lost: Exception | httpx.Response, clock: Clock) -> None:
    service = Service(lost, httpx.Response(201, json={}))
    with service.client as client, pytest.raises(TilewiseError):
        client.create_token("ci", "read")
    assert service.asked == ["POST /v1/tokens"] and clock.pauses == []


@pytest.mark.parametrize("lost", LOST, ids=lambda lost: type(lost).__name__)
def test_a_service_that_is_not_there_is_given_up(lost: Exception, clock: Clock) -> None:
    service = Service(lost)
    with service.client as client, pytest.raises(TilewiseError, match="no answer from http://fake"):
        client.job(1)
    assert len(service.asked) == transport_module.MOST_TRIES
    assert len(clock.pauses) == transport_module.MOST_TRIES - 1


def test_who_asks_too_often_waits_as_long_as_the_service_says(clock: Clock) -> None:
    refused = httpx.Response(429, headers={"Retry-After": "7"}, json={"detail": "too many"})
    service = Service(refused, httpx.Response(202, json=documents.job()))
    with service.client as client:
        client.submit(PROBLEM)
    assert clock.pauses == [7.0]


def test_a_question_that_was_put_off_is_asked_again_when_it_should_be(clock: Clock) -> None:
    service = Service(busy("2"), busy("0"), httpx.Response(200, json=documents.job()))
    with service.client as client:
        assert client.job(1).document == documents.job()
    assert service.asked == ["GET /v1/jobs/1"] * 3
    assert clock.pauses == [2.0, 0.0]


@pytest.mark.parametrize("said", ["1", "0", "10"])
def test_a_service_that_stays_busy_is_given_up_when_patience_ends(clock: Clock, said: str) -> None:
    service = Service(busy(said))
    with service.client as client, pytest.raises(TilewiseError, match="too many requests"):
        client.job(1)
    assert transport_module.PATIENCE_S - 10 < sum(clock.pauses) <= transport_module.PATIENCE_S
    assert len(service.asked) == len(clock.pauses) + 1 < 130, "not without a pause"


def outage() -> list[httpx.Response]:
    told = {"detail": "database postgresql://db/tilewise cannot be reached"}
    return [httpx.Response(503, headers={"Retry-After": "10"}, json=told) for _ in range(6)]


@pytest.mark.parametrize(("call", "sent", "answer"), SAFE, ids=lambda one: str(one)[:20])
def test_a_request_outlives_a_minute_without_a_database(
    call: Callable[[Client], object], sent: str, answer: Json, clock: Clock
) -> None:
    service = Service(*outage(), httpx.ReadError("reset"), httpx.Response(200, json=answer))
    with service.client as client:
        call(client)
    assert service.asked == [sent] * 8 and clock.now_s() > 60
    assert len(set(service.keys)) == 1, "again under the same key"


@pytest.mark.parametrize(("patience_s", "tries"), [(0.0, 1), (25.0, 3), (60.0, 7)])
def test_patience_is_the_callers(clock: Clock, patience_s: float, tries: int) -> None:
    service = Service(*outage(), httpx.Response(200, json=documents.job()))
    transport = httpx.MockTransport(service)
    client = Client("http://fake", transport, patience_s=patience_s, sleep=clock.sleep)
    with client, suppress(TilewiseError):
        client.job(1)
    assert len(service.asked) == tries


def test_a_fault_that_does_not_pass_is_told_at_once(clock: Clock) -> None:
    for answer in (busy(None), httpx.Response(500, headers={"Retry-After": "1"})):
        service = Service(answer)
        with service.client as client, pytest.raises(TilewiseError):
            client.job(1)
        assert len(service.asked) == 1
    assert clock.pauses == []


def the_script(client: Client, on_wait: Callable[[], None]) -> str:
    return client.script(PROBLEM, on_wait=on_wait).text or ""


def the_kernel(client: Client, on_wait: Callable[[], None]) -> str:
    return client.kernel(PROBLEM, on_wait=on_wait).text or ""


@pytest.mark.parametrize("ask", [the_script, the_kernel])
def test_a_text_that_is_being_made_is_waited_for(
    ask: Callable[[Client, Callable[[], None]], str], clock: Clock
) -> None:
    service = Service(being_made("3"), being_made(None), busy("1"), httpx.Response(200, text="it"))
    told: list[None] = []
    with service.client as client:
        assert ask(client, lambda: told.append(None)) == "it"
    assert clock.pauses == [3.0, transport_module.RETRY_S, 1.0]
    assert len(told) == 1, "one word for the whole wait"
    assert len(set(service.asked)) == 1 and len(service.asked) == 4


def test_a_text_that_is_never_made_is_given_up(clock: Clock) -> None:
    service = Service(being_made("7"))
    with (
        service.client as client,
        pytest.raises(
            TilewiseError, match=r"/script was not generated within 180 s; .* retry later"
        ),
    ):
        client.script(PROBLEM)
    waited = sum(clock.pauses)
    assert transport_module.MADE_WITHIN_S - 7 < waited <= transport_module.MADE_WITHIN_S


@pytest.mark.parametrize(
    "said",
    [
        "-5",
        "1e9",
        "inf",
        "nan",
        "soon",
        "",
        "9" * 5000,
        "²",
        "0.5",
        "Wed, 21 Oct 2037 07:28:00 GMT",
    ],
    ids=lambda text: ascii(text)[:30],
)
def test_no_service_makes_the_client_wait_for_long(clock: Clock, said: str) -> None:
    headers = {"Retry-After": said.encode()}
    late = httpx.Response(202, headers=headers)
    with Service(late, httpx.Response(200, text="it")).client as client:
        assert client.script(PROBLEM).text == "it"
    assert len(clock.pauses) == 1
    assert 0 <= clock.pauses[0] <= transport_module.LONGEST_RETRY_S


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000, '"state"', "NaN", "9" * 5000])
def test_an_answer_that_is_no_object_is_an_error(text: str) -> None:
    with (
        Service(httpx.Response(200, text=text)).client as client,
        pytest.raises(TilewiseError, match="did not answer with"),
    ):
        client.job(1)
    with (
        Service(httpx.Response(500, text=text)).client as client,
        pytest.raises(TilewiseError, match="500 from http://fake"),
    ):
        client.job(1)


@pytest.mark.parametrize(
    "url",
    [
        *("", "fake", "ftp://fake", "http://", "http:fake", "//fake", "http://[::1", "http://\0"),
        *("http://h:port", "http://h:0", "http://h:-1", "http://h:65536", "http://h:" + "9" * 5000),
        *("http://\udcff", "http://\u2028", "http://xn--/", "http://a..b", "http://" + "x" * 64),
        *("http://user:secret@h:99999", "http://user:secret@a..b", "http://user:secret@h:port"),
    ],
    ids=lambda text: ascii(text)[:30],
)  # fmt: skip
def test_a_server_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(BadInputError, match="server") as caught:
        Client(url)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 2500
    assert "secret" not in str(caught.value)


def test_a_password_is_not_shown_when_a_service_fails() -> None:
    for answer in (httpx.Response(500), httpx.Response(200, text="{"), httpx.ReadError("reset")):
        transport = httpx.MockTransport(Service(answer))
        with (
            Client("http://user:secret@fake", transport, sleep=Service.sleep) as client,
            pytest.raises(TilewiseError) as caught,
        ):
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


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    service = Service(being_made(), httpx.Response(200, text="it\n"))
    transport = httpx.MockTransport(service)
    monkeypatch.setattr(remote_module, "Client", lambda url: Client(url, transport))
    yield "http://fake"
    assert len(service.asked) == 2


@pytest.mark.full
@pytest.mark.parametrize(
    ("command", "said"), [("script", "proves the script"), ("kernel", "prints the kernel")]
)
def test_the_command_line_says_why_it_waits(
    cli: Cli, waiting: str, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    ran = cli(command, PROBLEM, "--server", waiting)
    assert (ran.code, ran.out) == (0, "it\n")
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
