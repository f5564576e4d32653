"""Report which tests catch planted bugs: `python -m tests.mutations --results FILE.json [ID ...]`.

Each bug of `mutations.toml` is planted in a temporary copy of the checkout. The tests that the list
names run first, then the folder that mirrors the package, then the tests with the mark `full`. A
run that was stopped continues with the bugs that have no result in FILE.
"""

import argparse
import json
import signal
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.mutations.planting import SHORT, Mutation, Suite, copy_checkout, mutations, plant

OUTCOMES = ("make test", "make test-all", "survived")


def main() -> None:
    """Run the bugs that have no result yet, and print the table."""
    parser = argparse.ArgumentParser("python -m tests.mutations", description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="bugs to plant; default: all")
    parser.add_argument("--results", type=Path, metavar="FILE", help="JSON file of the results")
    parser.add_argument(
        "--limit", type=float, default=300.0, metavar="S", help="of a run of pytest"
    )
    parser.add_argument("--again", action="store_true", help="plant again what has a result")
    parser.add_argument("--named", action="store_true", help="no tests but those the list names")
    parser.add_argument("--clean", action="store_true", help="run the named tests without any bug")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests of it fail in the background
    listed = mutations()
    if unknown := set(options.ids) - {one.id for one in listed}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    chosen = [one for one in listed if not options.ids or one.id in options.ids]
    known = _read(options.results)
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy_checkout(Path(folder))
        suite = Suite(Path(folder), options.limit)
        if options.clean:
            paths = sorted({f"tests/{path}" for one in chosen for path in one.tests})
            print(suite.failure(paths, SHORT) or f"{len(paths)} files of tests pass")
            return
        for one in chosen:
            if options.again or known.get(one.id, {}).get("digest") != one.digest:
                known[one.id] = {
                    "digest": one.digest,
                    **asdict(plant(one, suite, only_named=options.named)),
                }
                if options.results:
                    options.results.write_text(json.dumps(known, indent=1))
                _print(one, known[one.id])
    _print_table(chosen, known)


def _read(path: Path | None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path and path.exists() else {}
    return found


def _print(one: Mutation, result: dict[str, Any]) -> None:
    told = result["test"] or one.breaks
    print(f"{one.id:<32} {result['outcome']:<14} {result['seconds']:5.0f} s  {told}", flush=True)


def _print_table(chosen: list[Mutation], known: dict[str, Any]) -> None:
    counts = Counter((one.package, known[one.id]["outcome"]) for one in chosen)
    packages = list(dict.fromkeys(one.package for one in chosen))
    print(f"\n{'package':<12}" + "".join(f"{outcome:>15}" for outcome in OUTCOMES))
    for package in packages:
        numbers = (counts[package, outcome] for outcome in OUTCOMES)
        print(f"{package:<12}" + "".join(f"{number:>15}" for number in numbers))
    totals = (sum(counts[package, outcome] for package in packages) for outcome in OUTCOMES)
    print(f"{'all':<12}" + "".join(f"{number:>15}" for number in totals))


if __name__ == "__main__":
    main()
