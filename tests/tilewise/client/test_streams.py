import asyncio
import random
from collections.abc import Callable

import httpx
import pytest

from tests.tilewise.client import documents
from tilewise import AsyncClient, Client, TilewiseError
from tilewise.client import Event, JobEnded, PhaseReached, TrialEnded, events

END = documents.job(state="done")
Answer = Callable[[httpx.Request], httpx.Response]


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


class Service:
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
    service = Service(12, 6, seed)
    seen = collect(service, is_async=is_async)
    assert [e.trial.number for e in seen if isinstance(e, TrialEnded)] == list(range(12))
    assert isinstance(seen[-1], JobEnded) and seen[-1].job.state == "done"
    assert service.asked == sorted(service.asked) and service.asked[0] == -1


def collect(service: Answer, *, is_async: bool = False, after: int | None = None) -> list[Event]:
    transport = httpx.MockTransport(service)
    if not is_async:
        with Client("http://fake", transport, sleep=lambda _: None) as client:
            return list(client.events(1, after))

    async def steps() -> list[Event]:
        async with AsyncClient("http://fake", transport, sleep=no_sleep) as client:
            return [event async for event in client.events(1, after)]

    return asyncio.run(steps())


async def no_sleep(_seconds: float) -> None: ...


def test_a_stream_begins_after_the_trial_that_is_known() -> None:
    service = Service(5, 0, 0)
    seen = collect(service, after=2)
    assert service.asked == [2]
    assert [e.trial.number for e in seen if isinstance(e, TrialEnded)] == [3, 4]


def test_phases_and_what_is_new_to_this_version() -> None:
    text = (
        ": heartbeat\n\n"
        + documents.event("phase", {"name": "finals", "done": 1, "total": 5, "more": 1})
        + documents.event("invented", {"x": 1})
        + documents.event("end", END)
    )
    first, second = collect(lambda _: httpx.Response(200, text=text))
    assert isinstance(first, PhaseReached) and first.phase.name == "finals"
    assert isinstance(second, JobEnded)


@pytest.mark.parametrize("status", [503, 429, 502])
def test_a_service_that_is_busy_is_asked_again(status: int) -> None:
    answers = [httpx.Response(status, headers={"Retry-After": "1"}),
               httpx.Response(200, text=documents.stream(0, end=END))]  # fmt: skip
    seen = collect(lambda _: answers.pop(0))
    assert len(seen) == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_service_that_only_breaks_off_is_given_up(is_async: bool) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        raise httpx.ConnectError("refused")

    with pytest.raises(TilewiseError, match="broke off 11 times in a row"):
        collect(answer, is_async=is_async)
    assert len(asked) == events.MOST_LOSSES + 1


def test_a_heartbeat_says_that_the_service_lives() -> None:
    asked = []

    def answer(_request: httpx.Request) -> httpx.Response:
        asked.append(1)
        if len(asked) > 3 * events.MOST_LOSSES:
            return httpx.Response(200, text=documents.stream(end=END))
        return httpx.Response(200, text="retry: 1000\n\n: heartbeat\n\n")

    assert len(collect(answer)) == 1


@pytest.mark.parametrize("data", ["{", "[1]", '"x"', "{}", "[" * 100_000])
def test_an_event_that_is_none_is_an_error(data: str) -> None:
    with pytest.raises(TilewiseError):
        collect(lambda _: httpx.Response(200, text=f"event: trial\ndata: {data}\n\n"))
