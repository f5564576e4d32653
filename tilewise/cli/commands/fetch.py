"""`tilewise fetch`: scripts and kernels for a list of problems, with a lock file."""

import argparse
import glob
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tilewise.cli.command import DB, PROBLEMS, SERVER, TARGET, Command, arg, backend_of, flag
from tilewise.cli.files import json_text, read_regular_text, read_text
from tilewise.cli.tuning import TUNE_MISSING, check_trials, tune_missing
from tilewise.errors import BadInputError, MissingError
from tilewise.fetch import frozen, gains
from tilewise.fetch.folder import FILLING, PREFIX, SUFFIX, Folder, file_errors
from tilewise.fetch.lock import KERNEL, Lock
from tilewise.fetch.problems import read_list
from tilewise.fetch.update import FileOutcome, Update, WantedFiles
from tilewise.kernels.problem import parse_any
from tilewise.kernels.quoting import quoted
from tilewise.kernels.target import target_kind
from tilewise.requirements import BASE
from tilewise.search.records import TuneRequest

FLAVORS = ("cpu", "air")
LOCK_NAME = "tilewise.lock"


def fetch(options: argparse.Namespace) -> None:
    """Fetch the scripts of a list of problems, and record them in a lock file."""
    _refuse_contradictions(options)
    wanted = _wanted(options)
    folder = Folder(Path(options.output))
    place = Path(options.lock or folder.absolute.parent / LOCK_NAME)
    lock = _read_lock(place, folder)
    if options.frozen:
        _hold(options, folder, lock, wanted)
    elif options.check:
        _check(options, lock, wanted)
    else:
        _update(options, place, wanted, folder, lock)


def _update(
    options: argparse.Namespace, place: Path, wanted: WantedFiles, folder: Folder, lock: Lock
) -> None:
    if not place.parent.is_dir():
        raise BadInputError(f"cannot write {place}: there is no folder {place.parent}")
    with backend_of(options, options.began) as backend:
        update = Update(backend, folder, lock, wanted, options.overwrite)
        if options.tune_missing:
            folder.require()
            tune_missing(backend, update.missing(), wanted.target, TuneRequest(options.trials))
            update.lock = _read_lock(place, folder)
        update.ask()
        with folder.taken():
            update.lock = _read_lock(place, folder)  # as whoever had the folder before has left it
            text = update.run().render()
            if all(one.state != "missing" for one in update.outcomes):
                folder.remove(FILLING)
            parent, draft = Folder(place.parent), f"{PREFIX}{place.name}."
            for left in place.parent.glob(f"{glob.escape(draft)}*{SUFFIX}"):  # of a killed fetch
                parent.remove(left.name)
            if not place.exists() or read_regular_text(str(place)) != text:
                parent.write(place.name, text, draft)
    _report(options, place, update.outcomes)


def _hold(options: argparse.Namespace, folder: Folder, lock: Lock, wanted: WantedFiles) -> None:
    found = frozen.differences(folder, lock, wanted)
    is_to_fill = folder.is_being_filled or len(found) == len(lock.entries)
    if found and is_to_fill and all(one.is_absent for one in found):
        found = frozen.restore(folder, lock, None)
        if found:
            with backend_of(options, options.began) as backend:
                found = frozen.restore(folder, lock, backend)
    if options.json:
        rows = [{"path": one.path, "reason": one.reason} for one in found]
        sys.stdout.write(json_text({"frozen": not found, "differences": rows}))
    if found:
        for one in found:
            sys.stderr.write(f"tilewise: {one.path}: {one.reason}\n")
        raise MissingError(
            f"{len(found)} differences between folder, lock file and list; "
            "run fetch without --frozen to update the folder (--overwrite: edited files too)"
        )


def _check(options: argparse.Namespace, lock: Lock, wanted: WantedFiles) -> None:
    with backend_of(options, options.began) as backend:
        rows = gains.gains(backend, lock, wanted)
    text = json_text({"files": [asdict(row) for row in rows]})
    sys.stdout.write(text if options.json else gains.table(rows))
    missing = [row for row in rows if row.verdict == gains.NOT_STORED]
    for row in rows:
        absent = [f"{row.problem} is not stored"] if row in missing else []
        for why in (*absent, *([row.reason] if row.reason else [])):
            sys.stderr.write(f"tilewise: {row.path}: {why}\n")
    _require_all(len(missing))


def _report(options: argparse.Namespace, place: Path, outcomes: Sequence[FileOutcome]) -> None:
    missing = [one for one in outcomes if one.state == "missing"]
    if options.json:
        document = {"lock": str(place), "files": [asdict(one) for one in outcomes]}
        sys.stdout.write(json_text(document))
    else:
        counts = {state: sum(one.state == state for one in outcomes)
                  for state in ("written", "unchanged", "removed", "missing")}  # fmt: skip
        sys.stdout.write(", ".join(f"{number} {state}" for state, number in counts.items()) + "\n")
    for one in outcomes:
        if one.reason:
            named = one.problem if one.state == "missing" else one.path
            sys.stderr.write(f"tilewise: {named}: {one.reason}\n")
    _require_all(len(missing))


def _require_all(missing: int) -> None:
    if missing:
        are = "file is" if missing == 1 else "files are"
        raise MissingError(f"{missing} {are} not stored; use --tune-missing to search")


def _wanted(options: argparse.Namespace) -> WantedFiles:
    problems = read_list(options.problems, read_text(options.problems), parse_any)
    kinds = dict.fromkeys(options.flavor or ["cpu"])
    return WantedFiles(problems, [*kinds, *([KERNEL] if options.kernels else [])], options.target)


def _read_lock(place: Path, folder: Folder) -> Lock:
    with file_errors("read", place):
        if not place.exists():
            return Lock.of(())
    lock = Lock.parse(read_regular_text(str(place)), str(place))
    if lock.folder not in ("", folder.name):
        raise BadInputError(
            f"{place} is the lock file of the folder {quoted(lock.folder)}, not of "
            f"{quoted(folder.name)}; give each folder one of its own, with --lock"
        )
    return lock


def _refuse_contradictions(options: argparse.Namespace) -> None:
    check_trials(options)
    names = ("frozen", "check", "tune_missing", "overwrite")
    given = [name for name in names if getattr(options, name)]
    if len(given) > 1 and given != ["tune_missing", "overwrite"]:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise BadInputError(f"{flags} contradict each other; give one of them")
    if target_kind(options.target) == "iree":
        raise BadInputError(
            f"target {quoted(options.target)}: IREE's own code has neither scripts nor kernels; "
            "tilewise script --flavor iree-spec PROBLEMS.txt writes its tuning spec"
        )


COMMANDS = (
    Command(
        "fetch", fetch, (
            PROBLEMS,
            arg("-o --output", "folder to manage", metavar="DIR", required=True),
            arg("--lock", f"lock file; default: {LOCK_NAME} next to DIR", metavar="FILE"),
            TARGET,
            arg("--flavor", "kind of script, may be repeated; default: cpu", choices=FLAVORS,
                action="append"),
            flag("--kernels", "also fetch Numba kernels"),
            flag("--frozen", "change nothing; fail unless folder and lock match"),
            flag("--check", "report what newer schedules would gain; change nothing"),
            flag("--overwrite", "replace edited files"),
            *TUNE_MISSING,
            DB,
            SERVER,
        ),
        at_service=BASE,
        examples=(
            "fetch problems.txt -o scripts --server http://localhost:8000",
            "fetch problems.txt -o scripts --frozen",
        ),
    ),
)  # fmt: skip
