"""Commands that have become `tilewise model`: options that differ from their defaults."""

import argparse
import shlex
import sys

from tilewise.cli.command import defaults_of
from tilewise.kernels.quoting import one_line, without_password
from tilewise.search.networks.request import ModelRequest, PlanChoices

OF_PLANS = defaults_of(ModelRequest) | defaults_of(PlanChoices)
"""Options that a plan is made with, and their defaults."""
KEPT = (*OF_PLANS, "dim", "times", "plan", "channels", "rows", "blocks", "seconds",
        "with_payload", "json", "db", "server")  # fmt: skip
"""Options of the aliases that `tilewise model` has, too."""


def value_of(options: argparse.Namespace, name: str) -> object:
    """Return the value of an option; None for the default, or if the command has no such option."""
    value = getattr(options, name, None)
    return None if value is False or value == OF_PLANS.get(name) else value


def note_alias(
    options: argparse.Namespace, path: str, way: str, output: str | None, writes: str = ""
) -> None:
    """Print the form of a command that has become `tilewise model`, with the options given."""
    typed = [path, "--as", *way.split(), *(["-o", output] if output else [])]
    for name in KEPT:
        value = value_of(options, name)
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                typed += [
                    f"--{name.replace('_', '-')}",
                    *([] if one is True else [without_password(str(one))]),
                ]
    sys.stderr.write(
        f"tilewise: this is now: tilewise model {one_line(shlex.join(typed) + writes)}\n"
    )
