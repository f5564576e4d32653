"""What a service does at a moment, gathered and drawn as tables for a terminal."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from tilewise.kernels.quoting import one_line

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from tilewise.client import Client, Job, Worker

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
    """What a service does.

    Attributes:
        running, queued: jobs, newest first.
        ended: the newest jobs that have ended.
        workers: processes that take jobs.
    """

    running: tuple["Job", ...]
    queued: tuple["Job", ...]
    ended: tuple["Job", ...]
    workers: tuple["Worker", ...]

    def to_json(self) -> dict[str, Any]:
        """The service's own objects."""
        return {
            "running": [job.document for job in self.running],
            "queued": [job.document for job in self.queued],
            "ended": [job.document for job in self.ended],
            "workers": [asdict(worker) for worker in self.workers],
        }


def take(client: "Client") -> Snapshot:
    """Look at a service.

    Raises:
        TilewiseError: it does not answer.
    """
    newest = islice(client.jobs(), MOST_LIVE)
    return Snapshot(
        running=tuple(islice(client.jobs("running"), MOST_LIVE)),
        queued=tuple(islice(client.jobs("queued"), MOST_LIVE)),
        ended=tuple(islice((job for job in newest if job.has_ended), MOST_ENDED)),
        workers=tuple(client.targets().workers),
    )


def rendered(found: Snapshot, width: int) -> "Group":
    """The tables of a snapshot; what others have named is shown as text, without control codes.

    Args:
        found: the snapshot.
        width: of the terminal; a narrow one gets fewer columns.
    """
    from rich.console import Group
    from rich.text import Text

    places = sum(worker.capacity for worker in found.workers)
    told = (
        f"{len(found.running)} running, {len(found.queued)} queued, "
        f"{len(found.workers)} workers for {places} jobs at once"
    )
    jobs = [_job_row(job) for job in (*found.running, *found.queued, *found.ended)]
    machines = [_machine_row(worker) for worker in found.workers]
    names = NARROW if width < WIDE else COLUMNS
    return Group(Text(told), _table(names, jobs, width), _table(MACHINE, machines, width))


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
    """Columns of which only those of `LONG` give way where there is no room."""
    from rich.table import Table
    from rich.text import Text

    kept = [name for name in names if name not in LONG]
    taken = sum(max(len(name), *(len(row[name]) for row in rows), 0) for name in kept)
    room = max(1, (width - taken - GAP * len(names)) // (len(names) - len(kept)))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        justify: Literal["left", "right"] = "right" if name in NUMBERS else "left"
        table.add_column(name, justify=justify, no_wrap=True)
    for row in rows:
        cells = {name: Text(one_line(row[name])) for name in names}
        for name in set(names) - set(kept):
            cells[name].truncate(room, overflow="ellipsis")
        table.add_row(*cells.values())
    return table
