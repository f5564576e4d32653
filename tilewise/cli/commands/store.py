"""`tilewise store` and `token`: archives of a database, and access to a service."""

import argparse
import sys
from typing import get_args

from tilewise.backends.choose import named_server
from tilewise.cli.command import DB, SERVER, Command, arg, flag, in_group, refuse
from tilewise.cli.files import json_text, require_file, require_folder
from tilewise.cli.render import print_mapping
from tilewise.errors import BadInputError
from tilewise.fetch.folder import file_errors
from tilewise.kernels.problem import DTYPES
from tilewise.kernels.problem.parse import OPERATIONS
from tilewise.kernels.quoting import columns
from tilewise.requirements import BASE
from tilewise.schema.base import Json, Scope
from tilewise.service.archive.builtin import BUILTIN

FILE = (
    "the archive; import takes builtin: the schedules that Tilewise ships for this processor, "
    "or builtin:NAME for another"
)
IMPORTING = ("resume", "dry_run")
SELECTING = ("problem", "kind", "dtype", "target", "since", "best", "origin")


def store(options: argparse.Namespace) -> None:
    """Export the results of the database to an archive, or import one."""
    is_export = options.action == "export"
    others = IMPORTING if is_export else SELECTING
    refuse(options, others, f"store {options.action} takes no {{}}")
    found = _export(options) if is_export else _import(options)
    if options.json:
        sys.stdout.write(json_text(found))
    else:
        print_mapping({name: _counts(value) for name, value in found.items()}, as_json=False)


def _export(options: argparse.Namespace) -> Json:
    require_folder(options.file)
    from tilewise.backends import administration

    wanted = administration.selected(*(getattr(options, name) for name in SELECTING))
    with file_errors("write", options.file):
        return administration.export_store(options.file, wanted, options.db)


def _import(options: argparse.Namespace) -> Json:
    if options.file.partition(":")[0] != BUILTIN:
        require_file(options.file)
    from tilewise.backends import administration

    with file_errors("read", options.file):
        return administration.import_store(
            options.file, options.db, resume=options.resume, dry_run=options.dry_run
        )


def _counts(value: object) -> object:
    """Format counts by table on one line."""
    if not isinstance(value, dict):
        return value
    counts = [f"{rows} {table}" for table, rows in value.items() if rows]
    return ", ".join(counts) or "none"


SCOPES = get_args(Scope)
COLUMNS = ("name", "scope", "created", "expires", "revoked", "used")


def token(options: argparse.Namespace) -> None:
    """Create, list or revoke tokens of a service."""
    _check_token(options)
    server = named_server(options.server, options.db)
    found = _at_service(server, options) if server else _here(options)
    if options.json:
        sys.stdout.write(json_text(found))
    elif options.action == "list":
        rows = [COLUMNS, *([one[name] or "-" for name in COLUMNS] for one in found["tokens"])]
        sys.stdout.write("".join(f"{line}\n" for line in columns(rows)))
    elif options.action == "create":
        sys.stderr.write("tilewise: the token is shown only once; set it as TILEWISE_TOKEN\n")
        sys.stdout.write(f"{found['token']}\n")
    else:
        sys.stdout.write(f"{found['name']} is revoked\n")


def _here(options: argparse.Namespace) -> Json:
    from tilewise.backends import administration

    if options.action == "create":
        return administration.create_token(options.name, options.scope, options.days, options.db)
    if options.action == "revoke":
        return administration.revoke_token(options.name, options.db)
    return administration.tokens(options.db)


def _at_service(url: str, options: argparse.Namespace) -> Json:
    from tilewise.client import Client

    with Client(url) as client:
        if options.action == "create":
            return client.create_token(options.name, options.scope, options.days).document
        if options.action == "revoke":
            return client.revoke_token(options.name).document
        return {"tokens": [one.document for one in client.tokens()]}


def _check_token(options: argparse.Namespace) -> None:
    if (options.action == "list") != (options.name is None):
        rule = "takes no NAME" if options.name else "needs a NAME"
        raise BadInputError(f"token {options.action} {rule}")
    if options.action != "create":
        refuse(options, ("scope", "days"), f"token {options.action} takes no {{}}")
    elif options.scope is None:
        raise BadInputError(f"token create needs --scope {'|'.join(SCOPES)}")


COMMANDS = (
    Command(
        "store", store, (
            arg("action", "what to do", choices=("export", "import")),
            arg("file", FILE, metavar="FILE"),
            DB,
            *in_group(
                "export: a selection; several options are combined",
                arg("--problem", "may be repeated", action="append", metavar="P"),
                arg("--kind", "operation; may be repeated", action="append",
                    choices=tuple(OPERATIONS)),
                arg("--dtype", "type of operands; may be repeated", action="append",
                    choices=tuple(DTYPES)),
                arg("--target", "may be repeated", action="append", metavar="T"),
                arg("--since", "only requests and results since, in UTC", metavar="DAY"),
                flag("--best", "only the best results and ranges, without other trials"),
                arg("--origin", "publisher, which look-ups show where imported", metavar="TEXT"),
            ),
            *in_group(
                "import",
                flag("--resume", "submit unfinished searches again"),
                flag("--dry-run", "only report what would be done"),
            ),
        ),
        examples=(
            "store export results.zip --kind matmul",
            "store export schedules.zip --best --origin 'Example Inc., 2026-01'",
            "store import results.zip --dry-run",
            "store import builtin",
        ),
    ),
    Command(
        "token", token, (
            arg("action", "what to do", choices=("create", "list", "revoke")),
            arg("name", "name of the token", nargs="?", metavar="NAME"),
            arg("--scope", "scope of a new token; each includes the former", choices=SCOPES),
            arg("--days", "until it expires; default: never", type=float, metavar="N"),
            DB,
            SERVER,
        ),
        at_service=BASE,
        examples=("token create ci --scope submit --days 90", "token list", "token revoke ci"),
    ),
)  # fmt: skip
