"""Commands that pages show, with what they are said to print."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docs.website.links import MARKDOWN

ROOT = Path(__file__).parents[2]
PROGRAMS = (
    "cat", "cd", "cmake", "curl", "docker", "export", "git", "head", "iree-compile", "iree-opt",
    "make", "pg_dump", "pip", "psql", "python", "python3", "sqlite3",
    "tilewise", "tvm/bin/pip",
)  # fmt: skip
SHELLS = ("bash", "console", "sh", "shell")


@dataclass(frozen=True)
class Command:
    """One command of a page."""

    page: str
    text: str
    printed: str = ""


def pages() -> list[str]:
    """Pages whose commands hold today; experiments have those of the commit that they name."""
    found = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/design/*.md")]
    return ["README.md", "CONTRIBUTING.md", *sorted(str(p.relative_to(ROOT)) for p in found)]


def commands(page: str, text: str) -> list[Command]:
    """Every command of a page's indented and fenced blocks, in order."""
    found: list[Command] = []
    for token in MARKDOWN.parse(text):
        is_indented = token.type == "code_block"
        if is_indented or (token.type == "fence" and token.info.strip() in SHELLS):
            found += _of_block(page, token.content, every_line=not is_indented)
    return found


def _of_block(page: str, block: str, *, every_line: bool) -> Iterator[Command]:
    """Lines after a prompt; in a block without one, lines that begin with a program's name."""
    if re.search(r"^\$ ", block, re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, printed = _split(part)
            yield Command(page, command, printed)
        return
    for line in _joined(block):
        if line and (every_line or line.split()[0] in PROGRAMS):
            yield Command(page, line)


def _split(part: str) -> tuple[str, str]:
    lines = part.splitlines(keepends=True)
    count = 1
    while lines[count - 1].rstrip().endswith("\\"):
        count += 1
    return "".join(lines[:count]).rstrip(), "".join(lines[count:])


def _joined(block: str) -> list[str]:
    """The lines of a block, those that end in a backslash with the next."""
    return re.findall(r"(?:.*\\\n)*.*", block)


def heads(printed: str) -> list[str]:
    """What of an output does not depend on the machine: words at the beginnings of lines."""
    found = []
    for line in printed.splitlines():
        if re.match(r"\d", line):
            found.append(re.sub(r"[\d.]+", "0", line))
        elif word := re.match(r"(// \w+:|[A-Za-z@][\w-]*:?)(?=\s|$)", line):
            found.append(word[0])
    return found


NOISY = "quality"
"""The line of a result that was measured on a busy machine, as tests are."""


def agrees(command: Command, printed: str) -> bool:
    """Whether an output has the lines that the page shows."""
    shown, is_cut, _ = f"\n{command.printed}".partition("\n...")
    expected = heads(shown)
    found = [head for head in heads(printed) if head != NOISY or head in expected]
    if is_cut or command.text.startswith("head "):
        return found[: len(expected)] == expected
    return found == expected
