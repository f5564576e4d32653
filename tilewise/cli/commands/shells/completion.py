"""`tilewise completion`: a script by which a shell completes commands and options."""

import argparse
import json

from tilewise.cli.command import Command
from tilewise.cli.commands.shells.scripts import SCRIPTS
from tilewise.cli.commands.shells.words import words_of
from tilewise.cli.files import require_folder, write_text
from tilewise.cli.options import add_output
from tilewise.requirements import BASE


def completion(options: argparse.Namespace) -> None:
    """Print the script that completes commands and options in a shell."""
    require_folder(options.output)
    text = SCRIPTS[options.shell](words_of(options.parser))
    if options.json:
        text = json.dumps({"shell": options.shell, "script": text}, indent=2) + "\n"
    write_text(options.output, text)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise completion`."""
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="that reads the script")
    add_output(parser)


COMMANDS = (
    Command(
        "completion", completion, add_options, extra=BASE,
        examples=(
            "completion bash -o ~/.local/share/bash-completion/completions/tilewise",
            "completion fish -o ~/.config/fish/completions/tilewise.fish",
        ),
    ),
)  # fmt: skip
