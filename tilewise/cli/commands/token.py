"""`tilewise token`: who may use a service."""

import argparse
import json
import sys

from tilewise.backends.base import Json
from tilewise.backends.choose import named_server
from tilewise.cli.command import Command
from tilewise.cli.options import add_db, add_server
from tilewise.errors import BadInputError
from tilewise.requirements import BASE

SCOPES = ("read", "submit", "admin")
COLUMNS = ("name", "scope", "created", "expires", "revoked", "used")


def token(options: argparse.Namespace) -> None:
    """Make, list or revoke the tokens of a service."""
    _refuse_contradictions(options)
    server = named_server(options.server)
    if server and options.db:
        raise BadInputError("give --db or --server, not both: a service has its own database")
    found = _at_service(server, options) if server else _here(options)
    if options.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    elif options.action == "list":
        sys.stdout.write(_table(found["tokens"]))
    elif options.action == "create":
        sys.stderr.write("tilewise: this is shown once; give it as TILEWISE_TOKEN\n")
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


def _refuse_contradictions(options: argparse.Namespace) -> None:
    if (options.action == "list") != (options.name is None):
        said = "takes no NAME" if options.name else "needs a NAME"
        raise BadInputError(f"token {options.action} {said}")
    if (options.action == "create") != (options.scope is not None):
        said = f"needs --scope {'|'.join(SCOPES)}" if options.scope is None else "takes no --scope"
        raise BadInputError(f"token {options.action} {said}")


def _table(tokens: list[Json]) -> str:
    rows = [COLUMNS, *([one[name] or "-" for name in COLUMNS] for one in tokens)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(COLUMNS))]
    lines = ("  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
             for row in rows)  # fmt: skip
    return "\n".join(lines) + "\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise token`."""
    parser.add_argument("action", choices=("create", "list", "revoke"), help="what to do")
    parser.add_argument("name", nargs="?", metavar="NAME", help="whose it is, or what for")
    parser.add_argument("--scope", choices=SCOPES, help="of a new one; each includes the former")
    parser.add_argument("--days", type=float, metavar="N", help="until it expires; default: never")
    add_db(parser)
    add_server(parser)


COMMANDS = (
    Command(
        "token",
        token,
        add_options,
        at_service=BASE,
        examples=(
            "token create ci --scope submit --days 90",
            "token list",
            "token revoke ci",
        ),
    ),
)
