"""`tilewise completion`: shell completion scripts from the parser; files are left to the shell."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Option:
    """An option of a command."""

    names: tuple[str, ...]
    choices: tuple[str, ...]
    takes_value: bool
    help: str


@dataclass(frozen=True)
class Word:
    """A command; `choices` are those of its first argument."""

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


def bash(words: Sequence[Word]) -> str:
    """Return the script that bash sources."""
    return BASH.format(
        commands=" ".join(word.name for word in words),
        values="\n".join(line for word in words for line in _values(word)),
        options="\n".join(f"                {_case(word.name, _names(word))}" for word in words),
    )


def _values(word: Word) -> Iterator[str]:
    """Yield the completions after an option or the command; none for files and numbers."""
    indent = " " * 12
    if word.choices:
        yield indent + _case(f'"{word.name} {word.name}"', word.choices)
    for option in word.options:
        if option.takes_value:
            typed = "|".join(f'"{word.name} {name}"' for name in option.names)
            yield indent + _case(typed, option.choices)


def _case(pattern: str, words: Sequence[str]) -> str:
    return f'{pattern}) words="{" ".join(words)}" ;;'


def _names(word: Word) -> list[str]:
    return [name for option in word.options for name in option.names if name.startswith("--")]


def zsh(words: Sequence[Word]) -> str:
    """Return the script that zsh sources."""
    return ZSH + bash(words)


def fish(words: Sequence[Word]) -> str:
    """Return the script that fish sources."""
    lines = ["# fish completion for tilewise"]
    for word in words:
        seen = f"complete -c tilewise -n '__fish_seen_subcommand_from {word.name}'"
        told = f"-d {_quoted(word.help)}"
        lines.append(f"complete -c tilewise -f -n __fish_use_subcommand -a {word.name} {told}")
        if word.choices:
            lines.append(f"{seen} -f -a {_quoted(' '.join(word.choices))}")
        lines += [f"{seen} {_fish_option(option)}" for option in word.options]
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    parts = [
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
    ]
    if option.choices:
        parts.append(f"-x -a {_quoted(' '.join(option.choices))}")
    elif option.takes_value:
        parts.append("-r")
    return " ".join([*parts, f"-d {_quoted(option.help)}"])


def _quoted(text: str) -> str:
    """Quote for fish, which escapes backslashes and single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: dict[str, Callable[[Sequence[Word]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def completion(options: argparse.Namespace) -> None:
    """Print the script that completes commands and options in a shell."""
    require_folder(options.output)
    text = SCRIPTS[options.shell](words_of(options.parser))
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
