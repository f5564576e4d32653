"""A progress bar on stderr when that is a terminal, and nothing otherwise."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tilewise.backends.base import Report


@contextmanager
def progress(total: int) -> Iterator[Report]:
    """A function to report finished trials and the best speed with."""
    if not sys.stderr.isatty():
        yield lambda _done, _best: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("tuning"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def report(done: int, best: float | None) -> None:
            text = "" if best is None else f"best {best:.1f} GFLOP/s"
            bar.update(task, completed=done, description=text)

        yield report
