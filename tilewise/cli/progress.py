"""What a person sees while a search runs: its phases on stderr, if that is a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from search.progress import Phase

if TYPE_CHECKING:
    from rich.progress import Progress


class Watcher:
    """Told of finished trials and of phases; tells nobody."""

    def __call__(self, done: int, best: float | None) -> None:
        """So many trials have ended, and the best has this speed in GFLOP/s."""

    def phase(self, phase: Phase) -> None:
        """The search does this now."""


class Bars(Watcher):
    """A line for each phase that was reached; only the last one moves.

    Args:
        shown: rich's display, started.
        trials: the budget of the search.
    """

    def __init__(self, shown: "Progress", trials: int) -> None:
        self._shown = shown
        self._trials = trials
        self._begin(Phase("search", 0, trials))

    def __call__(self, done: int, best: float | None) -> None:
        """Move the line of the search."""
        if self._name != "search" and done >= self._trials:
            return  # told again while something else goes on
        text = "" if best is None else f"best {best:.1f} GFLOP/s"
        self._show(Phase("search", done, self._trials), text)

    def phase(self, phase: Phase) -> None:
        """Move the line of a phase, or begin it."""
        self._show(phase, None)

    def _show(self, phase: Phase, text: str | None) -> None:
        if phase.name != self._name:
            self._shown.stop_task(self._task)
            self._begin(phase)
        self._shown.update(self._task, completed=phase.done, total=phase.total or None)
        if text is not None:
            self._shown.update(self._task, description=text)

    def _begin(self, phase: Phase) -> None:
        """Begin a line below the others."""
        self._name = phase.name
        self._task = self._shown.add_task("", total=phase.total or None, name=phase.name)


@contextmanager
def progress(trials: int) -> Iterator[Watcher]:
    """Something to tell of finished trials, of the best speed and of phases.

    Args:
        trials: the budget of the search.
    """
    if not sys.stderr.isatty():
        yield Watcher()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.fields[name]:<6}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        yield Bars(shown, trials)
