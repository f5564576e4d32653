"""Carry out the steps of exchanges, with and without `async`."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from typing import Any, TypeVar

import httpx

from tilewise.client.calls import Calls
from tilewise.client.connection import SILENCE_S, TIMEOUT_S, sendable
from tilewise.client.events import BrokenStreamError, JobEnded, Stream, Told
from tilewise.client.exchange import (
    Ask,
    Exchange,
    Follow,
    PutOff,
    Step,
    accepted,
    backoff_s,
    pause_s,
)
from tilewise.client.pages import PagePath
from tilewise.client.results import Job, Json

Value = TypeVar("Value")


class Carrier:
    """Carries out the steps of exchanges.

    Args:
        calls: of the service.
        http: sends requests.
        sleep: waits for some seconds.
        patience_s: for which a service that cannot serve now is asked again.
    """

    def __init__(
        self,
        calls: Calls,
        http: httpx.Client,
        sleep: Callable[[float], None],
        patience_s: float,
    ) -> None:
        self._calls, self._http, self._sleep = calls, http, sleep
        self._patience_s = patience_s

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def events(self, follower: Stream[Told]) -> Iterator[Told]:
        """The events of something, over as many streams as it takes."""
        while not follower.is_over:
            with suppress(httpx.TransportError):  # counted below, as one that ends too early
                yield from self._stream(follower)
            if not follower.is_over:
                follower.lose()
                self._sleep(follower.put_off_s or backoff_s(follower.losses))

    def pages(self, first: PagePath) -> Iterator[Json]:
        """Every item of all pages of a list."""
        at: PagePath | None = first
        while at is not None:
            page = self.run(self._calls.page(at))
            yield from page.items
            at = page.following

    def run(self, exchange: Exchange[Value]) -> Value:
        """Carry out the steps of an exchange."""
        given: Any = None
        error: Exception | None = None
        while True:
            try:
                step = exchange.send(given) if error is None else exchange.throw(error)
            except StopIteration as ended:
                value: Value = ended.value
                return value
            given = error = None
            try:
                given = self._step(step)
            except (httpx.TransportError, BrokenStreamError) as lost:
                error = lost

    def _step(self, step: Step) -> object:
        if isinstance(step, Ask):
            return self._send(step)
        if isinstance(step, Follow):
            return self.follow(step)
        if isinstance(step, PutOff) and not step.is_within(self._patience_s):
            return False
        self._sleep(step.seconds)
        return True

    def _send(self, asked: Ask) -> httpx.Response:
        with sendable(self._calls.url):
            return self._http.request(
                asked.method,
                asked.path,
                params=asked.params or None,
                json=asked.json,
                content=asked.content,
                headers=asked.headers,
            )

    def follow(self, step: Follow) -> Job:
        """Follow a job to its end."""
        for event in self.events(step.follower):
            if step.on_event is not None:
                step.on_event(event)
            if isinstance(event, JobEnded):
                return event.job
        raise AssertionError("events end with that of the job")

    def _stream(self, follower: Stream[Told]) -> Iterator[Told]:
        headers, timeout = follower.headers, httpx.Timeout(TIMEOUT_S, read=SILENCE_S)
        with (
            sendable(self._calls.url),
            self._http.stream("GET", follower.path, headers=headers, timeout=timeout) as response,
        ):
            follower.put_off_s = pause_s(response, follower.losses)
            if follower.put_off_s is not None:
                return
            if not response.is_success:
                response.read()
                accepted(response)
            for text in response.iter_text():
                yield from follower.feed(text)


class AsyncCarrier:
    """Carries out the steps of exchanges.

    Args:
        calls: of the service.
        http: sends requests.
        sleep: waits for some seconds.
        patience_s: for which a service that cannot serve now is asked again.
    """

    def __init__(
        self,
        calls: Calls,
        http: httpx.AsyncClient,
        sleep: Callable[[float], Awaitable[None]],
        patience_s: float,
    ) -> None:
        self._calls, self._http, self._sleep = calls, http, sleep
        self._patience_s = patience_s

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def events(self, follower: Stream[Told]) -> AsyncGenerator[Told, None]:
        """The events of something, over as many streams as it takes."""
        while not follower.is_over:
            with suppress(httpx.TransportError):  # counted below, as one that ends too early
                async with aclosing(self._stream(follower)) as stream:
                    async for event in stream:
                        yield event
            if not follower.is_over:
                follower.lose()
                await self._sleep(follower.put_off_s or backoff_s(follower.losses))

    async def pages(self, first: PagePath) -> AsyncIterator[Json]:
        """Every item of all pages of a list."""
        at: PagePath | None = first
        while at is not None:
            page = await self.run(self._calls.page(at))
            for one in page.items:
                yield one
            at = page.following

    async def run(self, exchange: Exchange[Value]) -> Value:
        """Carry out the steps of an exchange."""
        given: Any = None
        error: Exception | None = None
        while True:
            try:
                step = exchange.send(given) if error is None else exchange.throw(error)
            except StopIteration as ended:
                value: Value = ended.value
                return value
            given = error = None
            try:
                given = await self._step(step)
            except (httpx.TransportError, BrokenStreamError) as lost:
                error = lost

    async def _step(self, step: Step) -> object:
        if isinstance(step, Ask):
            return await self._send(step)
        if isinstance(step, Follow):
            return await self.follow(step)
        if isinstance(step, PutOff) and not step.is_within(self._patience_s):
            return False
        await self._sleep(step.seconds)
        return True

    async def _send(self, asked: Ask) -> httpx.Response:
        with sendable(self._calls.url):
            return await self._http.request(
                asked.method,
                asked.path,
                params=asked.params or None,
                json=asked.json,
                content=asked.content,
                headers=asked.headers,
            )

    async def follow(self, step: Follow) -> Job:
        """Follow a job to its end."""
        async with aclosing(self.events(step.follower)) as events:
            async for event in events:
                if step.on_event is not None:
                    step.on_event(event)
                if isinstance(event, JobEnded):
                    return event.job
        raise AssertionError("events end with that of the job")

    async def _stream(self, follower: Stream[Told]) -> AsyncGenerator[Told, None]:
        headers, timeout = follower.headers, httpx.Timeout(TIMEOUT_S, read=SILENCE_S)
        stream = self._http.stream("GET", follower.path, headers=headers, timeout=timeout)
        with sendable(self._calls.url):
            async with stream as response:
                follower.put_off_s = pause_s(response, follower.losses)
                if follower.put_off_s is not None:
                    return
                if not response.is_success:
                    await response.aread()
                    accepted(response)
                async for text in response.aiter_text():
                    for event in follower.feed(text):
                        yield event
