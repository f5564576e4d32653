"""`tilewise top`: a service's jobs and machines on a terminal."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from tilewise.backends.choose import named_server
from tilewise.cli.command import SERVER, Command, arg, flag
from tilewise.errors import BadInputError, NoAnswerError
from tilewise.kernels.quoting import one_line, quoted
from tilewise.requirements import BASE

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from tilewise.client import Client, Job, Worker

INTERVAL_S = 2.0
LEAST_S = 0.2
UNBOUNDED = 2000  # characters of a line in a pipe, where nothing is cut off
MOST_LIVE = 100  # jobs of a state
MOST_ENDED = 5
COLUMNS = ("job", "state", "phase", "trials", "GFLOP/s", "time", "problem", "target")
NARROW = ("job", "state", "trials", "GFLOP/s", "problem")
WIDE = 90  # characters that all columns take
MACHINE = ("machine", "processor", "cores", "targets")
LONG = ("problem", "target", "targets", "machine")
GAP = 2  # at most, between columns
NUMBERS = ("cores", "job", "trials", "GFLOP/s", "time")


@dataclass(frozen=True)
class Snapshot:
    """What a service does; jobs are newest first."""

    running: tuple["Job", ...]
    queued: tuple["Job", ...]
    ended: tuple["Job", ...]
    workers: tuple["Worker", ...]

    def to_json(self) -> dict[str, Any]:
        """Return the service's own objects."""
        return {
            "running": [job.document for job in self.running],
            "queued": [job.document for job in self.queued],
            "ended": [job.document for job in self.ended],
            "workers": [asdict(worker) for worker in self.workers],
        }


def take(client: "Client") -> Snapshot:
    """Take a snapshot; raise TilewiseError if the service does not answer."""
    newest = islice(client.jobs(), MOST_LIVE)
    return Snapshot(
        running=tuple(islice(client.jobs("running"), MOST_LIVE)),
        queued=tuple(islice(client.jobs("queued"), MOST_LIVE)),
        ended=tuple(islice((job for job in newest if job.has_ended), MOST_ENDED)),
        workers=tuple(client.targets().workers),
    )


def rendered(found: Snapshot, width: int) -> "Group":
    """Return the tables of a snapshot for a width, with control codes removed."""
    from rich.console import Group
    from rich.text import Text

    places = sum(worker.capacity for worker in found.workers)
    text = (
        f"{len(found.running)} running, {len(found.queued)} queued, "
        f"{len(found.workers)} workers for {places} jobs at once"
    )
    jobs = [_job_row(job) for job in (*found.running, *found.queued, *found.ended)]
    machines = [_machine_row(worker) for worker in found.workers]
    names = NARROW if width < WIDE else COLUMNS
    return Group(Text(text), _table(names, jobs, width), _table(MACHINE, machines, width))


def _job_row(job: "Job") -> dict[str, str]:
    phase = "" if job.phase is None or job.has_ended else job.phase.name
    if phase and job.phase is not None and job.phase.total:
        phase += f" {job.phase.done}/{job.phase.total}"
    return {
        "job": str(job.id),
        "state": job.state,
        "phase": phase,
        "trials": f"{job.trials.ended}/{job.trials.asked}",
        "GFLOP/s": "" if job.best is None else f"{job.best.gflops:.1f}",
        "time": f"{job.elapsed_s:.0f} s",
        "problem": job.problem,
        "target": job.target,
    }


def _machine_row(worker: "Worker") -> dict[str, str]:
    return {
        "machine": worker.host,
        "processor": worker.cpu,
        "cores": str(worker.cores),
        "targets": " ".join(worker.targets),
    }


def _table(names: Sequence[str], rows: Sequence[dict[str, str]], width: int) -> "Table":
    """Return a table in which only columns of `LONG` shrink."""
    from rich.table import Table
    from rich.text import Text

    kept = [name for name in names if name not in LONG]
    taken = sum(max(len(name), *(len(row[name]) for row in rows), 0) for name in kept)
    space = max(1, (width - taken - GAP * len(names)) // (len(names) - len(kept)))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        justify: Literal["left", "right"] = "right" if name in NUMBERS else "left"
        table.add_column(name, justify=justify, no_wrap=True)
    for row in rows:
        cells = {name: Text(one_line(row[name])) for name in names}
        for name in set(names) - set(kept):
            cells[name].truncate(space, overflow="ellipsis")
        table.add_row(*cells.values())
    return table


def top(options: argparse.Namespace) -> None:
    """Show a service's jobs and machines, refreshed periodically."""
    server = named_server(options.server)
    if server is None:
        raise BadInputError("name a service by --server URL, or by TILEWISE_SERVER")
    interval_s = _interval(options.interval)
    from tilewise.client import Client

    with Client(server, patience_s=0) as client:  # which looks again by itself
        if options.once:
            _print(take(client), as_json=options.json)
            return
        with suppress(KeyboardInterrupt):
            found = _snapshots(lambda: take(client), interval_s)
            if not options.json and sys.stdout.isatty():
                _live(found, server)
            for one in found:
                if isinstance(one, Snapshot):
                    _print(one, as_json=options.json)
                else:
                    sys.stderr.write(f"tilewise: {one_line(one)}\n")


def _interval(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not LEAST_S <= found < float("inf"):
        raise BadInputError(f"--interval {quoted(text)} is not {LEAST_S:g} seconds or more")
    return found


Look = Snapshot | NoAnswerError


def _snapshots(look: Callable[[], Snapshot], interval_s: float) -> Iterator[Look]:
    """Yield a snapshot per interval, or why the service does not answer; raise other errors."""
    while True:
        try:
            found: Look = look()
        except NoAnswerError as error:
            found = error
        yield found
        time.sleep(interval_s)


def _print(found: Snapshot, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(found.to_json(), default=str) + "\n")
        sys.stdout.flush()
        return
    from rich.console import Console

    width = None if sys.stdout.isatty() else UNBOUNDED
    console = Console(width=width, highlight=False)
    console.print(rendered(found, console.width))


def _live(snapshots: Iterator[Look], server: str) -> None:
    """Redraw the screen, also while the service is away."""
    from rich.console import Group, RenderableType
    from rich.live import Live
    from rich.text import Text

    last: Snapshot | None = None
    with Live(screen=True, auto_refresh=False) as screen:
        for found in snapshots:
            parts: list[RenderableType] = []
            if isinstance(found, Snapshot):
                last = found
            else:
                parts.append(Text(f"{server} does not answer: {found}", style="red"))
            if last is not None:
                parts.append(rendered(last, screen.console.width))
            screen.update(Group(*parts), refresh=True)


COMMANDS = (
    Command(
        "top", top, (
            flag("--once", "print one snapshot and exit"),
            arg("--interval", f"seconds between snapshots (default: {INTERVAL_S:g})",
                default=str(INTERVAL_S), metavar="S"),
            SERVER,
        ),
        extra=BASE,
        at_service=BASE,
        examples=("top --server http://localhost:8000",),
    ),
)  # fmt: skip
