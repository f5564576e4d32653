"""Progress of a search on stderr: a table on a terminal, lines in a pipe."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, TextIO

from tilewise.backends.base import TrialSeen
from tilewise.kernels.quoting import one_line
from tilewise.search.progress import SearchPhase
from tilewise.search.records import TuneRequest

if TYPE_CHECKING:
    from rich.table import Table

REFRESHES_A_SECOND = 4
MOST_BAR = 40  # columns
LABEL = 10  # columns of a row's name
WIDE = 60  # columns from which a bar has room
Peak = Callable[[], float | None]
IMPROVEMENTS = 3  # the newest ones that are shown
Clock = Callable[[], float]


@dataclass
class PhaseTimes:
    """A phase with its first and last moments; `since` is how much was done at `began`."""

    phase: SearchPhase
    began: float
    since: int
    latest: float

    def left_s(self, now: float) -> float | None:
        """Return the seconds left at the rate so far; None before any progress."""
        done, left = self.phase.done - self.since, self.phase.total - self.phase.done
        if done <= 0 or not self.phase.total:
            return None
        return max(0.0, (self.latest - self.began) / done * left - (now - self.latest))


@dataclass
class Watched:
    """The state of a search as reported by trials and phases.

    `lock` guards it between the reporting and the drawing thread.
    """

    request: TuneRequest
    peak_gflops: float | None = None
    clock: Clock = time.monotonic
    phases: list[PhaseTimes] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    best: TrialSeen | None = None
    improvements: list[TrialSeen] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.began = self.clock()
        self._ended = 0
        self._reach(SearchPhase("search", 0, self.request.trials), since=0)

    def trial(self, seen: TrialSeen) -> None:
        """Record a finished trial."""
        with self.lock:
            self._count(seen)

    def phase(self, phase: SearchPhase) -> None:
        """Record a phase."""
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
        self._reach(SearchPhase("search", self._ended, total), since)

    def _reach(self, phase: SearchPhase, since: int | None = None) -> None:
        now = self.clock()
        last = self.phases[-1] if self.phases else None
        if last is None or last.phase.name != phase.name:
            self.phases.append(PhaseTimes(phase, now, phase.done if since is None else since, now))
            return
        last.phase, last.latest = phase, now
        if since is not None:
            last.since = since

    @property
    def earlier(self) -> int:
        """Trials of earlier searches that this one continues."""
        return self._ended - self.counts.total()

    @property
    def peak_fraction(self) -> float | None:
        """The best speed over the peak, if both are known."""
        if self.best is None or self.best.gflops is None or not self.peak_gflops:
            return None
        return self.best.gflops / self.peak_gflops

    def left_s(self) -> float | None:
        """Return the seconds until the phase or the budget ends."""
        now = self.clock()
        by_rate = self.phases[-1].left_s(now)
        if self.request.seconds is None:
            return by_rate
        by_budget = max(0.0, self.request.seconds - (now - self.began))
        return by_budget if by_rate is None else min(by_rate, by_budget)


@dataclass
class ProgressLines(Watched):
    """Prints a line for each improvement and each new phase."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)

    def trial(self, seen: TrialSeen) -> None:
        """Print the best if it, or its speed, changed."""
        before = self.best
        super().trial(seen)
        if self.best is not None and self.best != before:
            self._say(f"{counted(self.phases[-1])}: best {speed(self.best)}")

    def phase(self, phase: SearchPhase) -> None:
        """Print a new phase."""
        known = len(self.phases)
        super().phase(phase)
        if len(self.phases) > known:
            self._say(f"{phase.name}, after {trials(self)}")

    def _say(self, text: str) -> None:
        self.stream.write(f"tilewise: {one_line(text)}\n")
        self.stream.flush()


@contextmanager
def progress(request: TuneRequest, peak: Peak) -> Iterator[Watched]:
    """Show progress; `peak` is requested once, on a terminal only."""
    if not sys.stderr.isatty():
        yield ProgressLines(request)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    if console.is_dumb_terminal:
        yield ProgressLines(request)
        return
    watched = Watched(request, peak())

    def draw() -> "Table":
        with watched.lock:
            return drawn(watched, console.width)

    with Live(
        get_renderable=draw, console=console, transient=True, refresh_per_second=REFRESHES_A_SECOND
    ):
        yield watched


def drawn(watched: Watched, width: int) -> "Table":
    """Return phases, best, trials and newest improvements as a table of some width."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(width=LABEL, no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=max(1, width - LABEL - 2))
    for timed in watched.phases:
        table.add_row(Text(timed.phase.name, style="bold"), Text(_phase(watched, timed, width)))
    if watched.best is not None:
        table.add_row(Text("best", style="bold"), Text(_best(watched), style="green"))
    table.add_row(Text("trials", style="bold"), Text(trials(watched)))
    if len(watched.improvements) > 1:
        newest = watched.improvements[: -IMPROVEMENTS - 1 : -1]
        shown = ", ".join(f"trial {seen.number} {seen.gflops:.1f}" for seen in newest)
        table.add_row(Text("improved", style="bold"), Text(shown))
    return table


def _phase(watched: Watched, timed: PhaseTimes, width: int) -> str:
    is_last = timed is watched.phases[-1]
    now = watched.clock() if is_last else timed.latest
    parts = [counted(timed).removeprefix(timed.phase.name).strip(), f"{now - timed.began:.0f} s"]
    left_s = watched.left_s() if is_last else None
    if left_s is not None:
        parts.append(f"about {left_s:.0f} s left")
    text = ", ".join(part for part in parts if part)
    if width < WIDE or not timed.phase.total:
        return text
    columns = min(MOST_BAR, width - WIDE + LABEL)
    full = round(columns * min(1.0, timed.phase.done / timed.phase.total))
    return f"{'█' * full}{'░' * (columns - full)} {text}"


def counted(timed: PhaseTimes) -> str:
    """Format a phase with its progress."""
    phase = timed.phase
    return f"{phase.name} {phase.done}/{phase.total}" if phase.total else phase.name


def _best(watched: Watched) -> str:
    assert watched.best is not None
    share = watched.peak_fraction
    return speed(watched.best) + ("" if share is None else f", {share:.0%} of the peak")


def speed(seen: TrialSeen) -> str:
    """Format a trial's speed with its interval."""
    if seen.interval is None:
        return f"{seen.gflops:.1f} GFLOP/s [one sample]"
    low, high = seen.interval
    return f"{seen.gflops:.1f} GFLOP/s [{low:.1f}, {high:.1f}]"


def trials(watched: Watched) -> str:
    """Format how trials ended."""
    counts = watched.counts
    parts = [f"{counts[state]} {state}" for state in ("timed", "pruned", "failed")]
    if watched.failures:
        classes = ", ".join(
            f"{many} {one_line(name)}" for name, many in sorted(watched.failures.items())
        )
        parts[-1] += f" ({classes})"
    if watched.earlier:
        parts.append(f"{watched.earlier} of an earlier search")
    return ", ".join(parts)
