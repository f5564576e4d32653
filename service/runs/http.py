"""A run without database access, which uses the HTTP API as leader or as helper."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TypeVar

import httpx
from pydantic import ValidationError

from tilewise.kernels.system.typed_json import from_json, to_json
from tilewise.schema.base import Json
from tilewise.search.helpers import Exchanged, RemoteTrial
from tilewise.search.progress import SearchPhase
from tilewise.search.records import Earlier, Solved, TrialRecord, TuneResult, Winner
from tilewise.service.errors import LeaseLostError, ServiceError, UnreachableError
from tilewise.service.host.machine import MachineInfo
from tilewise.service.jobs.outcome import Attempt
from tilewise.service.jobs.plans import Made, PlanAssignment, PlanPhase
from tilewise.service.runs import wire
from tilewise.service.runs.sql import RunAssignment

Answer = TypeVar("Answer", bound=wire.Wire)
Read = TypeVar("Read")

PATIENCE_S = 120.0
ANSWER_S = 10.0
POLL_S = 2.0  # for a request that is soon repeated
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
# The job has ended, or another run has it: the token is worth nothing, or its run is over.
_LOST = (401, 403, 404, 409)
_PASSING = (408, 429)


class RunCalls:
    """Calls to the service about one job, with the token of its offer.

    Calls are retried until `patience_s` have passed, because all of them may be sent twice.
    """

    def __init__(
        self,
        url: str,
        job_id: int,
        token: str,
        *,
        patience_s: float = PATIENCE_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._url, self._job_id = url, job_id
        self._patience_s = patience_s
        self._client = httpx.Client(
            base_url=f"{url.rstrip('/')}/v1/runs/{job_id}",
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            timeout=ANSWER_S,
            transport=transport,
        )

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def post(self, path: str, body: wire.Wire | None, kind: type[Answer]) -> Answer:
        """Send a message and return the answer.

        Raises LeaseLostError if the run is over, UnreachableError without an answer in time,
        ServiceError if the service refuses it.
        """
        return self._answered("POST", path, body, {}, kind.model_validate_json)

    def get(self, path: str, kind: type[Answer], **query: str | int) -> Answer:
        """Return the service's answer to a GET; raise as `post`."""
        return self._answered("GET", path, None, query, kind.model_validate_json)

    def get_bytes(self, path: str) -> bytes:
        """Return the body of an answer; raise what `post` does."""
        return self._answered("GET", path, None, {}, bytes)

    def goes_on(self) -> bool | None:
        """Return whether the run may continue, without retries; None without an answer."""
        try:
            answer = self._client.post("/alive", timeout=POLL_S)
            if _is_lost(answer):
                return False
            return wire.WordWire.model_validate_json(answer.content).word == "go"
        except (httpx.RequestError, ValidationError):
            return None

    def _answered(
        self,
        method: str,
        path: str,
        body: wire.Wire | None,
        query: dict[str, str | int],
        read: Callable[[bytes], Read],
    ) -> Read:
        content = None if body is None else body.model_dump_json()
        deadline, pause_s = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while True:
            try:
                answer = self._client.request(method, path, content=content, params=query)
                is_page = str(answer.headers.get("Content-Type")).startswith("text/")  # of a proxy
                if answer.is_success and not is_page:
                    return read(answer.content)
                why = self._refused(answer)
            except httpx.RequestError as error:
                why = str(error) or type(error).__name__
            if time.monotonic() + pause_s > deadline:
                raise UnreachableError(
                    f"the service {self._url} has not answered job {self._job_id} for "
                    f"{self._patience_s:.0f} s: {why}"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _refused(self, answer: httpx.Response) -> str:
        """Why an answer says that it cannot be given now; raises where it never will be."""
        detail = _detail(answer)
        if _is_lost(answer):
            raise LeaseLostError(detail)
        is_final = _is_ours(answer) or answer.status_code in (400, 413)
        if answer.status_code >= 500 or answer.status_code in _PASSING or not is_final:
            return detail
        raise ServiceError(f"the service {self._url} refuses job {self._job_id}: {detail}")


def _is_lost(answer: httpx.Response) -> bool:
    """Return whether the service refuses the run."""
    return _is_ours(answer) and answer.status_code in _LOST


def _is_ours(answer: httpx.Response) -> bool:
    """Return whether the service refuses; proxies answer without problem documents."""
    return str(answer.headers.get("Content-Type")).partition(";")[0] == "application/problem+json"


def _detail(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {answer.status_code}"


class HttpTrialStore:
    """A `tilewise.search.store.TrialStore` of the job of one run, at the service."""

    def __init__(self, calls: RunCalls, epoch: int) -> None:
        self._calls = calls
        self._epoch = epoch
        self.is_stopped = False

    def trials(self) -> list[TrialRecord]:
        """Return every finished trial, by number."""
        found: list[TrialRecord] = []
        after: int | None = 0
        while after is not None:
            page = self._calls.get("/trials", wire.TrialsWire, start=after)
            found += [trial.record() for trial in page.trials]
            after = page.next
        return found

    def add(self, trial: TrialRecord) -> None:
        """Store one finished trial; raise LeaseLostError or UnreachableError."""
        body = wire.AddWire(epoch=self._epoch, trial=wire.TrialWire.model_validate(trial))
        self.is_stopped = self._calls.post("/trials", body, wire.WordWire).word == "stop"

    def correct(self, trials: Sequence[TrialRecord]) -> None:
        """Replace the speeds and machine speed factors of stored trials; raise as `add`."""
        for trial in trials:
            self.add(trial)

    def known_failures(self) -> set[str]:
        """Return the hashes of schedules that failed for this problem on this target."""
        return set(self._history().known_failures)

    def earlier_speed_factors(self) -> list[list[float]]:
        """Return the machine speed factors of other jobs' trials of the last hour, by job."""
        return self._history().earlier_speed_factors

    def earlier(self, operation: str) -> list[Earlier]:
        """Return earlier searches for an operation (`matmul`), newest first."""
        found = self._calls.get("/earlier", wire.SearchesWire, operation=operation)
        return [search.to(Earlier) for search in found.searches]

    def solved(self, searches: Sequence[Earlier]) -> list[Solved]:
        """Return the results of `searches`, in their order."""
        found: list[Solved] = []
        for first in range(0, len(searches), wire.MOST_SEARCHES):
            keys = [search.key for search in searches[first : first + wire.MOST_SEARCHES]]
            answer = self._calls.post("/solved", wire.SearchKeysWire(keys=keys), wire.FoundWire)
            found += [one.to(Solved) for one in answer.found]
        return found

    def _history(self) -> wire.HistoryWire:
        return self._calls.get("/history", wire.HistoryWire)


class HttpHelpers:
    """The `tilewise.search.helpers.Helpers` of one run, at the service."""

    def __init__(self, calls: RunCalls, trials: HttpTrialStore, epoch: int) -> None:
        self._calls, self._trials, self._epoch = calls, trials, epoch

    def exchange(
        self, start: int, offered: Sequence[RemoteTrial], back: Collection[int], late_s: float
    ) -> Exchanged:
        """Offer candidates, withdraw others, and return the stored trials.

        Raises LeaseLostError or UnreachableError.
        """
        body = wire.ExchangeWire(
            epoch=self._epoch,
            start=start,
            offered=list(map(wire.CandidateWire.model_validate, offered)),
            back=sorted(back),
            late_s=late_s,
        )
        answer = self._calls.post("/candidates", body, wire.ExchangedWire)
        self._trials.is_stopped = answer.word == "stop"
        return answer.exchanged()


class _HttpRun:
    """A run at the service, with the methods of those in the database.

    The parent process keeps the lease (`tilewise.service.cluster.task`).
    """

    def __init__(self, calls: RunCalls, epoch: int) -> None:
        self._calls, self.epoch = calls, epoch

    def failed(self, message: str) -> bool:
        """End the job without a result; False where it was cancelled or taken over."""
        return self._ended("/failed", wire.FailWire(epoch=self.epoch, message=message))

    def release(self) -> None:
        """Give the job back to the queue; a driver does, where the service does not hear it."""
        with suppress(UnreachableError):
            self._ended("/release", wire.EpochWire(epoch=self.epoch))

    def _ended(self, path: str, body: wire.Wire) -> bool:
        try:
            return self._calls.post(path, body, wire.EndedWire).ended
        except LeaseLostError:
            return False


class HttpPlanStore(_HttpRun):
    """Store one run of a plan job at the service; raise as `HttpRunStore`."""

    def __init__(self, calls: RunCalls, owner: str, toolchain: str) -> None:
        own = wire.BeginWire(owner=owner, toolchain=toolchain)
        begun = calls.post("/begin_plan", own, wire.PlanWire)
        super().__init__(calls, begun.epoch)
        self._assignment = from_json(PlanAssignment, begun.order)

    def assignment(self) -> tuple[PlanAssignment, bytes]:
        """Return what the plan is made from, and its module."""
        return self._assignment, self._calls.get_bytes("/module")

    def beating(self) -> AbstractContextManager[None]:
        """Do nothing: the driver renews the lease."""
        return nullcontext()

    def note(self, phase: PlanPhase, plan: Json | None) -> None:
        """Store the current phase of the run, and the plan once it is chosen."""
        body = wire.ChosenWire(epoch=self.epoch, phase=phase, plan=plan)
        self._calls.post("/chosen", body, wire.WordWire)

    def done(self, made: Made) -> bool:
        """End the job with its plan; return False if it was cancelled or taken over."""
        return self._ended("/made", wire.MadeWire(epoch=self.epoch, made=to_json(made)))


class HttpRunStore(_HttpRun):
    """Store one run of a tuning job at the service, with the methods of `SqlRunStore`.

    Raises LeaseLostError if the job has ended, is run elsewhere, or is for other compilers;
    UnreachableError if the service does not answer.
    """

    def __init__(self, calls: RunCalls, owner: str, toolchain: str, job_id: int) -> None:
        own = wire.BeginWire(owner=owner, toolchain=toolchain)
        begun = calls.post("/begin", own, wire.AssignmentWire)
        super().__init__(calls, begun.epoch)
        self.request_id = begun.request_id
        self.assignment: RunAssignment = begun.assignment(job_id)
        self.trials = HttpTrialStore(calls, begun.epoch)
        is_spread = self.assignment.request.spread > 1
        self.helpers = HttpHelpers(calls, self.trials, begun.epoch) if is_spread else None

    @contextmanager
    def beating(self) -> Iterator[Callable[[], bool]]:
        """Yield a function that says whether the search must stop."""
        yield lambda: self.trials.is_stopped

    def note(self, phase: SearchPhase) -> None:
        """Store the current phase of the run."""
        body = wire.PhaseWire(epoch=self.epoch, name=phase.name, done=phase.done, total=phase.total)
        self._calls.post("/phase", body, wire.WordWire)

    def done(
        self, result: TuneResult, best: Winner, attempts: Sequence[Attempt], machine: MachineInfo
    ) -> bool:
        """End the job with its results; return False if it was cancelled or taken over."""
        body = wire.EndWire(
            epoch=self.epoch,
            best=wire.BestWire.model_validate(best),
            peers=result.peers,
            elapsed_s=result.elapsed_s,
            complete=result.complete,
            attempts=list(map(wire.AttemptWire.model_validate, attempts)),
            machine=wire.MachineWire.model_validate(machine),
        )
        return self._ended("/done", body)


class HttpLeader:
    """A `tilewise.search.helpers.Leader` at the service, with the token of a helper.

    Raises LeaseLostError if the search is over, needs no help, or is for other compilers;
    UnreachableError if the service does not answer.
    """

    def __init__(self, calls: RunCalls, owner: str, toolchain: str, job_id: int) -> None:
        self._calls = calls
        own = wire.BeginWire(owner=owner, toolchain=toolchain)
        joined = calls.post("/join", own, wire.AssignmentWire)
        self.epoch, self.request_id = joined.epoch, joined.request_id
        self.assignment: RunAssignment = joined.assignment(job_id)

    def help(self, answer: TrialRecord | None, wants: int) -> list[RemoteTrial] | None:
        """Answer a candidate and take others; None if the search is over.

        Raises LeaseLostError or UnreachableError.
        """
        trial = None if answer is None else wire.TrialWire.model_validate(answer)
        request = wire.HelpWire(epoch=self.epoch, answer=trial, wants=wants)
        given = self._calls.post("/help", request, wire.GivenWire)
        if given.word == "stop":
            return None
        return [one.candidate() for one in given.candidates]
