"""`AsyncClient`: the calls of `Client`, each awaited."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Unpack

import httpx

from tilewise.client import calls
from tilewise.client.calls import Calls, JobOptions, Json, Match, OnEvent, OnWait
from tilewise.client.carriers import AsyncCarrier
from tilewise.client.connection import (
    TIMEOUT_S,
    checked_url,
    headers_of,
)
from tilewise.client.events import Event, Follower
from tilewise.client.exchange import PATIENCE_S
from tilewise.client.found import Found, ObjectFiles, Targets, Text
from tilewise.client.modules import AsyncModules
from tilewise.client.pages import first_page
from tilewise.client.results import (
    Job,
    NewToken,
    Readiness,
    Result,
    StoredTrial,
    SuiteReport,
    Token,
    Trial,
)


class AsyncClient(AsyncModules):
    """Calls one service; an async context manager. Each method is that of `Client`.

    Args:
        url: where the service is, such as `http://localhost:8000`.
        transport: for tests; how requests travel.
        token: what to show; None shows `TILEWISE_TOKEN`, if it is set.
        patience_s: seconds for which a service that cannot serve now, as while its database is
            away, is asked again when it says so; 0 for never.
        sleep: for tests; waits for some seconds.

    Every method raises `BadInputError` when the service refuses a value, `MissingError`
    when it has not what was asked for, and `TilewiseError` when it fails or is not there.
    What is safe to send again is, when an answer was lost or a service is busy.
    """

    def __init__(
        self,
        url: str,
        transport: httpx.AsyncBaseTransport | None = None,
        token: str | None = None,
        patience_s: float = PATIENCE_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._calls = Calls(checked_url(url))
        http = httpx.AsyncClient(
            base_url=url, headers=headers_of(token), timeout=TIMEOUT_S, transport=transport
        )
        self._carrier = AsyncCarrier(self._calls, http, sleep, patience_s)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._carrier.close()

    async def submit(self, problem: str, **options: Unpack[JobOptions]) -> Result | Job:
        """Ask for a search; the stored result if there is one, else the job."""
        return await self._carrier.run(self._calls.submit(problem, options))

    async def tune(
        self, problem: str, on_event: OnEvent | None = None, **options: Unpack[JobOptions]
    ) -> Result:
        """Ask for a search and wait for its result; `on_event` is told of what happens."""
        return await self._carrier.run(self._calls.tune(problem, on_event, options))

    async def events(self, job_id: int, after: int | None = None) -> AsyncIterator[Event]:
        """What happens in a job, from its first trial, or the one after `after`, to its end.

        A stream that breaks off is opened again where it was, so that each trial comes once.
        """
        async with aclosing(self._carrier.events(Follower(job_id, after))) as found:
            async for event in found:
                yield event

    async def job(self, job_id: int) -> Job:
        """One job."""
        return await self._carrier.run(self._calls.job(job_id))

    async def jobs(self, state: str | None = None) -> AsyncIterator[Job]:
        """Every job, or those of a state, newest first."""
        first = first_page("jobs", "/v1/jobs", state=state)
        async for source in self._carrier.pages(first):
            yield calls.job_of(source)

    async def cancel(self, job_id: int) -> Job:
        """Call a job off; what it has timed stays stored."""
        return await self._carrier.run(self._calls.cancel(job_id))

    async def schedule(
        self,
        problem: str,
        target: str = "host",
        cache: str | None = None,
        match: Match = "exact",
    ) -> Result:
        """The stored best of a problem; that for hot caches unless `cache` says which.

        With `match="nearest"` that of a processor whose kernels the target can run stands in;
        the result's `match` says what differs.
        """
        return await self._carrier.run(self._calls.schedule(problem, target, cache, match))

    async def script(
        self,
        problem: str,
        target: str = "host",
        flavor: str = "cpu",
        on_wait: OnWait | None = None,
        match: Match = "exact",
    ) -> Text:
        """The proven transform script of a problem's stored best.

        A service may have to prove it first: `on_wait` is called once if so, and the answer
        waited for.
        """
        return await self._carrier.run(self._calls.script(problem, target, flavor, match, on_wait))

    async def kernel(
        self,
        problem: str,
        target: str = "host",
        on_wait: OnWait | None = None,
        match: Match = "exact",
    ) -> Text:
        """The kernel of a problem's stored best, as a Python module that runs on its own.

        A service may have to print it first: `on_wait` is called once if so, and the answer
        waited for.
        """
        return await self._carrier.run(self._calls.kernel(problem, target, match, on_wait))

    async def object_files(
        self,
        problem: str,
        target: str = "host",
        on_wait: OnWait | None = None,
        match: Match = "exact",
    ) -> ObjectFiles:
        """The kernel of a problem's stored best as machine code, waited for as `kernel` is."""
        return await self._carrier.run(self._calls.object_files(problem, target, match, on_wait))

    async def text(self, path: str, known: str | None = None) -> Text:
        """The script or kernel at a path that a look-up has named; `known` is the tag one has."""
        return await self._carrier.run(self._calls.text(path, {}, known, None))

    async def trials(self, job_id: int, state: str | None = None) -> AsyncIterator[Trial]:
        """Every trial of a job, by number; only those that are timed, pruned or failed if asked."""
        first = first_page("trials", f"/v1/jobs/{job_id}/trials", state=state)
        async for source in self._carrier.pages(first):
            yield calls.trial_of(source)

    async def stored_trials(
        self, problem: str | None = None, target: str | None = None, state: str | None = None
    ) -> AsyncIterator[StoredTrial]:
        """Every trial of all jobs, or those of a problem, a target, a state; oldest first."""
        first = first_page("trials", "/v1/trials", problem=problem, target=target, state=state)
        async for source in self._carrier.pages(first):
            yield calls.stored_trial_of(source)

    async def look_up(
        self,
        problems: Sequence[str],
        target: str = "host",
        cache: str | None = None,
        match: Match = "exact",
        files: Sequence[str] = (),
        known: Mapping[str, Mapping[str, str]] | None = None,
    ) -> list[Found]:
        """What is stored of each problem, in their order.

        Args:
            problems: at any number.
            target: of all of them.
            cache: hot or cold; None takes hot ones first.
            match: whether another processor's may stand in.
            files: flavors of scripts, and `kernel`, whose tags and places to tell.
            known: tags of the files that one has, by a problem's key and the file's kind; where
                none differs, the answer is `unchanged`.
        """
        exchange = self._calls.look_up(problems, target, cache, match, files, known or {})
        return await self._carrier.run(exchange)

    async def store_report(self, report: Json) -> SuiteReport:
        """Store what `tilewise bench --json` prints; the same report twice is stored once."""
        return await self._carrier.run(self._calls.store_report(report))

    async def suite_reports(self, suite: str | None = None) -> AsyncIterator[SuiteReport]:
        """The reports of all suites or of one, without their problems, newest first."""
        first = first_page("reports", "/v1/suite-reports", suite=suite)
        async for source in self._carrier.pages(first):
            yield calls.suite_report_of(source)

    async def suite_report(self, number: int) -> SuiteReport:
        """One report, whole."""
        return await self._carrier.run(self._calls.suite_report(number))

    async def targets(self) -> Targets:
        """The targets that live workers serve, and their machines' measured peaks."""
        return await self._carrier.run(self._calls.targets())

    async def ready(self) -> Readiness:
        """What the service says of its fitness to work; TilewiseError where it is not."""
        return await self._carrier.run(self._calls.ready())

    async def tokens(self) -> list[Token]:
        """The tokens of the service; it takes one of scope admin to see them."""
        return await self._carrier.run(self._calls.tokens())

    async def create_token(self, name: str, scope: str, days: float | None = None) -> NewToken:
        """A new token, which is told this once; it takes one of scope admin."""
        return await self._carrier.run(self._calls.create_token(name, scope, days))

    async def revoke_token(self, name: str) -> Token:
        """Make a token worth nothing; it takes one of scope admin."""
        return await self._carrier.run(self._calls.revoke_token(name))
