"""The parser of all commands and options."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from tilewise.cli.command import Command, add_arguments
from tilewise.cli.commands import (
    bench,
    compare,
    completion,
    doctor,
    fetch,
    kernels,
    modules,
    plot,
    predictor,
    script,
    serve,
    store,
    top,
    tune,
)
from tilewise.cli.commands.models import model, native
from tilewise.kernels.quoting import one_line, quoted, suggestion
from tilewise.version import VERSION

MODULES = (
    *(tune, script, kernels, modules, model, native, fetch, plot, bench, serve, store, top),
    *(compare, predictor, doctor, completion),
)
GROUPS = {
    "search": ("tune", "show", "trials", "bench", "compare", "plot", "predictor"),
    "scripts and kernels": ("script", "kernel", "library", "asm", "fetch"),
    "MLIR modules and models": ("import", "model", "plan", "verify"),
    "service": ("serve", "top", "token", "db", "store"),
    "cluster": ("scheduler", "driver", "worker"),
    "this installation": ("doctor", "completion"),
}
"""The commands by what they are for, in the order of `tilewise --help`."""

INTRODUCTION = """\
Find the schedule that runs a matmul or a convolution fastest, and serve it as a proven script.

A first search: tilewise tune matmul:m=1024,n=512,k=2048,dtype=f32
"""


class OneLineParser(argparse.ArgumentParser):
    """Reports errors as one line with exit code 2 and a suggestion."""

    def error(self, message: str) -> NoReturn:
        """Report an error and exit."""
        self.exit(2, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options here, where those of the command are known."""
        given = list(sys.argv[1:] if args is None else args)
        self._check_options(given)
        found, unknown = super().parse_known_args(given, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def _check_options(self, given: Sequence[str]) -> None:
        """Refuse an unknown option before anything missing is named."""
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


def overview(commands: Iterable[Command]) -> str:
    """List the commands in their groups."""
    helps = {command.name: command.help for command in commands}
    width = max(map(len, helps))
    parts = [
        "\n".join([f"{group}:", *(f"  {name:<{width}}  {helps[name]}" for name in names)])
        for group, names in GROUPS.items()
    ]
    return "\n\n".join([INTRODUCTION.rstrip(), *parts])


def version() -> str:
    """Return what `--version` prints, such as `tilewise 0.2.0`."""
    return f"tilewise {VERSION}"


def all_commands() -> list[Command]:
    """Return every command, in the order of `tilewise --help`."""
    order = [name for names in GROUPS.values() for name in names]
    commands = [one for module in MODULES for one in module.COMMANDS]
    return sorted(commands, key=lambda command: order.index(command.name))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of every command."""
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
            command.name, description=command.help, epilog=command.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        made.add_argument("--json", action="store_true", help="machine-readable result on stdout")
        made.set_defaults(run=command.run, command=command, commands=commands)
        add_arguments(made, command.arguments)
    return parser
