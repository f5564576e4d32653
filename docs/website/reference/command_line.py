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
| 2 | bad input, reported in one line on stderr |
| 3 | what was requested does not exist |
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
    """Positional arguments first, then options, `--json` last."""
    shown = [one for one in parser._actions if one.help != argparse.SUPPRESS]
    shown = [one for one in shown if one.dest != "help"]
    shown.sort(key=lambda one: (bool(one.option_strings), one.dest == "json"))
    about = table(["argument", "does", "default"], map(_argument, shown))
    return f"## {parser.prog}\n\n{parser.description or ''}\n\n{about}"


def _argument(action: argparse.Action) -> list[str]:
    value = _value(action)
    named = [name if action.nargs == 0 else f"{name} {value}" for name in action.option_strings]
    does, _, default = _help(action).partition("default: ")
    return [", ".join(map(code, named or [value])), does.rstrip("; "), default]


def _value(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else None
    return metavar or "|".join(map(str, action.choices or [])) or action.dest.upper()


def _help(action: argparse.Action) -> str:
    """What `--help` says; it names each default where there is one."""
    choices = ", ".join(map(str, action.choices or []))
    text = (action.help or "") % {**vars(action), "choices": choices}
    return one_line(f"one of {choices}; {text}" if choices and action.metavar else text)
