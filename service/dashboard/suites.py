"""What pages show of suites, as plain values: a report beside the one before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewise.kernels.problem import parse_problem
from tilewise.service.api.documents import moment, report_of
from tilewise.service.db import models
from tilewise.service.db.base import is_sound
from tilewise.service.errors import DamagedError
from tilewise.service.plots.style import Row
from tilewise.service.results import suites

Json = dict[str, Any]

HISTORY = 100  # reports of one suite that a page and its plot go back
PROBLEMS = 100  # rows of a table


@dataclass(frozen=True)
class Change:
    """Our speed in a report over that in the report before.

    Attributes:
        ratio: new over old.
        is_told_apart: whether the intervals do not overlap.
    """

    ratio: float
    is_told_apart: bool


def latest(session: Session) -> list[tuple[models.SuiteReport, int]]:
    """Of each suite on each target the newest report, with how many there are; newest first."""
    return [(row, many) for row, many in suites.latest(session, HISTORY) if is_sound(row)]


def history(session: Session, row: models.SuiteReport) -> list[models.SuiteReport]:
    """The reports of the same suite on the same target, newest first."""
    found = suites.newest(session, suite=row.suite, target=row.target, limit=HISTORY)
    return [one for one in found if is_sound(one)]


def stored_keys(session: Session, problems: Sequence[Json]) -> dict[str, str]:
    """Of the problems of a table those that are stored, with their keys."""
    keys = {row["problem"]: parse_problem(row["problem"]).key for row in problems}
    query = select(models.Problem.key).where(models.Problem.key.in_(keys.values()))
    known = set(session.scalars(query))
    return {problem: key for problem, key in keys.items() if key in known}


def before(session: Session, row: models.SuiteReport) -> tuple[int, Json] | None:
    """Number and content of the report before, of the same suite and target.

    None for the first one, and where the one before is damaged.
    """
    found = suites.newest(session, suite=row.suite, target=row.target, before=row.id, limit=1)
    if not found or not is_sound(found[0]):
        return None
    try:
        return found[0].id, report_of(found[0])
    except DamagedError:
        return None


def changes(report: Json, old: Json | None) -> list[Change | None]:
    """For each problem of a report how its speed has changed; None where either lacks it."""
    known = {} if old is None else {row["problem"]: row["ours"] for row in old["problems"]}
    return [_change(row["ours"], known.get(row["problem"])) for row in report["problems"]]


def _change(new: Json | None, old: Json | None) -> Change | None:
    if new is None or old is None:
        return None
    apart = new["interval"][0] > old["interval"][1] or new["interval"][1] < old["interval"][0]
    return Change(new["gflops"] / old["gflops"], apart)


def history_rows(rows: Sequence[models.SuiteReport]) -> list[Row]:
    """Ratios over time, for the plot of a suite's history."""
    made = []
    for row in reversed(rows):
        shown = {"when": moment(row.created_at), "toolchain": row.toolchain.identity}
        for series, value in (
            ("geometric mean", row.geomean_ratio),
            ("weighted by time", weighted_ratio(row)),
        ):
            if value is not None:
                made.append({**shown, "series": series, "value": round(value, 4)})
    return made


def weighted_ratio(row: models.SuiteReport) -> float | None:
    """The best peers' time for the whole suite over ours; None where no problem counts."""
    if row.ours_gflops is None or not row.oracle_gflops:
        return None
    return row.ours_gflops / row.oracle_gflops
