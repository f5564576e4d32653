"""A run that says everything to the service, and needs no database."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from tilewise.search.helpers import Candidate, Exchanged
from tilewise.search.progress import Phase
from tilewise.search.records import Best, Earlier, Solved, TrialRecord, TuneResult
from tilewise.service.errors import LeaseLostError, UnreachableError
from tilewise.service.host.machine import MachineInfo
from tilewise.service.jobs.outcome import Attempt
from tilewise.service.runs.calls import RunCalls
from tilewise.service.runs.keeper import Order
from tilewise.service.runs.wire.base import LONGEST_MESSAGE, MeasurementWire
from tilewise.service.runs.wire.candidates import CandidateWire, ExchangedWire, ExchangeWire
from tilewise.service.runs.wire.ends import (
    AttemptWire,
    BestWire,
    EndedWire,
    EndWire,
    FailWire,
    MachineWire,
)
from tilewise.service.runs.wire.orders import BeginWire, EpochWire, OrderWire, PhaseWire, WordWire
from tilewise.service.runs.wire.trials import (
    MOST_SEARCHES,
    AddWire,
    AskedWire,
    FoundWire,
    HistoryWire,
    SearchesWire,
    TrialsWire,
    TrialWire,
)


class HttpTrialStore:
    """A `tilewise.search.store.TrialStore` of the job of one run, at the service.

    Args:
        calls: to the service.
        epoch: number of the run, which every trial carries.
    """

    def __init__(self, calls: RunCalls, epoch: int) -> None:
        self._calls = calls
        self._epoch = epoch
        self.is_stopped = False

    def trials(self) -> list[TrialRecord]:
        """Every finished trial, by number."""
        found: list[TrialRecord] = []
        after: int | None = 0
        while after is not None:
            page = self._calls.get("/trials", TrialsWire, start=after)
            found += [trial.record() for trial in page.trials]
            after = page.next
        return found

    def add(self, trial: TrialRecord) -> None:
        """Have one finished trial stored; once this returns it is.

        Raises:
            LeaseLostError: another run has the job now.
            UnreachableError: the service does not answer; then nobody knows.
        """
        said = AddWire(epoch=self._epoch, trial=TrialWire.of(trial))
        self.is_stopped = self._calls.post("/trials", said, WordWire).word == "stop"

    def correct(self, trials: Sequence[TrialRecord]) -> None:
        """Have the speeds and paces of stored trials replaced; errors as for `add`."""
        for trial in trials:
            self.add(trial)

    def known_failures(self) -> set[str]:
        """Hashes of the schedules that failed in any job of this problem on this target."""
        return set(self._told().known_failures)

    def earlier_paces(self) -> list[list[float]]:
        """The paces of the trials of the last hour in other jobs on this target, by job."""
        return self._told().earlier_paces

    def earlier(self, operation: str) -> list[Earlier]:
        """The earlier searches for an operation (`matmul`), the newest first."""
        found = self._calls.get("/earlier", SearchesWire, operation=operation)
        return [search.earlier() for search in found.searches]

    def solved(self, searches: Sequence[Earlier]) -> list[Solved]:
        """What some of those have found, in the order of `searches`."""
        found: list[Solved] = []
        for first in range(0, len(searches), MOST_SEARCHES):
            keys = [search.key for search in searches[first : first + MOST_SEARCHES]]
            answer = self._calls.post("/solved", AskedWire(keys=keys), FoundWire)
            found += [one.solved() for one in answer.found]
        return found

    def _told(self) -> HistoryWire:
        return self._calls.get("/history", HistoryWire)


class HttpHelpers:
    """The `tilewise.search.helpers.Helpers` of one run, at the service.

    Args:
        calls: to the service.
        trials: of the run, which learn of its end.
        epoch: number of the run.
    """

    def __init__(self, calls: RunCalls, trials: HttpTrialStore, epoch: int) -> None:
        self._calls, self._trials, self._epoch = calls, trials, epoch

    def exchange(
        self, start: int, offered: Sequence[Candidate], back: Collection[int], late_s: float
    ) -> Exchanged:
        """Put candidates out, take others back, and have what was timed stored.

        Raises:
            LeaseLostError: another run has the job now.
            UnreachableError: the service does not answer.
        """
        said = ExchangeWire(
            epoch=self._epoch,
            start=start,
            offered=[CandidateWire.of(one) for one in offered],
            back=sorted(back),
            late_s=late_s,
        )
        answer = self._calls.post("/candidates", said, ExchangedWire)
        self._trials.is_stopped = answer.word == "stop"
        return answer.exchanged()


class HttpKeeper:
    """A `Keeper` at the service.

    Args:
        calls: to the service.
        owner: this process, from `tilewise.service.host.process_identity.me`.
        toolchain: identity of the compilers here.
        job_id: the job.

    Raises:
        LeaseLostError: the job has ended, somebody else runs it, or it is for other compilers.
        UnreachableError: the service does not answer.
    """

    def __init__(self, calls: RunCalls, owner: str, toolchain: str, job_id: int) -> None:
        self._calls = calls
        begun = calls.post("/begin", BeginWire(owner=owner, toolchain=toolchain), OrderWire)
        self.epoch, self.request_id = begun.epoch, begun.request_id
        self.order: Order = begun.order(job_id)
        self.trials = HttpTrialStore(calls, begun.epoch)
        is_spread = self.order.request.spread > 1
        self.helpers = HttpHelpers(calls, self.trials, begun.epoch) if is_spread else None

    @contextmanager
    def beating(self) -> Iterator[Callable[[], bool]]:
        """Whoever started this process keeps the lease (`tilewise.service.cluster.task`)."""
        yield lambda: self.trials.is_stopped

    def note(self, phase: Phase) -> None:
        """Have it stored what the run does now."""
        said = PhaseWire(epoch=self.epoch, name=phase.name, done=phase.done, total=phase.total)
        self._calls.post("/phase", said, WordWire)

    def done(
        self, result: TuneResult, best: Best, attempts: Sequence[Attempt], machine: MachineInfo
    ) -> bool:
        """End the job with its results; False where it was cancelled or taken over."""
        peers = {name: MeasurementWire.of(speed) for name, speed in result.peers.items()}
        said = EndWire(
            epoch=self.epoch,
            best=BestWire.of(best),
            peers=peers,
            elapsed_s=result.elapsed_s,
            complete=result.complete,
            attempts=[AttemptWire.of(attempt) for attempt in attempts],
            machine=MachineWire.of(machine),
        )
        return self._ended("/done", said)

    def failed(self, message: str) -> bool:
        """End the job without a result; False where it was cancelled or taken over."""
        return self._ended("/failed", FailWire(epoch=self.epoch, message=message[:LONGEST_MESSAGE]))

    def release(self) -> None:
        """Give the job back to the queue; a driver does, where the service does not hear it."""
        try:
            self._calls.post("/release", EpochWire(epoch=self.epoch), EndedWire)
        except (LeaseLostError, UnreachableError):
            return

    def _ended(self, path: str, said: EndWire | FailWire) -> bool:
        try:
            return self._calls.post(path, said, EndedWire).ended
        except LeaseLostError:
            return False
