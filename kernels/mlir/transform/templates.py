"""Templates of MLIR text: `.mlir` files with `$placeholders`.

A file keeps the syntax of MLIR, braces included, and editors highlight it. A placeholder
alone on its line stands for whole lines: each gets the blanks in front of the placeholder,
and no lines at all leave none.
"""

import functools
import re
from pathlib import Path
from string import Template

_WHOLE_LINES = re.compile(r"( *)\$(\w+)\n")


def filled(path: Path, **values: object) -> str:
    """The text of a template with a value in place of every placeholder.

    Args:
        path: of the template.
        values: by placeholder; text, or what prints as MLIR, such as a list of integers.

    Raises:
        KeyError: a placeholder has no value.
    """
    return "".join(_filled_line(line, values) for line in _lines(path))


@functools.cache
def _lines(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8").splitlines(keepends=True))


def _filled_line(line: str, values: dict[str, object]) -> str:
    whole = _WHOLE_LINES.fullmatch(line)
    if whole is None:
        return Template(line).substitute(values)
    blanks, name = whole.groups()
    return "".join(f"{blanks}{text}\n" for text in str(values[name]).splitlines())
