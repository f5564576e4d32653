"""Server-sent events of a job, parsed as they come, and where to go on when they break off.

The format is that of WHATWG's HTML, section 9.2, as far as the service writes it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from kernels.system.typed_json import from_json
from tilewise.client.results import Job, Phase, Trial, read
from tilewise.errors import TilewiseError

MOST_LOSSES = 10
"""Connections that may be lost in a row, none of which has brought an event."""


@dataclass(frozen=True)
class PhaseReached:
    """The job does this now."""

    phase: Phase


@dataclass(frozen=True)
class TrialEnded:
    """A trial has ended; each comes once, in the order of the numbers."""

    trial: Trial


@dataclass(frozen=True)
class JobEnded:
    """The job has ended; nothing comes after this."""

    job: Job


Event = PhaseReached | TrialEnded | JobEnded


class Follower:
    """What one client has seen of a job's events, over all the streams that it has opened.

    Args:
        job_id: the job.
        after: number of the last trial that is known; None to begin with the first.
    """

    def __init__(self, job_id: int, after: int | None = None) -> None:
        self.path = f"/v1/jobs/{job_id}/events"
        self.is_over = False
        self.losses = 0
        self._after = -1 if after is None else after
        self._lines: list[str] = []
        self._rest = ""

    @property
    def headers(self) -> dict[str, str]:
        """Those of the next stream, which goes on where the last one broke off."""
        self._lines, self._rest = [], ""
        return {"Accept": "text/event-stream", "Last-Event-ID": str(self._after)}

    def lose(self) -> None:
        """Count a stream that broke off.

        Raises:
            TilewiseError: too many have, without an event.
        """
        self.losses += 1
        if self.losses > MOST_LOSSES:
            raise TilewiseError(f"{self.path} broke off {self.losses} times in a row")

    def feed(self, text: str) -> Iterator[Event]:
        """The events that end in this piece of a stream."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line:
                self._lines.append(line)
            elif (event := self._event()) is not None:
                yield event

    def _event(self) -> Event | None:
        if any(line.startswith((":", "event")) for line in self._lines):
            self.losses = 0  # a heartbeat says that the service lives
        fields = dict(line.split(": ", 1) for line in self._lines if ": " in line)
        self._lines = []
        name, data = fields.get("event"), fields.get("data")
        if name not in ("phase", "trial", "end") or data is None:
            return None
        source = _object(data)
        if name == "phase":
            return PhaseReached(from_json(Phase, source, tolerant=True))
        if name == "end":
            self.is_over = True
            return JobEnded(read(Job, source))
        trial = read(Trial, source)
        if trial.number <= self._after:
            return None
        self._after = trial.number
        return TrialEnded(trial)


def _object(data: str) -> dict[str, object]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TilewiseError("an event of the service is not JSON") from error
    if not isinstance(found, dict):
        raise TilewiseError("an event of the service is no object")
    return found
