"""Templates: files with `$placeholders`, which editors highlight."""

import functools
from pathlib import Path
from string import Template


def filled(path: Path, /, **values: object) -> str:
    """Fill every placeholder of a template."""
    return _template(path).substitute(values)


@functools.cache
def _template(path: Path) -> Template:
    return Template(path.read_text(encoding="utf-8"))
