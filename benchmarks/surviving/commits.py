"""What it costs that a commit of SQLite waits for the disk: `synchronous` FULL beside NORMAL.

    python -m benchmarks.surviving.commits [--trials 1000] [--folder .]

Both databases lie in one folder and take their trials in turns.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

from benchmarks.report import conditions
from benchmarks.surviving.power_cut import JOBS, prepare
from benchmarks.surviving.writer import trial
from tilewise.service.db import make_engine, session
from tilewise.service.db.session import make_sessions
from tilewise.service.jobs.trial_store import SqlTrialStore

MODES = ("NORMAL", "FULL")


def opened(folder: str, mode: str) -> SqlTrialStore:
    """A store whose connections are of a mode."""
    session.SYNCHRONOUS = mode
    url = f"sqlite:///{Path(folder) / mode}.db"
    prepare(url)
    store = SqlTrialStore(make_sessions(make_engine(url)), JOBS[0])
    store.trials()  # opens the connection
    return store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--folder", default=".", help="on the disk that is meant")
    options = parser.parse_args()
    took: dict[str, list[float]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        stores = {mode: opened(folder, mode) for mode in MODES}
        for number in range(options.trials):
            for mode, store in stores.items():
                began = time.perf_counter()
                store.add(trial(JOBS[0], number))
                took[mode].append(1e3 * (time.perf_counter() - began))
    print(conditions())
    print(f"{'synchronous':<12} {'median ms':>10} {'90% ms':>8} {'99% ms':>8}")
    for mode, times in took.items():
        parts = quantiles(times, n=100)
        print(f"{mode:<12} {median(times):>10.2f} {parts[89]:>8.2f} {parts[98]:>8.2f}")


if __name__ == "__main__":
    main()
