"""Markdown that the reference is made of."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, or nothing where there are no rows; cells are Markdown of one line."""
    body = [_row(row) for row in rows]
    return "\n".join([_row(head), _row(["---"] * len(head)), *body, ""]) if body else ""


def code(text: object) -> str:
    """A word as code."""
    return f"`{text}`"


def one_line(text: str) -> str:
    """A paragraph in one line, for a cell."""
    return " ".join(text.split())


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
