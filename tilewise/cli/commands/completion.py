"""`tilewise completion`: shell completion scripts from the parser; files are left to the shell."""

import argparse
from collections.abc import Callable, Iterator, Sequence

from tilewise.cli.command import OUTPUT, Command, arg
from tilewise.cli.files import json_text, require_folder, write_text
from tilewise.requirements import BASE

BASH = """\
# bash completion for tilewise
_tilewise() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands} --help --version"
    else
        case "${{COMP_WORDS[1]}} $prev" in
{values}
            *) case "${{COMP_WORDS[1]}}" in
{options}
            esac ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _tilewise tilewise
"""
ZSH = """\
# zsh completion for tilewise, by way of bash's
autoload -U +X compinit && compinit
autoload -U +X bashcompinit && bashcompinit
"""


Commands = dict[str, argparse.ArgumentParser]
"""The parser of each command, by name."""


def commands_of(parser: argparse.ArgumentParser) -> Commands:
    """Return the commands of the parser of `tilewise`."""
    (commands,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    return dict(commands.choices)


def _options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    shown = (one for one in parser._actions if one.help != argparse.SUPPRESS)
    return (one for one in shown if one.option_strings)


def _first_words(parser: argparse.ArgumentParser) -> list[str]:
    """Return the choices of a command's first argument."""
    first = next((one for one in parser._actions if not one.option_strings), None)
    return _words(first) if first else []


def _words(action: argparse.Action) -> list[str]:
    return list(map(str, action.choices or ()))


def bash(commands: Commands) -> str:
    """Return the script that bash sources."""
    indent = " " * 16
    options = [
        indent + _case(name, [one for option in _options(parser) for one in _long(option)])
        for name, parser in commands.items()
    ]
    values = [line for name, parser in commands.items() for line in _values(name, parser)]
    return BASH.format(
        commands=" ".join(commands), values="\n".join(values), options="\n".join(options)
    )


def _values(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the completions after an option or the command; none for files and numbers."""
    indent = " " * 12
    if first := _first_words(parser):
        yield indent + _case(f'"{name} {name}"', first)
    for option in _options(parser):
        if option.nargs != 0:
            typed = "|".join(f'"{name} {one}"' for one in option.option_strings)
            yield indent + _case(typed, _words(option))


def _case(pattern: str, words: Sequence[str]) -> str:
    return f'{pattern}) words="{" ".join(words)}" ;;'


def _long(option: argparse.Action) -> list[str]:
    return [name for name in option.option_strings if name.startswith("--")]


def zsh(commands: Commands) -> str:
    """Return the script that zsh sources."""
    return ZSH + bash(commands)


def fish(commands: Commands) -> str:
    """Return the script that fish sources."""
    lines = ["# fish completion for tilewise"]
    for name, parser in commands.items():
        seen = f"complete -c tilewise -n '__fish_seen_subcommand_from {name}'"
        told = f"-d {_quoted(parser.description or '')}"
        lines.append(f"complete -c tilewise -f -n __fish_use_subcommand -a {name} {told}")
        if first := _first_words(parser):
            lines.append(f"{seen} -f -a {_quoted(' '.join(first))}")
        lines += [f"{seen} {_fish_option(option)}" for option in _options(parser)]
    return "\n".join(lines) + "\n"


def _fish_option(option: argparse.Action) -> str:
    names = option.option_strings
    parts = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in names]
    if option.choices:
        parts.append(f"-x -a {_quoted(' '.join(_words(option)))}")
    elif option.nargs != 0:
        parts.append("-r")
    told = " ".join((option.help or "").replace("%%", "%").split())
    return " ".join([*parts, f"-d {_quoted(told)}"])


def _quoted(text: str) -> str:
    """Quote for fish, which escapes backslashes and single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: dict[str, Callable[[Commands], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def completion(options: argparse.Namespace) -> None:
    """Print the script that completes commands and options in a shell."""
    require_folder(options.output)
    text = SCRIPTS[options.shell](commands_of(options.parser))
    if options.json:
        text = json_text({"shell": options.shell, "script": text})
    write_text(options.output, text)


COMMANDS = (
    Command(
        "completion",
        completion,
        (arg("shell", "shell to complete in", choices=tuple(SCRIPTS)), OUTPUT),
        extra=BASE,
        examples=(
            "completion bash -o ~/.local/share/bash-completion/completions/tilewise",
            "completion fish -o ~/.config/fish/completions/tilewise.fish",
        ),
    ),
)
