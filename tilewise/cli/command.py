"""What the parser knows of a command."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass


def no_options(_parser: argparse.ArgumentParser) -> None:
    """A command that takes nothing but `--json`."""


@dataclass(frozen=True)
class Command:
    """One word after `tilewise`.

    Attributes:
        name: the word.
        run: does it; the first line of its docstring is the help.
        add_options: says what may follow.
    """

    name: str
    run: Callable[[argparse.Namespace], None]
    add_options: Callable[[argparse.ArgumentParser], None] = no_options

    @property
    def help(self) -> str:
        """One line for `tilewise --help`."""
        return (self.run.__doc__ or "").strip().splitlines()[0]
