"""Measure the tables of README, or all, on this machine.

    python -m benchmarks.results [NAME ...] [--all] [--again] [--list]

Results go to `benchmarks/data/results/<machine>/`. Each table is a process of its own. A table
whose stamp in `stamps.json` names the present generator is skipped, so an interrupted run resumes;
a table that fails keeps its old result.
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
from benchmarks.places import results_of
from tilewise.kernels.system.children import ONE_THREAD
from tilewise.kernels.system.toolchain import generator_hash
from tilewise.kernels.target import detect

STAMPS = "stamps.json"
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Stamp:
    """The command, version, machine and day of a table."""

    command: str
    generator: str
    commit: str
    processor: str
    date: str


def stamps(folder: Path) -> dict[str, Stamp]:
    """Return the stamps of a machine's tables; tables of early versions have none."""
    path = folder / STAMPS
    if not path.exists():
        return {}
    return {name: Stamp(**stamp) for name, stamp in json.loads(path.read_text()).items()}


def state(table: Table, folder: Path) -> str:
    """Return `present`, `stale` (another generator made it) or `missing`."""
    if any(not (folder / name).exists() for name in table.files):
        return "missing"
    stamp = stamps(folder).get(table.name)
    is_present = stamp is not None and stamp.generator == generator_hash()
    return "present" if is_present else "stale"


def measure(table: Table, folder: Path) -> bool:
    """Run a table's command, and store what it printed and its stamp if it succeeded."""
    command = [part.format(results=folder) for part in table.command]
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
    shown = " ".join(["python -m", *table.command]).replace(
        "{results}", f"benchmarks/data/results/{folder.name}"
    )
    if table.prints:
        _replace(folder / table.files[0], f"$ {shown}\n{done.stdout}")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    made = Stamp(
        shown,
        generator_hash(),
        commit.stdout.strip(),
        detect().canonical,
        f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
    )
    known = {name: asdict(one) for name, one in (stamps(folder) | {table.name: made}).items()}
    _replace(folder / STAMPS, json.dumps(dict(sorted(known.items())), indent=1) + "\n")
    return True


def _replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def missing(table: Table) -> list[str]:
    """Return the packages that a table needs and that are not installed."""
    return [name for name in table.needs if find_spec(name.partition(".")[0]) is None]


def main() -> int:
    """Measure the named tables, or those that are not of the present version."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: the tables of README")
    parser.add_argument("--all", action="store_true", help="every table, for hours")
    parser.add_argument("--again", action="store_true", help="also those of the present version")
    parser.add_argument("--list", action="store_true", help="print the tables and their state")
    options = parser.parse_args()
    if unknown := set(options.names) - {table.name for table in TABLES}:
        parser.error(f"no tables: {', '.join(sorted(unknown))}")
    wanted = [
        table
        for table in TABLES
        if options.all or table.name in options.names or (not options.names and table.in_readme)
    ]
    folder = results_of(detect())
    folder.mkdir(parents=True, exist_ok=True)
    if options.list:
        for table in wanted:
            print(f"{table.name:<24} {table.minutes:>4g} min  {state(table, folder)}")
        return 0
    todo = [table for table in wanted if options.again or state(table, folder) != "present"]
    minutes = sum(table.minutes for table in todo)
    print(f"{len(todo)} of {len(wanted)} tables are to be measured, about {minutes:.0f} minutes")
    failed = 0
    for number, table in enumerate(todo, 1):
        begin = time.monotonic()
        print(f"{number}/{len(todo)} {table.name}", flush=True)
        if lacking := missing(table):
            print(f"{table.name}: needs {', '.join(lacking)}; install tilewise[peers]", flush=True)
            failed += 1
        elif measure(table, folder):
            print(f"{table.name}: {(time.monotonic() - begin) / 60:.1f} min", flush=True)
        else:
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
