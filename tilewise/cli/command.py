"""Commands and their arguments as data, and the arguments that several commands share."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tilewise.backends.choose import Backend, open_backend
from tilewise.errors import BadInputError
from tilewise.kernels.quoting import one_line
from tilewise.requirements import BASE
from tilewise.search.networks.request import ModelRequest
from tilewise.search.records import CACHE_MODES
from tilewise.service.default_database import default_file
from tilewise.service.errors import DatabaseError


@dataclass(frozen=True)
class Argument:
    """An argument of a command; `text` is its help, or computes it when needed."""

    names: tuple[str, ...]
    text: str | Callable[[], str]
    settings: Mapping[str, Any]
    group: str = ""


Arguments = tuple[Argument, ...]


def arg(names: str, text: str | Callable[[], str], **settings: Any) -> Argument:
    """Declare an argument; several names are separated by spaces."""
    return Argument(tuple(names.split()), text, settings)


def flag(names: str, text: str, **settings: Any) -> Argument:
    """Declare an option without a value."""
    return arg(names, text, action="store_true", **settings)


def in_group(title: str, *arguments: Argument) -> Arguments:
    """List arguments under a title in the help."""
    return tuple(replace(one, group=title) for one in arguments)


def defaults_of(kind: type) -> dict[str, Any]:
    """Return the names of the options of a request, with their defaults."""
    return {one.name: one.default for one in fields(kind) if one.metadata["help"]}


def of_request(kind: type, *names: str, unset: bool = False) -> Arguments:
    """Return an option for each field of a request, or for those named, flags last.

    With `unset` the default is None, for commands that refuse an option or fill it in later.
    """
    hints = get_type_hints(kind)
    listed = [one for one in fields(kind) if one.name in (names or defaults_of(kind))]
    made = []
    for field in sorted(listed, key=lambda field: hints[field.name] is bool):
        name, hint = f"--{field.name.replace('_', '-')}", hints[field.name]
        text, default = field.metadata["help"], field.default
        if hint is bool:
            made.append(flag(name, text))
            continue
        if default is not None:
            text = f"{text}; default: {default}"
        default = None if unset else default
        if get_origin(hint) is Literal:
            made.append(arg(name, text, choices=get_args(hint), default=default))
        else:
            (kept,) = (one for one in get_args(hint) or (hint,) if one is not NoneType)
            metavar = field.metadata["metavar"]
            made.append(arg(name, text, type=kept, default=default, metavar=metavar))
    return tuple(made)


def add_arguments(parser: argparse.ArgumentParser, arguments: Sequence[Argument]) -> None:
    """Add arguments to the parser of a command."""
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for one in arguments:
        if one.group not in groups:
            groups[one.group] = parser.add_argument_group(one.group)
        text = one.text() if callable(one.text) else one.text
        groups[one.group].add_argument(*one.names, help=text, **one.settings)


def _db_text() -> str:
    """Return the help of `--db` with the default file."""
    try:
        file, home = default_file(), Path.home()
    except (DatabaseError, RuntimeError):
        shown = "tilewise/tilewise.db in XDG_DATA_HOME"
    else:
        near = Path("~") / file.relative_to(home) if file.is_relative_to(home) else file
        shown = one_line(near).replace("%", "%%")
    return f"database; default: TILEWISE_DB, or {shown}"


PROBLEM = arg("problem", "such as matmul:m=64,n=64,k=64,dtype=f32", metavar="PROBLEM")
PROBLEM_LIST = "one problem per line with # comments, or a suite's JSON"
PROBLEMS = arg("problems", PROBLEM_LIST, metavar="PROBLEMS.txt")
(TARGET,) = of_request(ModelRequest, "target")
DB = arg("--db", _db_text, metavar="URL")
SERVER = arg("--server", "URL of a service; default: TILEWISE_SERVER", metavar="URL")
OUTPUT = arg("-o --output", "file to write; default: stdout", metavar="FILE")
STORED = (PROBLEM, TARGET, DB, SERVER)
"""A problem on a target, and where its results are stored."""
DIM = arg(
    "--dim", "size of a dynamic dim, by its name in ONNX or as ARG.AXIS, such as batch=8 or 0.1=8; "
    "one may be a range, such as batch=1..32, for import and IREE libraries",
    action="append", metavar="NAME=SIZE", default=None,
)  # fmt: skip
WITH_PAYLOAD = flag("--with-payload", "include the computation in the module")


def check_range(name: str, value: float, least: float, most: float, unit: str = "") -> None:
    """Raise BadInputError for a value out of range."""
    if not least <= value <= most:
        raise BadInputError(f"{name}={value} is out of range; give {least} to {most}{unit}")


def refuse(options: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Raise BadInputError if an option was given that does not apply; `{}` in `why` names it."""
    for name in names:
        if (value := getattr(options, name)) is not None and value is not False:
            raise BadInputError(why.format(f"--{name.replace('_', '-')}"))


def only_if(
    applies: bool, options: argparse.Namespace, defaults: Mapping[str, Any], why: str
) -> None:
    """Fill in the defaults of options; refuse those given if they do not apply."""
    if not applies:
        refuse(options, defaults, why)
    for name, default in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, default)


def time_limit(text: str = "time limit; default: 60", default: float | None = 60.0) -> Argument:
    """Return the option for a limit in seconds."""
    return arg("--seconds", text, type=float, default=default, metavar="S")


def cache_filter(default: str) -> Argument:
    """Return the option for trials of one cache mode."""
    text = f"only trials timed with these caches; default: {default}"
    return arg("--cache", text, choices=CACHE_MODES)


def backend_of(options: argparse.Namespace, began: float | None = None) -> Backend:
    """Return the backend that `--server` and `--db` name."""
    return open_backend(options.server, options.db, began)


@dataclass(frozen=True)
class Command:
    """One command of `tilewise`.

    Attributes:
        run: its function; the first line of its docstring is the help.
        extra: what has to be installed to run it here.
        at_service: what has to be installed to run it at a service; None if no service can.
        notes: help below the options, before the examples.
    """

    name: str
    run: Callable[[argparse.Namespace], None]
    arguments: Arguments = ()
    extra: str = "service"
    at_service: str | None = None
    examples: tuple[str, ...] = ()
    notes: str = ""

    @property
    def help(self) -> str:
        """One line for `tilewise --help`."""
        return (self.run.__doc__ or "").strip().splitlines()[0]

    @property
    def epilog(self) -> str:
        """Help below the options."""
        examples = "\n".join(["examples:", *(f"  tilewise {one}" for one in self.examples)])
        return f"{self.notes}\n{examples}" if self.notes else examples

    @property
    def is_light_at_service(self) -> bool:
        """Whether `--server` needs the base package alone."""
        return self.at_service == BASE
