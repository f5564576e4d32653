"""Trials as the rows of a plot: few enough to be sent and drawn, with all that matters."""

from collections.abc import Iterable, Sequence
from typing import Any

from tilewise.service.plots.style import Row

MOST = 1500


def trial_row(trial: Row) -> Row:
    """What plots need of a trial of the API; pages make the same of an event (`live.js`)."""
    low, high = trial["interval"] or (None, None)
    return {
        "number": trial["number"],
        "state": trial["state"],
        "origin": trial["origin"],
        "failure": trial["failure"],
        "gflops": _rounded(trial["gflops"]),
        "low": _rounded(low),
        "high": _rounded(high),
        "pace": _rounded(trial["pace"]),
        "hash": trial["hash"],
    }


def thinned(rows: Sequence[Row], most: int = MOST) -> list[Row]:
    """At most about `most` rows in their order: every improvement, and of the others evenly many.

    Args:
        rows: by number.
        most: of the rows that are no improvement.
    """
    best = improvements(rows)
    others = [row for row in rows if row["number"] not in best]
    step = max(1, -(-len(others) // most))
    kept = best | {row["number"] for row in others[::step]}
    return [row for row in rows if row["number"] in kept]


def improvements(rows: Iterable[Row]) -> set[int]:
    """Numbers of the trials that were faster than all before them."""
    found, best = set(), 0.0
    for row in rows:
        if row["state"] == "timed" and (row["gflops"] or 0.0) > best:
            best = row["gflops"]
            found.add(row["number"])
    return found


def shown_of(shown: int, total: int) -> list[str]:
    """A line that says that not all are shown, where that is so."""
    return [] if shown == total else [f"{shown} of {total} trials: every improvement, some others"]


def _rounded(value: Any) -> float | None:
    return None if value is None else float(f"{value:.5g}")
