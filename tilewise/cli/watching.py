"""What is known of a search that somebody waits for: counts, the best, the time left."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from tilewise.backends.base import TrialSeen
from tilewise.search.progress import Phase
from tilewise.search.records import TuneRequest

IMPROVEMENTS = 3  # the newest ones that are shown
Clock = Callable[[], float]


@dataclass
class Timed:
    """A phase with the moments of its first and its last news, in seconds of the clock.

    Attributes:
        since: how much of it was done at `began`.
    """

    phase: Phase
    began: float
    since: int
    latest: float

    def left_s(self, now: float) -> float | None:
        """Seconds until it is done, at the rate so far; None before anything was done."""
        done, left = self.phase.done - self.since, self.phase.total - self.phase.done
        if done <= 0 or not self.phase.total:
            return None
        return max(0.0, (self.latest - self.began) / done * left - (now - self.latest))


@dataclass
class Watched:
    """A search, as trials and phases tell of it.

    Attributes:
        request: how hard is searched.
        peak_gflops: what a search can reach; None where nobody knows.
        clock: seconds, from any moment on.
        phases: those that were reached, in their order.
        counts: trials by how they ended.
        failures: failed trials by class.
        best: the fastest timed trial.
        improvements: trials that were the best when they ended, oldest first.
        lock: held by who changes it, and by who reads it from another thread.
    """

    request: TuneRequest
    peak_gflops: float | None = None
    clock: Clock = time.monotonic
    phases: list[Timed] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    best: TrialSeen | None = None
    improvements: list[TrialSeen] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.began = self.clock()
        self._ended = 0
        self._reach(Phase("search", 0, self.request.trials), since=0)

    def trial(self, seen: TrialSeen) -> None:
        """A trial has ended."""
        with self.lock:
            self._count(seen)

    def phase(self, phase: Phase) -> None:
        """The search does this now."""
        if phase.name != "search":
            with self.lock:
                self._reach(phase)

    def _count(self, seen: TrialSeen) -> None:
        first = not self.counts
        self._ended = max(self._ended, seen.number + 1)
        self.counts[seen.state] += 1
        if seen.failure is not None:
            self.failures[seen.failure] += 1
        best = 0.0 if self.best is None else self.best.gflops or 0.0
        is_faster = seen.state == "timed" and seen.gflops is not None and seen.gflops > best
        found = seen.best or (seen if is_faster else self.best)
        if found is not None and (self.best is None or found.number != self.best.number):
            self.improvements.append(found)
        self.best = found
        total = max(self.request.trials, self._ended)
        # What an earlier search left is there from the first trial on, and took no time here.
        since = seen.number if first else None
        self._reach(Phase("search", self._ended, total), since)

    def _reach(self, phase: Phase, since: int | None = None) -> None:
        now = self.clock()
        last = self.phases[-1] if self.phases else None
        if last is None or last.phase.name != phase.name:
            self.phases.append(Timed(phase, now, phase.done if since is None else since, now))
            return
        last.phase, last.latest = phase, now
        if since is not None:
            last.since = since

    @property
    def earlier(self) -> int:
        """Trials of earlier searches that this one goes on from."""
        return self._ended - self.counts.total()

    @property
    def peak_fraction(self) -> float | None:
        """The best speed over the peak; None where either is missing."""
        if self.best is None or self.best.gflops is None or not self.peak_gflops:
            return None
        return self.best.gflops / self.peak_gflops

    def left_s(self) -> float | None:
        """Seconds until the present phase is done, or until the budget in seconds is spent."""
        now = self.clock()
        by_rate = self.phases[-1].left_s(now)
        if self.request.seconds is None:
            return by_rate
        by_budget = max(0.0, self.request.seconds - (now - self.began))
        return by_budget if by_rate is None else min(by_rate, by_budget)
