"""Options that several commands share."""

import argparse
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Literal, get_args, get_origin, get_type_hints

from tilewise.backends.base import Backend
from tilewise.backends.choose import open_backend
from tilewise.kernels.problem import ACCURACIES
from tilewise.kernels.quoting import one_line
from tilewise.search.records import CACHE_MODES
from tilewise.service.default_database import default_file
from tilewise.service.errors import DatabaseError


def add_stored(parser: argparse.ArgumentParser) -> None:
    """A problem on a target, and where its results are stored."""
    parser.add_argument("problem", metavar="PROBLEM", help="as matmul:m=64,n=64,k=64,dtype=f32")
    parser.add_argument(
        "--target", default="host", metavar="T", help="processor, threads; default: host"
    )
    add_db(parser)
    add_server(parser)


def add_db(parser: argparse.ArgumentParser) -> None:
    """This machine's database."""
    parser.add_argument(
        "--db", metavar="URL", help=f"database; default: TILEWISE_DB, or {_default_file()}"
    )


def add_server(parser: argparse.ArgumentParser) -> None:
    """A service that does what would be done here."""
    parser.add_argument("--server", metavar="URL", help="a service; default: TILEWISE_SERVER")


def _default_file() -> str:
    """Return the file of the default database as `--help` shows it."""
    try:
        file, home = default_file(), Path.home()
    except (DatabaseError, RuntimeError):
        return "tilewise/tilewise.db in XDG_DATA_HOME"
    shown = Path("~") / file.relative_to(home) if file.is_relative_to(home) else file
    return one_line(shown).replace("%", "%%")


def add_tuning_of_lacking(
    parser: argparse.ArgumentParser, *, seeds: str, accuracy: str | None = "standard"
) -> None:
    """How problems of a model without a stored schedule are tuned.

    Args:
        parser: of the command.
        seeds: what a seed is of.
        accuracy: the default.
    """
    parser.add_argument(
        "--target", default="host", metavar="T", help="processor, threads; default: host"
    )
    parser.add_argument(
        "--trials", type=int, default=64, metavar="N",
        help="for problems without a stored schedule; default: 64",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, metavar="I", help=f"of {seeds}")
    parser.add_argument(
        "--cache", choices=CACHE_MODES, default="hot",
        help="cold: schedules for weights that come from memory in each run; default: hot",
    )  # fmt: skip
    add_accuracy(parser, accuracy)


def add_accuracy(parser: argparse.ArgumentParser, default: str | None = "standard") -> None:
    """How the problems of a model may be rounded; `default` is None where no model may be given."""
    parser.add_argument(
        "--accuracy", choices=ACCURACIES, default=default,
        help="of a model's problems; strict: direct methods alone; default: standard",
    )  # fmt: skip


def add_cache_filter(parser: argparse.ArgumentParser, default: str) -> None:
    """Trials of one cache mode."""
    text = f"only trials that were timed so; default: {default}"
    parser.add_argument("--cache", choices=CACHE_MODES, help=text)


def add_request(parser: argparse.ArgumentParser, kind: type) -> None:
    """Add an option for each field of a request, flags last."""
    hints = get_type_hints(kind)
    for field in sorted(fields(kind), key=lambda field: hints[field.name] is bool):
        hint, option = hints[field.name], f"--{field.name.replace('_', '-')}"
        text, metavar = field.metadata["help"], field.metadata["metavar"]
        if hint is bool:
            parser.add_argument(option, action="store_true", help=text)
            continue
        if field.default is not None:
            text = f"{text}; default: {field.default}"
        if get_origin(hint) is Literal:
            parser.add_argument(option, choices=get_args(hint), default=field.default, help=text)
        else:
            kinds = [one for one in (get_args(hint) or (hint,)) if one is not NoneType]
            parser.add_argument(
                option, type=kinds[0], default=field.default, metavar=metavar, help=text
            )


def add_output(parser: argparse.ArgumentParser) -> None:
    """A file for what is made."""
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write; default: stdout")


def backend_of(options: argparse.Namespace, began: float | None = None) -> Backend:
    """Where the options of `add_stored` say that a command runs."""
    return open_backend(options.server, options.db, began)
