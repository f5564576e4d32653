"""How long pages of the dashboard take over a large store, and how large they are.

    python -m benchmarks.watching.pages [--problems 2000] [--trials 100000] [--rounds 20]

Both databases are filled with the same rows, as a team has them after two weeks; one job has a
tenth of all trials. A service in a process of its own is asked over a socket, by one client, in
turns. The columns are milliseconds from the request to the end of the answer (median, most), and
KiB of the answer. With a browser (Chromium, by playwright) the last column is the time to the
first content that it shows.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.report import conditions
from benchmarks.serving.lookup import databases
from benchmarks.serving.populated import Sizes, populate, problem
from benchmarks.serving.service_process import ServiceProcess
from tilewise.service.db import make_engine, schema
from tilewise.service.db.session import write_connection

LARGE_JOB = 1
PAINTED = "performance.getEntriesByName('first-contentful-paint').map((one) => one.startTime)[0]"


def enlarge(url: str, trials: int) -> None:
    """Give one job many trials, copies of its last one with other numbers."""
    engine = make_engine(url)
    names = (
        "job_id, hash, steps, params, state, origin, failure, message, gflops, low, high, time_us"
    )
    names += ", samples, speed_factor, rejected, compile_s, max_error, created_at"
    with write_connection(engine) as connection:
        for number in range(trials):
            connection.exec_driver_sql(
                f"INSERT INTO trials ({names}, number) SELECT {names}, {1000 + number} FROM trials "
                f"WHERE job_id = {LARGE_JOB} AND number = 0"
            )
    engine.dispose()


def paths(key: str) -> list[str]:
    """What a person opens, and what its scripts ask for."""
    return [
        "/", "/?order=share&page=20", "/?contains=m%3D17", "/jobs", f"/jobs/{LARGE_JOB}",
        f"/problems/{key}", "/compare?left=1&right=2", "/suites", "/suites/28",
        f"/plots/jobs/{LARGE_JOB}/convergence", "/plots/suites/28/roofline",
        f"/plots/jobs/{LARGE_JOB}/parallel", "/plots/schedules/1/roofline",
        f"/v1/jobs/{LARGE_JOB}/trials",
    ]  # fmt: skip


@contextmanager
def painter(base: str) -> Iterator[Any]:
    """Tells when a browser shows the first content of a path; of None where there is no browser."""
    found = shutil.which("chromium")
    if found is None:
        yield lambda _path: float("nan")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])

        def painted(path: str) -> float:
            page = browser.new_context(base_url=base).new_page()
            page.goto(path)
            page.wait_for_timeout(300)
            shown = page.evaluate(PAINTED)
            page.close()
            return float(shown)

        yield painted
        browser.close()


def measure(name: str, url: str, rounds: int) -> None:
    """Print the rows of one database."""
    with ServiceProcess(url) as service, httpx.Client(base_url=service.url, timeout=60) as client:
        asked = paths(problem(1).key)
        taken: dict[str, list[float]] = {path: [] for path in asked}
        sizes: dict[str, int] = {}
        for _ in range(rounds):
            for path in asked:
                begin = time.perf_counter()
                answer = client.get(path).raise_for_status()
                taken[path].append(1e3 * (time.perf_counter() - begin))
                sizes[path] = len(answer.content)
        with painter(service.url) as painted:
            for path, ms in taken.items():
                is_page = not path.startswith(("/plots", "/v1"))
                first = f"{median(painted(path) for _ in range(3)):8.0f}" if is_page else ""
                short = path.replace(problem(1).key, "KEY")
                print(f"{name:<12}{short:<34}{median(ms):>8.1f}{max(ms):>8.1f}"
                      f"{sizes[path] / 1024:>8.1f}{first}")  # fmt: skip


def main() -> None:
    """Fill both databases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=2_000)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    large = options.trials // 10
    sizes = Sizes(options.problems, options.trials - large)
    print(conditions())
    print(f"{sizes}, and {large} trials of one job; ms, KiB, ms")
    with tempfile.TemporaryDirectory() as folder, databases(Path(folder)) as urls:
        for name, url in urls.items():
            schema.upgrade(url)
            with write_connection(make_engine(url)) as connection:
                populate(connection, sizes)
            enlarge(url, large)
            measure(name, url, options.rounds)


if __name__ == "__main__":
    main()
