"""Feeds of events: one poller per watched object, shared by all watchers.

All processes share the database, which is read in the executor for reads. A watcher that comes
late, or again after a loss, reads what it lacks in pages and goes on with the others.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tilewise.service.api.events.news import HEARTBEAT, RETRY, EncodedEvent, NewsReader, Source
from tilewise.service.api.executors import SharedReads
from tilewise.service.errors import PASSING, BusyError, ServiceError
from tilewise.service.listening import MOST_STREAMS

POLL_S = 0.25
LOOK_S = 0.5  # between two looks at whether the service is about to end
HEARTBEAT_S = 15.0
LONGEST_S = 3600.0
MOST_KEPT = 1024  # events of one feed

log = logging.getLogger(__name__)


@dataclass
class _Feed:
    """The newest events of one source.

    `base` is the number before the kept parts, None before the first poll. `is_settled` means that
    only a change of the database can bring more. `changed` is set and replaced with every poll that
    found something.
    """

    watchers: int = 0
    base: int | None = None
    last: int = -1
    numbers: list[int] = field(default_factory=list)
    events: list[bytes] = field(default_factory=list)
    phase: bytes | None = None
    end: bytes | None = None
    is_settled: bool = False
    error: ServiceError | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, name: str, news: EncodedEvent | ServiceError) -> None:
        """Keep what a poll brought; an error ends the streams."""
        if isinstance(news, EncodedEvent):
            self._add(news)
            return
        log.warning("events of %s: %s", name, news)
        self.error = news
        self.wake()

    def _add(self, news: EncodedEvent) -> None:
        is_new = self.base is None or news.parts or news.end or news.phase != self.phase
        if self.base is None:
            self.base = news.last
        self.last, self.phase, self.end = news.last, news.phase, news.end
        self.is_settled = news.is_settled
        for number, event in news.parts:
            self.numbers.append(number)
            self.events.append(event)
        if len(self.numbers) > MOST_KEPT:
            half = len(self.numbers) // 2
            self.base = self.numbers[half - 1]
            del self.numbers[:half], self.events[:half]
        if is_new:
            self.wake()

    def wake(self) -> None:
        """Wake all watchers."""
        self.changed.set()
        self.changed = asyncio.Event()

    def after(self, number: int) -> list[tuple[int, bytes]]:
        """Return the kept events after a number."""
        start = bisect_right(self.numbers, number)
        return list(zip(self.numbers[start:], self.events[start:], strict=True))


class Feeds:
    """Stream the events of jobs, plans or the overview; used on one event loop.

    `state` returns a number that changes with the database, or None if unknown. A comment every
    `heartbeat_s` shows that the stream lives. After `longest_s` the stream ends and its client
    opens another.
    """

    def __init__(
        self,
        reader: NewsReader,
        state: Callable[[], int | None],
        *,
        poll_s: float = POLL_S,
        heartbeat_s: float = HEARTBEAT_S,
        longest_s: float = LONGEST_S,
        most_streams: int = MOST_STREAMS,
    ) -> None:
        self._reader, self._state = reader, state
        self._poll_s, self._heartbeat_s, self._longest_s = poll_s, heartbeat_s, longest_s
        self._most_streams = most_streams
        self._feeds: dict[Source, _Feed] = {}
        self._poller: asyncio.Task[None] | None = None
        self._checks = SharedReads()
        self._is_closing = False

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return sum(feed.watchers for feed in self._feeds.values())

    def close(self) -> None:
        """Release all watchers; may be called from a signal handler."""
        self._is_closing = True

    def require_room(self) -> None:
        """Raise BusyError where no more streams are opened."""
        if self._is_closing or self.streams >= self._most_streams:
            raise BusyError(f"limit reached: {self.streams} event streams are open; retry later")

    async def require(self, source: Source, check: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Raise what `check` raises for a missing source, once for all concurrent callers.

        A source with an open stream exists.
        """
        feed = self._feeds.get(source)
        if feed is None or feed.base is None or feed.error is not None:
            await self._checks.get(source, check)

    async def follow(self, source: Source, after: int) -> AsyncIterator[bytes]:
        """Yield the events after number `after` to the end, as bytes."""
        yield RETRY
        with self._watching(source) as feed:
            async for event in self._follow(source, feed, after):
                yield event

    async def wait_for_end(self, source: Source, has_gone: Callable[[], Awaitable[bool]]) -> None:
        """Return once a source has ended or cannot be read, its client has gone, or on `close`."""
        with self._watching(source) as feed:
            while not (feed.end or feed.error or self._is_closing or await has_gone()):
                changed = feed.changed
                self._wake_poller()
                await _is_set(changed, LOOK_S)

    @contextmanager
    def _watching(self, source: Source) -> Iterator[_Feed]:
        feed = self._feeds.setdefault(source, _Feed())
        feed.watchers += 1
        try:
            yield feed
        finally:
            feed.watchers -= 1
            if not feed.watchers:
                self._feeds.pop(source, None)

    async def _follow(self, source: Source, feed: _Feed, after: int) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        cursor, phase = after, None
        ends_at, silent_since = loop.time() + self._longest_s, loop.time()
        while not self._is_closing and feed.error is None:
            changed = feed.changed
            if feed.base is not None and cursor < feed.base:
                base, news = feed.base, await self._missed(source, cursor)
                if news is not None:
                    for _, event in news.parts:
                        yield event
                    # A trial that cannot be shown is passed over as well.
                    cursor = news.last if news.last > cursor else base
                    continue
            else:
                new_phase, events = feed.phase, feed.after(cursor)
                for number, event in events:
                    yield event
                    cursor = number
                if new_phase is not None and new_phase != phase:
                    phase = new_phase
                    yield phase
                if feed.end is not None and not feed.after(cursor):
                    yield feed.end
                    return
                if events:
                    silent_since = loop.time()
                if feed.base is not None and loop.time() >= ends_at:
                    return
            self._wake_poller()
            if await _is_set(changed, min(LOOK_S, self._heartbeat_s)):
                continue
            if loop.time() - silent_since >= self._heartbeat_s:
                silent_since = loop.time()
                yield HEARTBEAT

    async def _missed(self, source: Source, after: int) -> EncodedEvent | None:
        """What the feed does not keep any more; None while the database is busy or away."""
        try:
            return await self._reader.one(source, after)
        except PASSING as error:
            log.debug("events: %s", error)
            return None

    def _wake_poller(self) -> None:
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        seen: tuple[int | None, frozenset[Source]] | None = None
        while self._feeds and not self._is_closing:
            now = self._state(), frozenset(self._feeds)
            # Feeds that are settled have nothing before the database changes.
            is_settled = all(feed.is_settled for feed in self._feeds.values())
            if now != seen or now[0] is None or not is_settled:
                await self._poll_once()
                seen = now
            await asyncio.sleep(self._poll_s)

    async def _poll_once(self) -> None:
        known = {one: None if feed.base is None else feed.last for one, feed in self._feeds.items()}
        answers: dict[Source, EncodedEvent | ServiceError]
        try:
            answers = await self._reader.every(known)
        except PASSING as error:
            log.debug("events: %s", error)
            for feed in self._feeds.values():
                feed.is_settled = False
            return
        except ServiceError as error:
            answers = dict.fromkeys(known, error)
        for source, news in answers.items():
            if source in self._feeds:
                self._feeds[source].take("{} {}".format(*source), news)


async def _is_set(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
