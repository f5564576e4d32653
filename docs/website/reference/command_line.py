"""Every command with its arguments, from the parsers themselves."""

import argparse
from collections.abc import Iterator

from docs.website.reference.markdown import code, one_line, table
from tilewise.cli.parser import make_parser

INTRODUCTION = """\
`tilewise COMMAND --help` prints the same. `--json` gives a machine-readable result on stdout;
progress and the log go to stderr.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | it failed |
| 2 | bad input, told in one line on stderr |
| 3 | what was asked for does not exist |
"""


def page() -> str:
    """One heading for each command, in the order of `tilewise --help`."""
    commands = [_command(parser) for parser in _leaves(make_parser())]
    return "\n".join([INTRODUCTION, *commands])


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers that run something: those without commands below them."""
    below = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if not below:
        yield parser
    for kinds in below:
        for child in kinds.choices.values():
            yield from _leaves(child)


def _command(parser: argparse.ArgumentParser) -> str:
    rows = [_argument(one) for one in parser._actions if one.dest != "help"]
    about = table(["argument", "does", "default"], rows)
    return f"## {parser.prog}\n\n{parser.description or ''}\n\n{about}"


def _argument(action: argparse.Action) -> list[str]:
    value = action.metavar or "|".join(map(str, action.choices or [])) or action.dest.upper()
    takes_value = action.nargs != 0
    named = [f"{name} {value}" if takes_value else name for name in action.option_strings]
    shown = ", ".join(map(code, named or [value]))
    return [shown, one_line(_help(action)), _default(action)]


def _help(action: argparse.Action) -> str:
    choices = ", ".join(map(str, action.choices or []))
    told = (action.help or "") % {**vars(action), "choices": choices}
    return f"{told}; one of {choices}" if choices and action.metavar else told


def _default(action: argparse.Action) -> str:
    told = "default:" in (action.help or "")
    is_plain = isinstance(action.default, str | int | float) and action.default is not False
    return code(action.default) if is_plain and not told else ""
