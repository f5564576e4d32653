"""Templates: files with `$placeholders`, which editors highlight."""

import functools
from pathlib import Path
from string import Template


def filled(path: Path, /, **values: object) -> str:
    """Return the text of a template with a value in place of every placeholder."""
    return _template(path).substitute(values)


@functools.cache
def _template(path: Path) -> Template:
    return Template(path.read_text(encoding="utf-8"))
