"""What can be typed, as the scripts of shells need it: read from the parser."""

import argparse
from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """An option of a command.

    Attributes:
        names: of it, such as `-o` and `--output`.
        choices: what may follow, where that is one of a few.
        takes_value: whether anything follows.
        help: one line.
    """

    names: tuple[str, ...]
    choices: tuple[str, ...]
    takes_value: bool
    help: str


@dataclass(frozen=True)
class Word:
    """A command.

    Attributes:
        choices: of its first argument, where that is one of a few.
    """

    name: str
    help: str
    choices: tuple[str, ...]
    options: tuple[Option, ...]


def words_of(parser: argparse.ArgumentParser) -> list[Word]:
    """Return the commands of the parser of `tilewise`."""
    (commands,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    return [_word(name, one) for name, one in commands.choices.items()]


def _word(name: str, parser: argparse.ArgumentParser) -> Word:
    shown = [one for one in parser._actions if one.help != argparse.SUPPRESS]
    first = next((one for one in shown if not one.option_strings), None)
    options = tuple(
        Option(tuple(one.option_strings), _choices(one), one.nargs != 0, _help(one))
        for one in shown
        if one.option_strings
    )
    return Word(name, parser.description or "", _choices(first), options)


def _choices(action: argparse.Action | None) -> tuple[str, ...]:
    return tuple(map(str, action.choices or ())) if action else ()


def _help(action: argparse.Action) -> str:
    return " ".join((action.help or "").replace("%%", "%").split())
