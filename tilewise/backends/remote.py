"""Commands at a service, through its HTTP API."""

import sys
from collections.abc import Callable, Sequence
from typing import cast

from tilewise.backends.base import Known, OnTrialSeen, TrialSeen, prediction_of
from tilewise.client import Client, Event, Found, JobSubmitted, ObjectFiles, PhaseReached, Text
from tilewise.client.api import JobOptions
from tilewise.client.events import TrialEnded
from tilewise.errors import BadInputError, MissingError
from tilewise.kernels.problem import ProblemRange, parse_any, parse_problem
from tilewise.kernels.target import parse_target
from tilewise.schema.base import Json, Match
from tilewise.schema.results import Trial
from tilewise.search.progress import PHASES, OnPhase, SearchPhase, ignore_phase
from tilewise.search.records import TRIAL_STATES, CacheMode, TrialState, TuneRequest


class RemoteBackend:
    """Runs commands at a service."""

    def __init__(self, url: str) -> None:
        self._client = Client(url)

    def __enter__(self) -> "RemoteBackend":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def tune(
        self,
        problem: str,
        target: str,
        request: TuneRequest,
        on_trial: OnTrialSeen,
        on_phase: OnPhase = ignore_phase,
        *,
        again: bool = False,
    ) -> Json:
        """Post a job, wait for it, and fetch the result."""
        wanted = parse_any(problem)
        parse_target(target)
        watched = _Watched(on_trial, on_phase)
        options = _options(target, request)
        if again:
            options["again"] = True
        is_range = isinstance(wanted, ProblemRange)
        tune = self._client.tune_range if is_range else self._client.tune
        found = tune(problem, watched.tell, **options).document
        if not watched.has_seen:
            sys.stderr.write("tilewise: answered from the store\n")
        return found

    def peak(self, problem: str, target: str) -> float | None:
        """Return the peak of a worker of the target, known for one thread only."""
        named, wanted = parse_target(target), parse_problem(problem)
        if wanted.quantised_weights:
            return None  # workers tell the peaks of types alone
        dtype = wanted.element.name
        found = [
            worker.peaks[dtype]
            for worker in self._client.targets().workers
            if dtype in worker.peaks and (named.cpu == "host" or named.canonical in worker.targets)
        ]
        return found[0] if found and named.threads == 1 else None

    def show(
        self, problem: str, target: str, cache: CacheMode | None = None, *, match: Match = "exact"
    ) -> Json:
        _require_sense(problem, target, parse_any)
        if isinstance(parse_any(problem), ProblemRange):
            return self._client.range(problem, target, cache, match).document
        try:
            return self._client.schedule(problem, target, cache).document
        except MissingError:
            if match == "exact":
                raise
        return self._client.schedule(problem, target, cache, match).document

    def predict(self, problem: str, target: str, trials: int = 0) -> Json:
        _require_sense(problem, target)
        (found,) = self._client.look_up([problem], target, "hot", predict=True, trials=trials)
        predicted = found.document.get("predicted")
        if found.job is not None and predicted is not None:
            sys.stderr.write(f"tilewise: job {found.job} searches for a schedule\n")
        return prediction_of(parse_problem(problem), found.target, predicted, found.job)

    def script(self, problem: str, target: str, flavor: str, with_payload: bool) -> str:
        """Fetch the script; add the payload here if requested."""
        _require_sense(problem, target)
        if with_payload and flavor != "cpu":
            raise BadInputError(f"--with-payload of flavor {flavor} is made without --server")
        on_wait = _say_waiting("proves the script")
        text = self._client.script(problem, target, flavor, on_wait).text or ""
        if not with_payload:
            return text
        from tilewise.kernels.mlir.transform.module import with_payload as joined

        return joined(parse_problem(problem), text)

    def kernel(self, problem: str, target: str) -> str:
        _require_sense(problem, target, parse_any)
        return self._client.kernel(problem, target, _say_waiting("prints the kernel")).text or ""

    def object_files(
        self, problem: str, target: str, cache: CacheMode | None = None
    ) -> ObjectFiles:
        """Fetch the object that the service proved."""
        _require_sense(problem, target, parse_any)
        on_wait = _say_waiting("makes and proves the object")
        return self._client.object_files(problem, target, on_wait, cache=cache)

    def trials(self, problem: str, target: str) -> list[Json]:
        _require_sense(problem, target)
        found = [trial.document for trial in self._client.stored_trials(problem, target)]
        if not found:
            raise MissingError(f"no trials of {problem} are stored for {target}")
        return found

    def job(self, number: int) -> Json:
        return self._client.job(number).document

    def job_trials(self, number: int) -> list[Json]:
        return [trial.document for trial in self._client.trials(number)]

    def look_up(
        self,
        problems: Sequence[str],
        target: str,
        files: Sequence[str],
        known: Known,
        match: Match = "exact",
        cache: CacheMode | None = None,
    ) -> list[Found]:
        return self._client.look_up(problems, target, cache, match, files, known)

    def text(self, found: Found, kind: str) -> Text:
        file = found.files.get(kind)
        if file is None:
            raise MissingError(f"no proven {kind} of {found.problem} is stored")
        return self._client.text(file.path)

    def submit(self, problem: str, target: str, request: TuneRequest) -> None:
        self._client.submit(problem, **_options(target, request))

    def store_report(self, report: Json) -> int:
        return self._client.store_report(report).id


def _require_sense(
    problem: str, target: str, parse: Callable[[str], object] = parse_problem
) -> None:
    """Refuse malformed problems and targets with the messages of a local run."""
    parse(problem)
    parse_target(target)


def _options(target: str, request: TuneRequest) -> JobOptions:
    return cast("JobOptions", {"target": target, **request.to_json()})


class _Watched:
    """Forwards a job's events to the callbacks of a search."""

    def __init__(self, on_trial: OnTrialSeen, on_phase: OnPhase) -> None:
        self._on_trial, self._on_phase = on_trial, on_phase
        self.has_seen = False

    def tell(self, event: Event) -> None:
        """Forward an event."""
        self.has_seen = True
        if isinstance(event, JobSubmitted):
            sys.stderr.write(f"tilewise: job {event.job.id} searches for a schedule\n")
        elif isinstance(event, TrialEnded) and event.trial.state in TRIAL_STATES:
            self._on_trial(_seen(event.trial))
        elif isinstance(event, PhaseReached) and event.phase.name in PHASES:
            self._on_phase(SearchPhase(event.phase.name, event.phase.done, event.phase.total))


def _seen(trial: Trial) -> TrialSeen:
    interval = None if trial.interval is None else (trial.interval[0], trial.interval[-1])
    state = cast("TrialState", trial.state)
    return TrialSeen(trial.number, state, trial.failure, trial.gflops, interval)


def _say_waiting(doing: str) -> Callable[[], None]:
    """Return a callback that explains a wait on a terminal."""

    def on_wait() -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"tilewise: the service {doing}, which takes a moment\n")

    return on_wait
