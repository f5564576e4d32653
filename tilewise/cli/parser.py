"""What can be typed: commands, options, and one line for what cannot."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from tilewise.cli.command import Command
from tilewise.cli.commands import (
    bench,
    doctor,
    fetch,
    imports,
    plot,
    script,
    serve,
    token,
    top,
    trials,
    tune,
    verify,
)
from tilewise.cli.commands.cluster import processes
from tilewise.cli.commands.kernels import kernel, library
from tilewise.cli.commands.models import model, native
from tilewise.cli.commands.shells import completion
from tilewise.cli.commands.stores import store
from tilewise.cli.help import GROUPS, examples, overview
from tilewise.kernels.quoting import one_line, quoted, suggestion
from tilewise.version import VERSION

MODULES = (
    *(tune, script, kernel, library, imports, model, native, verify, fetch, trials, plot, bench),
    *(serve, processes, store, top, token, doctor, completion),
)


class OneLineParser(argparse.ArgumentParser):
    """A parser whose complaints are one line, exit code 2, with the name that may be meant."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and leave."""
        self.exit(2, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is not known here, where the options of the command are still known."""
        given = list(sys.argv[1:] if args is None else args)
        self._check_options(given)
        found, unknown = super().parse_known_args(given, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def _check_options(self, given: Sequence[str]) -> None:
        """Refuse an option that is none, before anything that is missing is named."""
        known = self._option_string_actions
        for text in given:
            if text == "--" or (self._subparsers and not text.startswith("-")):
                return  # what follows is no option, or one of a command
            option = text.partition("=")[0]
            is_known = any(name.startswith(option) for name in known)
            if text.startswith("--") and " " not in text and not is_known:
                self.error(f"unknown option {option}{suggestion(option, known)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            near = suggestion(value, action.choices)
            raise argparse.ArgumentError(None, f"unknown command {quoted(value)}{near}")
        super()._check_value(action, value)


def version() -> str:
    """Return what `--version` prints, such as `tilewise 0.2.0`."""
    return f"tilewise {VERSION}"


def all_commands() -> list[Command]:
    """Return every command, in the order of `tilewise --help`."""
    order = [name for names in GROUPS.values() for name in names]
    commands = [one for module in MODULES for one in module.COMMANDS]
    return sorted(commands, key=lambda command: order.index(command.name))


def make_parser() -> argparse.ArgumentParser:
    """The parser of every command; each sets `run`."""
    commands = all_commands()
    parser = OneLineParser(
        prog="tilewise", usage="tilewise [-h] [--version] COMMAND ...",
        description=overview(commands), epilog="tilewise COMMAND --help has options and examples.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=version())
    kinds = parser.add_subparsers(
        prog="tilewise", metavar="COMMAND", help=argparse.SUPPRESS, required=True
    )
    for command in commands:
        made = kinds.add_parser(
            command.name, description=command.help, epilog=examples(command),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        made.add_argument("--json", action="store_true", help="machine-readable result on stdout")
        made.set_defaults(run=command.run, command=command, commands=commands, parser=parser)
        command.add_options(made)
    return parser
