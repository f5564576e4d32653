"""What the parser knows of a command."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from tilewise.requirements import BASE


def no_options(_parser: argparse.ArgumentParser) -> None:
    """A command that takes nothing but `--json`."""


@dataclass(frozen=True)
class Command:
    """One word after `tilewise`.

    Attributes:
        name: the word.
        run: does it; the first line of its docstring is the help.
        add_options: says what may follow.
        extra: what has to be installed for it on this machine.
        at_service: what has to be installed where `--server` names a service that does it; None
            where no service does.
        examples: what may follow `tilewise`.
    """

    name: str
    run: Callable[[argparse.Namespace], None]
    add_options: Callable[[argparse.ArgumentParser], None] = no_options
    extra: str = "service"
    at_service: str | None = None
    examples: tuple[str, ...] = ()

    @property
    def help(self) -> str:
        """One line for `tilewise --help`."""
        return (self.run.__doc__ or "").strip().splitlines()[0]

    @property
    def is_light_at_service(self) -> bool:
        """Whether `--server` makes the base package enough."""
        return self.at_service == BASE
