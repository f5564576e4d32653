"""Parse server-sent events (WHATWG HTML, section 9.2) and resume broken streams."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tilewise.errors import TilewiseError
from tilewise.schema.base import Json, read, read_part
from tilewise.schema.modules import ModelPlan, PlanPart, PlanVariant
from tilewise.schema.results import Job, Phase, Trial

MOST_LOSSES = 10
"""Connections that may be lost in a row, none of which has brought an event."""


@dataclass(frozen=True)
class JobSubmitted:
    """A search was requested, and created or joined a job; the first event."""

    job: Job


@dataclass(frozen=True)
class PhaseReached:
    """The job or plan entered a phase."""

    phase: Phase


@dataclass(frozen=True)
class TrialEnded:
    """A trial ended; each comes once, in order of its number."""

    trial: Trial


@dataclass(frozen=True)
class JobEnded:
    """The job ended; the last event."""

    job: Job


Event = JobSubmitted | PhaseReached | TrialEnded | JobEnded


@dataclass(frozen=True)
class PartEnded:
    """A problem of the plan has a schedule, or will have none; `done` of `total` have ended."""

    part: PlanVariant
    done: int
    total: int


@dataclass(frozen=True)
class PlanEnded:
    """The plan ended; the last event, without its problems."""

    plan: ModelPlan


PlanEvent = PhaseReached | PartEnded | PlanEnded
SeenEvent = TypeVar("SeenEvent")
Readers = Mapping[str, Callable[[Json], tuple[int | None, SeenEvent]]]


class BrokenStreamError(TilewiseError):
    """Streams of events broke off repeatedly."""


class Follower(Generic[SeenEvent]):
    """What one client has seen of a sequence of events, over all of its connections.

    `readers` return the events of each name, those that come once with their number. `after` is the
    number of the last event seen, -1 for none; `losses` counts connections that broke since the
    last sign of life; `retry_after_s` is what the service wants.
    """

    def __init__(self, path: str, readers: Readers[SeenEvent], after: int | None = None) -> None:
        self.path = path
        self.is_over = False
        self.losses = 0
        self.retry_after_s: float | None = None
        self.after = -1 if after is None else after
        self._readers = readers
        self._lines: list[str] = []
        self._rest = ""

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the next connection, which resumes where the last one broke."""
        self._lines, self._rest, self.retry_after_s = [], "", None
        return {"Accept": "text/event-stream", "Last-Event-ID": str(self.after)}

    def lose(self) -> None:
        """Count a broken connection; raise BrokenStreamError after too many."""
        self.losses += 1
        if self.losses > MOST_LOSSES:
            raise BrokenStreamError(f"{self.path} broke off {self.losses} times in a row")

    def feed(self, text: str) -> Iterator[SeenEvent]:
        """Yield the events that are complete with this piece of text."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in (one.removesuffix("\r") for one in lines):
            if line:
                self._lines.append(line)
            elif (event := self._event()) is not None:
                yield event

    def _event(self) -> SeenEvent | None:
        """Return the event of the collected lines; None for a heartbeat, an unknown or seen one."""
        name, data = self._field("event"), self._field("data")
        is_heartbeat = any(line.startswith(":") for line in self._lines)
        self._lines = []
        event = self._read(name, _object(data)) if name in self._readers and data else None
        if is_heartbeat or event is not None:
            self.losses = 0  # the service lives
        return event

    def _read(self, name: str, source: Json) -> SeenEvent | None:
        number, event = self._readers[name](source)
        self.is_over |= name == "end"
        if number is not None and number <= self.after:
            return None
        self.after = self.after if number is None else number
        return event

    def _field(self, name: str) -> str:
        """Return the lines of a field, without one leading space each."""
        pairs = (line.partition(":") for line in self._lines)
        return "\n".join(value.removeprefix(" ") for key, _, value in pairs if key == name)


def of_job(job_id: int, after: int | None = None) -> Follower[Event]:
    """Return a follower of a job; `after` is the number of the last known trial."""

    def trial_of(source: Json) -> tuple[int, TrialEnded]:
        trial = read(Trial, source)
        return trial.number, TrialEnded(trial)

    def end_of(source: Json) -> tuple[None, JobEnded]:
        return None, JobEnded(read(Job, source))

    readers: Readers[Event] = {"phase": _phase_of, "trial": trial_of, "end": end_of}
    return Follower(f"/v1/jobs/{job_id}/events", readers, after)


def of_plan(plan_id: int, after: int | None = None) -> Follower[PlanEvent]:
    """Return a follower of a plan; `after` is the number of the last known problem."""

    def part_of(source: Json) -> tuple[int, PartEnded]:
        part = read_part(PlanPart, source)
        return part.done - 1, PartEnded(part, part.done, part.total)

    def end_of(source: Json) -> tuple[None, PlanEnded]:
        return None, PlanEnded(read(ModelPlan, source))

    readers: Readers[PlanEvent] = {"phase": _phase_of, "part": part_of, "end": end_of}
    return Follower(f"/v1/plans/{plan_id}/events", readers, after)


def _phase_of(source: Json) -> tuple[None, PhaseReached]:
    return None, PhaseReached(read_part(Phase, source))


def _object(data: str) -> Json:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TilewiseError("an event of the service is not JSON") from error
    if not isinstance(found, dict):
        raise TilewiseError("an event of the service is not an object")
    return found
