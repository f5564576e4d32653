"""The views as docs/sql-views.md describes them to users."""

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[3] / "docs" / "sql-views.md"
"""A `moment` has a time zone on PostgreSQL; on SQLite it is text in UTC."""


class Column(NamedTuple):
    name: str
    kind: str


class View(NamedTuple):
    name: str
    columns: tuple[Column, ...]


def _view(section: str) -> View:
    name, _, rest = section.partition("`\n\nA row is ")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| .+ \|$", rest, re.MULTILINE)
    assert len(rows) == rest.count("\n| `"), f"{name}: a row has another form"
    return View(name, tuple(Column(*row) for row in rows))


VIEWS = tuple(map(_view, PAGE.read_text().split("\n## `")[1:]))
