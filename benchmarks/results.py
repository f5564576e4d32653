"""Measures every table that README and docs quote, one after the other.

    python -m benchmarks.results [NAME ...] [--again] [--list]

A table whose stamp names the present generator is left as it is, so that a run that was broken
off goes on where it was. Each table is a process of its own; one that fails keeps its old result
and the others go on. What a table prints is kept beside its JSON, and `stamps.json` says by which
generator, commit and processor, and when.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from benchmarks.declared import TABLES, Table
from benchmarks.places import RESULTS
from tilewise.kernels.system.children import ONE_THREAD
from tilewise.kernels.system.toolchain import generator_hash
from tilewise.kernels.target import detect

STAMPS = RESULTS / "stamps.json"


@dataclass(frozen=True)
class Stamp:
    """By what a table was made."""

    command: str
    generator: str
    commit: str
    processor: str
    date: str


def stamps() -> dict[str, Stamp]:
    """Of the tables that have one; older ones have none."""
    if not STAMPS.exists():
        return {}
    return {name: Stamp(**stamp) for name, stamp in json.loads(STAMPS.read_text()).items()}


def state(table: Table, known: dict[str, Stamp]) -> str:
    """`present`, `stale` (of another generator), or `missing`."""
    if any(not (RESULTS / name).exists() for name in table.files):
        return "missing"
    stamp = known.get(table.name)
    is_present = stamp is not None and stamp.generator == generator_hash()
    return "present" if is_present else "stale"


def measure(table: Table) -> bool:
    """Make a table; whether that went well, and only then is it written."""
    command = [part.format(results=RESULTS) for part in table.command]
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env=os.environ | ONE_THREAD,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(f"{table.name}: exit status {done.returncode}; its old result stays", flush=True)
        return False
    shown = " ".join(["python -m", *table.command]).replace("{results}", "benchmarks/data/results")
    if table.prints:
        _replace(RESULTS / table.files[0], f"$ {shown}\n{done.stdout}")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    made = Stamp(
        shown,
        generator_hash(),
        commit.stdout.strip(),
        detect().canonical,
        f"{datetime.now(UTC):%Y-%m-%d}",
    )
    known = {name: asdict(stamp) for name, stamp in (stamps() | {table.name: made}).items()}
    _replace(STAMPS, json.dumps(dict(sorted(known.items())), indent=1) + "\n")
    return True


def _replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def missing(table: Table) -> list[str]:
    """Packages that a table needs and that are not installed."""
    return [name for name in table.needs if find_spec(name.partition(".")[0]) is None]


def main() -> int:
    """Measure the named tables, or all that are not of the present version."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all tables")
    parser.add_argument("--again", action="store_true", help="also those of the present version")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    options = parser.parse_args()
    if unknown := set(options.names) - {table.name for table in TABLES}:
        parser.error(f"no tables: {', '.join(sorted(unknown))}")
    wanted = [table for table in TABLES if not options.names or table.name in options.names]
    known = stamps()
    if options.list:
        for table in wanted:
            print(f"{table.name:<18} {table.minutes:>4g} min  {state(table, known)}")
        return 0
    todo = [table for table in wanted if options.again or state(table, known) != "present"]
    hours = sum(table.minutes for table in todo) / 60
    print(f"{len(todo)} of {len(wanted)} tables are to be measured, about {hours:.1f} h")
    failed = 0
    for number, table in enumerate(todo, 1):
        begin = time.monotonic()
        print(f"{number}/{len(todo)} {table.name}", flush=True)
        if lacking := missing(table):
            print(f"{table.name}: needs {', '.join(lacking)}; install tilewise[peers]", flush=True)
            failed += 1
        else:
            failed += not measure(table)
            print(f"{table.name}: {(time.monotonic() - begin) / 60:.1f} min", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
