"""`tilewise bench`: compare a suite of problems with other libraries."""

import argparse
import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tilewise.backends.choose import Backend, open_backend
from tilewise.bench import Compared, Suite, SuiteEntry, SuiteTable, read_suite, table
from tilewise.cli.command import DB, SERVER, Command, arg, of_request
from tilewise.cli.files import json_text, require_file, require_folder, write_text
from tilewise.cli.tuning import tune_shown
from tilewise.errors import BadInputError, MissingError, TilewiseError, UnreadableError
from tilewise.fetch.folder import file_errors
from tilewise.kernels.errors import KernelsError
from tilewise.kernels.footprint import check_memory
from tilewise.kernels.quoting import quoted
from tilewise.requirements import not_installed
from tilewise.schema.base import Json
from tilewise.search.errors import SearchError
from tilewise.search.networks.request import ModelRequest
from tilewise.search.records import CACHE_MODES, TuneRequest

if TYPE_CHECKING:
    from tilewise.kernels.target import Target


def bench(options: argparse.Namespace) -> None:
    """Compare a suite of problems with other libraries."""
    require_file(options.suite)
    suite = read_suite(Path(options.suite))
    if options.cache == "cold":  # a suite of its own, not among the hot reports
        suite = replace(suite, name=f"{suite.name}, cold caches")
    request = TuneRequest(options.trials, seed=options.seed, cache=options.cache)
    _require_places(options)
    from tilewise.kernels.target import resolve

    target, peers = resolve(options.target), _peers(options.peers)
    with open_backend(options.server, options.db) as backend:
        work = _Bench(backend, suite, request, target, peers)
        try:
            work.run()
            _store(backend, work.report.to_json())
        except BaseException:
            if work.rows:
                _print(work.report.to_json(), options)
                total = len(suite.entries)
                sys.stderr.write(f"tilewise: measured {len(work.rows)} of {total} problems\n")
            raise
        _print(work.report.to_json(), options)


def _print(found: Json, options: argparse.Namespace) -> None:
    """Print a report, then write its files, whose disk may be full."""
    sys.stdout.write(json_text(found) if options.json else table.table(found))
    if options.output:
        write_text(options.output, json.dumps(found, indent=1) + "\n")
    if options.plot:
        from tilewise.plots import roofline_of_report

        with file_errors("write", options.plot):
            roofline_of_report(found).save(options.plot)


def _store(backend: Backend, found: Json) -> None:
    """Store the report; if that fails, say so."""
    try:
        number = backend.store_report(found)
    except TilewiseError as error:
        sys.stderr.write(f"tilewise: the report was not stored: {error}\n")
    else:
        _note(f"stored as report {number} of suite {found['suite']}")


def _require_places(options: argparse.Namespace) -> None:
    """Refuse outputs that cannot be written before hours are spent."""
    for given in (options.output, options.plot):
        require_folder(given)
    if options.plot:
        from tilewise.plots import format_of

        format_of(options.plot)


@dataclass(frozen=True)
class _Bench:
    """One run of a suite; `rows` are the measured ones."""

    backend: Backend
    suite: Suite
    request: TuneRequest
    target: "Target"
    peers: tuple[str, ...]
    machine: Json = field(default_factory=dict)
    rows: list[Compared] = field(default_factory=list)

    def run(self) -> None:
        """Measure every problem, and the machine before and after."""
        from tilewise.bench.machine import describe
        from tilewise.kernels.native.microbench import bandwidth_gbs

        self.machine.update(describe(self.target, self.peers))
        total = len(self.suite.entries)
        for number, entry in enumerate(self.suite.entries, 1):
            _note(f"{number}/{total} {entry.problem}")
            self.rows.append(row := self._row(entry))
            _note(f"{number}/{total} {table.summary(row.to_json())}")
        after = bandwidth_gbs(self.target)
        self.machine["bandwidth_gbs"] = max(self.machine["bandwidth_gbs"], after)

    @property
    def report(self) -> SuiteTable:
        """The rows measured so far."""
        return SuiteTable(self.suite, self.machine, tuple(self.rows))

    def _row(self, entry: SuiteEntry) -> Compared:
        from tilewise.bench.compare import bench_runner, compare

        try:
            check_memory(entry.problem)
            schedule = self._schedule(entry)
        except BadInputError:
            raise
        except (KernelsError, SearchError, TilewiseError) as error:
            message = " ".join(str(error).split())
            return Compared(entry, None, message.removeprefix(f"{entry.problem}: "))
        target, cache = self.target.canonical, self.request.cache
        with bench_runner(entry.problem, target, cache) as runner:
            return compare(runner, entry, schedule, self.peers)

    def _schedule(self, entry: SuiteEntry) -> tuple[str, list[Json]]:
        """Return hash and steps of the stored best of this toolchain; search if there is none."""
        problem, target = entry.problem.canonical, self.target.canonical
        try:
            found = self.backend.show(problem, target, self.request.cache)
        except (MissingError, UnreadableError):  # a search replaces a damaged result
            found = {"stale": True}
        if found["stale"]:
            found = tune_shown(self.backend, problem, target, self.request)
        return str(found["best"]["hash"]), list(found["best"]["steps"])


def _peers(given: str | None) -> tuple[str, ...]:
    """Return the requested peers; by default those that are installed."""
    from tilewise.search.peers import PEERS, installed_peers, missing_packages

    if given is None:
        return installed_peers()
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",")))
    for name in names:
        if name not in PEERS:
            raise BadInputError(f"peer {quoted(name)} is not one of {', '.join(PEERS)}")
        missing = missing_packages(name)
        if missing:
            extra = "peers" if "torch" in missing else "kernels"
            raise TilewiseError(not_installed(f"peer {name}", " and ".join(missing), extra))
    return names


def _note(text: str) -> None:
    """Report progress on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")


PEERS_TEXT = (
    "comma-separated: openblas, onednn, iree, onnxruntime (quantised weights alone), iree+tilewise "
    "(IREE with our kernel); default: all but the last that are installed"
)
COLD = "cold: empty the caches before every sample; default: hot"

COMMANDS = (
    Command(
        "bench",
        bench,
        (
            arg("suite", "such as benchmarks/data/suites/square.json", metavar="SUITE.json"),
            arg("--peers", PEERS_TEXT, metavar="NAMES"),
            *of_request(ModelRequest, "target", "trials", "seed"),
            arg("--cache", COLD, choices=CACHE_MODES, default="hot"),
            arg("-o --output", "also write the JSON to this file", metavar="FILE"),
            arg("--out", argparse.SUPPRESS, dest="output"),  # its former name
            arg("--plot", "also draw a roofline: .svg, .png or .html", metavar="FILE"),
            DB,
            SERVER,
        ),
        at_service="kernels",
        examples=(
            "bench benchmarks/data/suites/square.json",
            "bench suite.json --peers openblas,iree -o report.json --plot roofline.svg",
        ),
    ),
)
