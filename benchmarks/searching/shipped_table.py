"""Make the archive of schedules that Tilewise ships for this machine's processor.

    python -m benchmarks.searching.shipped_table DB [--trials 14]

Searches for those problems of `benchmarks/data/suites/common.json` that the store lacks, and
exports the best schedules of all of them, so an interrupted run resumes. With `--trials 0`, only
exports. The archive names the processor in place of the host.
"""

import argparse
import tempfile
import time
from pathlib import Path

from sqlalchemy import update

from benchmarks.places import SUITES
from tilewise.backends.administration import export_store, import_store
from tilewise.backends.base import ignore_trial
from tilewise.backends.local import LocalBackend
from tilewise.backends.service_errors import opened_sessions
from tilewise.bench.suite import read_suite
from tilewise.errors import MissingError, TilewiseError
from tilewise.kernels.target import detect
from tilewise.search.records import TuneRequest
from tilewise.service.archive.builtin import TABLES, name_here
from tilewise.service.archive.export import Selection
from tilewise.service.db.models import Job, Machine
from tilewise.service.db.session import writing
from tilewise.version import VERSION

NAME = "common"


def complete(database: str, problems: list[str], trials: int) -> None:
    """Search for the problems that a store lacks."""
    backend, request = LocalBackend(database), TuneRequest(trials=trials, peers=False)
    for number, problem in enumerate(problems, 1):
        begin = time.monotonic()
        if not is_stored(backend, problem):
            try:
                backend.tune(problem, "host", request, ignore_trial)
            except TilewiseError as error:
                print(f"{problem}: {error}")
            took = time.monotonic() - begin
            print(f"{number}/{len(problems)} {problem}: {took:.0f} s", flush=True)


def is_stored(backend: LocalBackend, problem: str) -> bool:
    """Return whether a result of the present toolchain is stored."""
    try:
        kind: str = backend.show(problem, "host", "hot")["match"]["kind"]
    except MissingError:
        return False
    return kind == "exact"


def write(database: str, problems: list[str], into: Path) -> None:
    """Export the best schedules of some problems on this processor."""
    here = Selection(tuple(problems), targets=(detect().canonical,), best=True)
    with tempfile.TemporaryDirectory() as folder:
        copy, part = f"sqlite:///{folder}/copy.db", f"{folder}/part.zip"
        export_store(part, here, database)
        import_store(part, copy, resume=False, dry_run=False)
        with opened_sessions(copy) as sessions, writing(sessions) as session:
            for model in (Machine, Job):
                session.execute(update(model).values(host=f"{NAME}-{into.stem}"))
        published = Selection(best=True, origin=f"Tilewise {VERSION}")
        rows = export_store(str(into), published, copy)["rows"]
    kib = into.stat().st_size / 1024
    print(f"{into}: {rows['schedules']} schedules of {len(problems)} problems, {kib:.0f} KiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database", metavar="DB", help="URL of the store")
    parser.add_argument("--trials", type=int, default=14)
    options = parser.parse_args()
    entries = read_suite(SUITES / f"{NAME}.json").entries
    problems = [entry.problem.canonical for entry in entries]
    if options.trials:
        complete(options.database, problems, options.trials)
    write(options.database, problems, TABLES / f"{name_here()}.zip")


if __name__ == "__main__":
    main()
