"""What can be typed: commands, options, and one line for what cannot."""

import argparse
from importlib import metadata
from typing import NoReturn

from kernels.quoting import one_line
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
from tilewise.cli.commands.models import model, plan
from tilewise.cli.commands.stores import store

MODULES = (
    *(tune, script, kernel, library, imports, model, plan, verify, fetch, trials, plot, bench),
    *(serve, processes, store, top, token, doctor),
)


class OneLineParser(argparse.ArgumentParser):
    """A parser whose complaints are one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and leave."""
        self.exit(2, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")


def version() -> str:
    """Such as `tilewise 0.1.0`."""
    return f"tilewise {metadata.version('tilewise')}"


def all_commands() -> list[Command]:
    """Return every command, in the order of `tilewise --help`."""
    return [one for module in MODULES for one in module.COMMANDS]


def make_parser() -> argparse.ArgumentParser:
    """The parser of every command; each sets `run`."""
    parser = OneLineParser(prog="tilewise", description="Tiling and packing schedules, tuned.")
    parser.add_argument("--version", action="version", version=version())
    kinds = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    commands = all_commands()
    for command in commands:
        made = kinds.add_parser(command.name, help=command.help, description=command.help)
        made.add_argument("--json", action="store_true", help="machine-readable result on stdout")
        made.set_defaults(run=command.run, command=command, commands=commands)
        command.add_options(made)
    return parser
