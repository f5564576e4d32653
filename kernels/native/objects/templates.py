"""Templates of LLVM IR and of C: files with `$placeholders`, which editors highlight."""

import functools
from pathlib import Path
from string import Template

_FOLDER = Path(__file__).with_name("templates")


def filled(name: str, /, **values: str) -> str:
    """The text of a template with a value in place of every placeholder."""
    return _template(name).substitute(values)


@functools.cache
def _template(name: str) -> Template:
    return Template((_FOLDER / name).read_text(encoding="utf-8"))
