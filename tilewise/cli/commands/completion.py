"""`tilewise completion`: scripts by which shells complete commands, options and values."""

import argparse
import os

from tilewise.cli.command import OUTPUT, Command, arg
from tilewise.cli.files import json_text, require_folder, write_text
from tilewise.requirements import BASE

REQUESTED = "_ARGCOMPLETE"
"""The environment variable by which such a script requests completions."""


def complete(parser: argparse.ArgumentParser) -> None:
    """Write the completions that a shell requests, if it does, and exit."""
    if REQUESTED in os.environ:
        from argcomplete import autocomplete

        autocomplete(parser, always_complete_options="long")


def completion(options: argparse.Namespace) -> None:
    """Print the script that completes commands and options in a shell."""
    require_folder(options.output)
    from argcomplete.shell_integration import shellcode

    text = shellcode(["tilewise"], shell=options.shell)
    if options.json:
        text = json_text({"shell": options.shell, "script": text})
    write_text(options.output, text)


COMMANDS = (
    Command(
        "completion",
        completion,
        (arg("shell", "shell to complete in", choices=("bash", "zsh", "fish")), OUTPUT),
        extra=BASE,
        examples=(
            "completion bash -o ~/.local/share/bash-completion/completions/tilewise",
            "completion fish -o ~/.config/fish/completions/tilewise.fish",
        ),
    ),
)
