"""What stderr gets while a search runs: a table on a terminal, lines in a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from tilewise.backends.base import TrialSeen
from tilewise.cli.watching import IMPROVEMENTS, Timed, Watched
from tilewise.kernels.quoting import one_line
from tilewise.search.progress import Phase
from tilewise.search.records import TuneRequest

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

REFRESHES_A_SECOND = 4
MOST_BAR = 40  # columns
LABEL = 10  # columns of a row's name
WIDE = 60  # columns from which a bar has room
Peak = Callable[[], float | None]


class Watcher:
    """Told of trials and phases.

    Args:
        watched: what to keep of them.
    """

    def __init__(self, watched: Watched) -> None:
        self.watched = watched

    def trial(self, seen: TrialSeen) -> None:
        """A trial has ended."""
        self.watched.trial(seen)

    def phase(self, phase: Phase) -> None:
        """The search does this now."""
        self.watched.phase(phase)


class Lines(Watcher):
    """A line for each improvement, and for each phase when it begins.

    Args:
        watched: what to keep.
        stream: where the lines go.
    """

    def __init__(self, watched: Watched, stream: TextIO) -> None:
        super().__init__(watched)
        self._stream = stream

    def trial(self, seen: TrialSeen) -> None:
        """Print the best where it, or what is known of its speed, has changed."""
        before = self.watched.best
        super().trial(seen)
        best = self.watched.best
        if best is not None and best != before:
            self._say(f"{counted(self.watched.phases[-1])}: best {speed(best)}")

    def phase(self, phase: Phase) -> None:
        """Say what begins."""
        known = len(self.watched.phases)
        super().phase(phase)
        if len(self.watched.phases) > known:
            self._say(f"{phase.name}, after {trials(self.watched)}")

    def _say(self, text: str) -> None:
        self._stream.write(f"tilewise: {one_line(text)}\n")
        self._stream.flush()


class Screen:
    """A table of what is known, drawn anew for the width that the terminal has then."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def __rich_console__(self, _console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """The rows, each on one line of the terminal."""
        with self._watched.lock:
            table = drawn(self._watched, options.max_width)
        yield table


@contextmanager
def progress(request: TuneRequest, peak: Peak) -> Iterator[Watcher]:
    """Something to tell of trials and of phases.

    Args:
        request: how hard is searched.
        peak: asked once, where a person watches, for the speed that a search can reach.
    """
    watched = Watched(request)
    if not sys.stderr.isatty():
        yield Lines(watched, sys.stderr)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    if console.is_dumb_terminal:
        yield Lines(watched, sys.stderr)
        return
    watched.peak_gflops = peak()
    with Live(
        Screen(watched),
        console=console,
        transient=True,
        refresh_per_second=REFRESHES_A_SECOND,
    ):
        yield Watcher(watched)


def drawn(watched: Watched, width: int) -> "Table":
    """The phases, the best, the trials and the newest improvements, a row each.

    Args:
        watched: the search.
        width: of the terminal; what has no room is cut off.
    """
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
        told = ", ".join(f"trial {seen.number} {seen.gflops:.1f}" for seen in newest)
        table.add_row(Text("improved", style="bold"), Text(told))
    return table


def _phase(watched: Watched, timed: Timed, width: int) -> str:
    is_last = timed is watched.phases[-1]
    now = watched.clock() if is_last else timed.latest
    parts = [counted(timed).removeprefix(timed.phase.name).strip(), f"{now - timed.began:.0f} s"]
    left_s = watched.left_s() if is_last else None
    if left_s is not None:
        parts.append(f"about {left_s:.0f} s left")
    said = ", ".join(part for part in parts if part)
    if width < WIDE or not timed.phase.total:
        return said
    columns = min(MOST_BAR, width - WIDE + LABEL)
    full = round(columns * min(1.0, timed.phase.done / timed.phase.total))
    return f"{'█' * full}{'░' * (columns - full)} {said}"


def counted(timed: Timed) -> str:
    """A phase with how much of it is done."""
    phase = timed.phase
    return f"{phase.name} {phase.done}/{phase.total}" if phase.total else phase.name


def _best(watched: Watched) -> str:
    assert watched.best is not None
    share = watched.peak_fraction
    return speed(watched.best) + ("" if share is None else f", {share:.0%} of the peak")


def speed(seen: TrialSeen) -> str:
    """A trial's speed with its interval."""
    if seen.interval is None:
        return f"{seen.gflops:.1f} GFLOP/s [one sample]"
    low, high = seen.interval
    return f"{seen.gflops:.1f} GFLOP/s [{low:.1f}, {high:.1f}]"


def trials(watched: Watched) -> str:
    """How trials have ended, and of what they failed."""
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
