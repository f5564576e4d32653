"""`tilewise store`: the results of a database as one file, and such a file into a database."""

import argparse
import json
import sys

from tilewise.backends.base import Json
from tilewise.cli.command import Command
from tilewise.cli.files import file_errors, require_file, require_folder
from tilewise.cli.options import add_db
from tilewise.cli.output import print_mapping
from tilewise.errors import BadInputError
from tilewise.kernels.problem import DTYPES
from tilewise.kernels.problem.parse import OPERATIONS

SELECTING = ("problem", "kind", "dtype", "target", "since")


def store(options: argparse.Namespace) -> None:
    """Write the results of the database to a file, or take in those of such a file."""
    _refuse_contradictions(options)
    found = _export(options) if options.action == "export" else _import(options)
    if options.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        print_mapping({name: _told(value) for name, value in found.items()}, as_json=False)


def _export(options: argparse.Namespace) -> Json:
    require_folder(options.file)
    from tilewise.backends import archives

    wanted = archives.Wanted(
        problems=options.problem or (),
        kinds=options.kind or (),
        dtypes=options.dtype or (),
        targets=options.target or (),
        since=options.since,
    )
    with file_errors("write", options.file):
        return archives.export_store(options.file, wanted, options.db)


def _import(options: argparse.Namespace) -> Json:
    require_file(options.file)
    from tilewise.backends import archives

    with file_errors("read", options.file):
        return archives.import_store(
            options.file, options.db, resume=options.resume, dry_run=options.dry_run
        )


def _refuse_contradictions(options: argparse.Namespace) -> None:
    is_export = options.action == "export"
    odd = ("resume", "dry_run") if is_export else SELECTING
    for name in odd:
        if getattr(options, name):
            option = name.replace("_", "-")
            raise BadInputError(f"store {options.action} takes no --{option}")


def _told(value: object) -> object:
    """Counts by table on one line; `none` for no rows."""
    if not isinstance(value, dict):
        return value
    counts = [f"{rows} {table}" for table, rows in value.items() if rows]
    return ", ".join(counts) or "none"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise store`."""
    parser.add_argument("action", choices=("export", "import"), help="what to do")
    parser.add_argument("file", metavar="FILE", help="the archive")
    add_db(parser)
    chosen = parser.add_argument_group("export: a selection, of several options what all select")
    chosen.add_argument("--problem", action="append", metavar="P", help="may be given again")
    chosen.add_argument(
        "--kind", action="append", choices=tuple(OPERATIONS), help="operation; may be given again"
    )
    chosen.add_argument(
        "--dtype", action="append", choices=tuple(DTYPES), help="of operands; may be given again"
    )
    chosen.add_argument("--target", action="append", metavar="T", help="may be given again")
    chosen.add_argument(
        "--since", metavar="DAY", help="only what was asked for or found since, in UTC"
    )
    taken = parser.add_argument_group("import")
    taken.add_argument(
        "--resume", action="store_true", help="ask anew for the searches that had not ended"
    )
    taken.add_argument("--dry-run", action="store_true", help="only say what would be done")


COMMANDS = (
    Command(
        "store",
        store,
        add_options,
        examples=(
            "store export results.zip --kind matmul",
            "store import results.zip --dry-run",
        ),
    ),
)
