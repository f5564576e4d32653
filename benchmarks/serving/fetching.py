"""What `tilewise fetch` costs where nothing has changed, and what it leaves when it is killed.

    python -m benchmarks.serving.fetching [--scripts 200] [--runs 15] [--kills 100]

A service in a process of its own has as many scripts as are asked for, and five times as many
schedules. The table has medians and extremes of whole processes: one that only prints its version,
one that fetches nothing new, and one that finds that folder and lock match. Then fetches that begin
with an empty folder are killed at moments of chance; each must leave whole files alone, and the
next one must mend what is missing.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.report import conditions
from benchmarks.serving.service_process import ServiceProcess
from benchmarks.serving.store import Sizes, build, problem
from tilewise.service.db import make_engine, schema
from tilewise.service.db.session import write_connection
from tilewise.service.host.machine import examine

Command = Sequence[str]


def seconds(command: Command) -> float:
    """Of a whole process, which has to succeed."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def row(name: str, found: list[float]) -> str:
    """Median and extremes in seconds."""
    return f"{name:<42}{median(found):>8.3f}{min(found):>8.3f}{max(found):>8.3f}"


def contents(folder: Path) -> dict[str, str]:
    """The files of a folder, without those that a kill has left."""
    found = folder.iterdir() if folder.exists() else ()
    return {path.name: path.read_text() for path in found if not path.name.startswith(".")}


def killed(command: Command, after_s: float) -> bool:
    """Begin a fetch and kill it; whether it was still running."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def kill_and_mend(command: Command, folder: Path, lock: Path, kills: int, longest: float) -> str:
    """Kill fetches at moments of chance; AssertionError where one leaves something half done."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    whole, text = contents(folder), lock.read_text()
    rng, struck, partial = random.Random(0), 0, 0
    for _ in range(kills):
        for path in [*folder.iterdir(), lock]:
            path.unlink(missing_ok=True)
        struck += killed(command, rng.uniform(0.05, longest))
        left = contents(folder)
        partial += 0 < len(left) < len(whole)
        assert all(whole[name] == found for name, found in left.items()), "a half-written file"
        assert not lock.exists() or lock.read_text() == text, "a half-written lock file"
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        assert contents(folder) == whole and lock.read_text() == text, "not mended"
        left_over = [*folder.glob(".*"), *lock.parent.glob(".*")]
        assert not left_over, f"a temporary file was left: {left_over}"
    return f"{struck} of {kills} fetches were killed, {partial} with part of the files written"


def turns_of(fetch: Command, scripts: int) -> dict[str, Command]:
    """The commands that are timed, by what they are called."""
    return {
        "tilewise --version": [*fetch[:3], "--version"],
        f"fetch of {scripts} unchanged scripts": fetch,
        "fetch --frozen of the same": [*fetch, "--frozen"],
    }


def timed(turns: dict[str, Command], runs: int) -> dict[str, list[float]]:
    """Seconds of each command, in turns."""
    found: dict[str, list[float]] = {label: [] for label in turns}
    for _ in range(runs):
        for label, command in turns.items():
            found[label].append(seconds(command))
    return found


def store_of(url: str, scripts: int) -> None:
    """A database with so many scripts."""
    schema.upgrade(url)
    engine = make_engine(url)
    with write_connection(engine) as connection:
        build(connection, Sizes(5 * scripts, 50 * scripts, scripts), examine().target)
    engine.dispose()


def measure(place: Path, service: ServiceProcess, options: argparse.Namespace) -> None:
    """Print the tables of one service."""
    wanted, folder, lock = place / "list.txt", place / "scripts", place / "tilewise.lock"
    wanted.write_text("".join(f"{problem(n)}\n" for n in range(1, options.scripts + 1)))
    fetch = [sys.executable, "-m", "tilewise", "fetch", str(wanted), "-o", str(folder),
             "--server", service.url]  # fmt: skip
    first = seconds(fetch)
    found = timed(turns_of(fetch, options.scripts), options.runs)
    print(f"{'seconds of a process':<42}{'median':>8}{'least':>8}{'most':>8}")
    for label, times in found.items():
        print(row(label, times))
    start, again, _ = found.values()
    after = [one - begin for one, begin in zip(again, start, strict=True)]
    print(row("fetch less --version, pair by pair", after))
    print(f"{'the first fetch, of all':<42}{first:>8.3f}")
    print(kill_and_mend(fetch, folder, lock, options.kills, first))


def main() -> None:
    """Build a store, serve it, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scripts", type=int, default=200)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--kills", type=int, default=100)
    options = parser.parse_args()
    print(conditions())
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        os.environ["TILEWISE_CACHE_DIR"] = str(place / "cache")
        url = f"sqlite:///{place / 'store.db'}"
        store_of(url, options.scripts)
        with ServiceProcess(url) as service:
            measure(place, service, options)


if __name__ == "__main__":
    main()
