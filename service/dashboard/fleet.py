"""The problems of the overview: their distance from the limits, and what needs attention."""

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from statistics import median
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlencode

import sqlalchemy as sa
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session, joinedload, lazyload, load_only

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import DTYPES, parse_problem
from tilewise.kernels.target import parse_target
from tilewise.migrations.views import spelling
from tilewise.schema.base import Json
from tilewise.service.dashboard.stored import MOST_PAGES, PAGE
from tilewise.service.db import models
from tilewise.service.db.base import is_sound
from tilewise.service.results import history, integrity, regressions
from tilewise.service.results.scripts import SEARCHED

State = Literal["stale", "unproven", "peer", "regressed"]
Order = Literal["attention", "share", "ratio", "speed", "problem", "created"]
NO_NUL = r"^[^\x00]*$"  # which PostgreSQL does not take
Filter = Annotated[str, Field(max_length=200, pattern=NO_NUL)]

STATES: tuple[State, ...] = get_args(State)
"""What needs attention, in the order of its weight: each outweighs those before it."""
OPS = ("matmul", "conv2d", "conv3d")
TENTHS = 10  # bars of a distribution
SPEED_S = 90 * 86400  # how far back the speed of machines goes
LARGEST = 1e300
OF_PEAK = ("dtype", "accuracy", ",a", ",b")  # in a problem: what its multiply-add peak depends on
LAST = "l3"


class FleetQuery(BaseModel):
    """Which problems the overview shows, as its URL has it; an empty text selects all of them."""

    target: Annotated[str, Field(max_length=500, pattern=NO_NUL)] = ""
    op: Literal["", "matmul", "conv2d", "conv3d"] = ""
    dtype: Filter = ""
    state: State | Literal["", "attention"] = ""
    contains: Filter = ""
    order: Order = "attention"
    page: int = Field(1, ge=1, le=MOST_PAGES)

    @property
    def filters(self) -> Json:
        """Return the filters that are set."""
        return self.model_dump(exclude={"order", "page"}, exclude_defaults=True)

    def path(self, **changes: str) -> str:
        """Return the path of the first page with some filters changed."""
        return "/?" + urlencode({"order": self.order, **self.filters, **changes})


def shown(session: Session, selection: FleetQuery, present: str) -> Json:
    """Return what the overview shows of stored schedules; `present` is the toolchain.

    SQL finds the schedules and what needs attention. Their share of the roofline needs the flops
    and bytes of the problem, which are computed here.
    """
    found = session.execute(_selected(session, selection, present)).all()
    shares = {row.id: _share(row) for row in found}
    if selection.order in ("share", "attention"):
        by_weight = selection.order == "attention"
        found = sorted(found, key=lambda row: (-row.weight * by_weight, shares[row.id]))
    start = (selection.page - 1) * PAGE
    rows = models.Schedule
    return {
        "rows": _page(session, found[start : start + PAGE], shares),
        "total": len(found),
        "pages": max(1, -(-len(found) // PAGE)),
        "targets": _targets(session, found, shares),
        "choices": {
            "target": session.scalars(
                sa.select(rows.target).distinct().order_by(rows.target)
            ).all(),
            "op": OPS,
            "dtype": tuple(DTYPES),
        },
    }


def _selected(session: Session, selection: FleetQuery, present: str) -> sa.Select[Any]:
    """Select of each problem, target and cache mode the schedule that answers, with its states."""
    sql = spelling.of(session.get_bind().dialect.name)
    row, problem, machine = models.Schedule, models.Problem, models.Machine
    peer: sa.ColumnElement[float] = sa.literal_column(
        sql.largest("schedules.peers", "gflops", name=False), sa.Double
    )
    is_present = models.Toolchain.identity == present
    proven = sa.exists().where(
        models.Proof.schedule_id == row.id, models.Proof.ok,
        models.Script.id == models.Proof.script_id, models.Script.flavor.in_(SEARCHED.values()),
    )  # fmt: skip
    numbers = (row.gflops, row.low, row.high, row.peak_gflops, row.budget, row.elapsed_s)
    each = (
        sa.select(
            row.id, problem.canonical, row.target, row.cache, row.gflops, row.peak_gflops,
            row.budget, row.elapsed_s, row.created_at, machine.bandwidth_gbs,
            sa.literal_column(sql.number("machines.caches", LAST)).label("last"),
            (row.gflops / sa.func.nullif(peer, 0)).label("ratio"),
            *regressions.place_and_faster(present), (~is_present).label("stale"),
            sa.func.coalesce(row.high < peer, sa.false()).label("peer"),
            (~proven).label("unproven"),
        )
        .join(problem, problem.id == row.problem_id)
        .join(models.Toolchain, models.Toolchain.id == row.toolchain_id)
        .join(machine, machine.id == row.machine_id)
        .where(*(number.between(0, LARGEST) for number in numbers), *_filters(selection))
        .subquery()
    )  # fmt: skip
    columns = each.c
    states: dict[State, sa.ColumnElement[bool]] = {
        "stale": columns.stale, "unproven": columns.unproven, "peer": columns.peer,
        "regressed": columns.faster.is_not(None),
    }  # fmt: skip
    weights = [sa.case((states[name], 1 << at), else_=0) for at, name in enumerate(STATES)]
    query = sa.select(
        *(one for one in columns if one.key not in ("created_at", "place")),
        states["regressed"].label("regressed"),
        sum(weights[1:], weights[0]).label("weight"),
    ).where(columns.place == 1)
    if selection.state:
        query = query.where(
            states[selection.state] if selection.state != "attention" else sa.or_(*states.values())
        )
    orders: dict[Order, tuple[sa.ColumnElement[Any], ...]] = {
        "ratio": (columns.ratio.asc().nulls_last(),),
        "speed": (columns.gflops,),
        "problem": (columns.canonical, columns.target),
    }
    return query.order_by(
        *orders.get(selection.order, ()), columns.created_at.desc(), columns.id.desc()
    )


def _filters(selection: FleetQuery) -> list[sa.ColumnElement[bool]]:
    """Return the conditions on a problem and its target."""
    canonical, target = models.Problem.canonical, models.Schedule.target
    named = canonical + " " + target
    found = [named.icontains(word, autoescape=True) for word in selection.contains.split()]
    if selection.target:
        found.append(target == selection.target)
    if selection.op:
        found.append(canonical.startswith(f"{selection.op}:"))
    if selection.dtype:
        found.append((canonical + ",").contains(f",dtype={selection.dtype},", autoescape=True))
    return found


def _page(session: Session, found: Sequence[sa.Row[Any]], shares: dict[int, float]) -> list[Json]:
    """Return the rows of a page of the table; one that is not what was stored says no more."""
    row = models.Schedule
    job = joinedload(row.job).options(load_only(models.Job.id), lazyload("*"))
    query = sa.select(row).where(row.id.in_([one.id for one in found])).options(job)
    stored = {one.id: one for one in session.scalars(query)}
    return [_row(one, stored[one.id], shares[one.id]) for one in found]


def _row(found: sa.Row[Any], row: models.Schedule, share: float) -> Json:
    is_whole = is_sound(row) and integrity.is_whole(row)
    peers = (row.peers or {}) if is_whole else {}
    return {
        "row": row,
        "is_whole": is_whole,
        "share": share,
        "ratio": found.ratio,
        "peer": max(peers, key=lambda name: peers[name]["gflops"], default=None),
        "quality": history.quality(row) if is_whole else None,
        "faster": found.faster,
        "states": [name for name in reversed(STATES) if getattr(found, name)],
    }


def _targets(
    session: Session, found: Sequence[sa.Row[Any]], shares: dict[int, float]
) -> list[Json]:
    """Return what the rows of each target have in common."""
    of_target: dict[str, list[sa.Row[Any]]] = {}
    for row in found:
        of_target.setdefault(row.target, []).append(row)
    speeds = _speeds(session) if found else {}
    return [
        {
            "target": target,
            "problems": len(rows),
            "shares": _distribution([shares[row.id] for row in rows]),
            "median": median(shares[row.id] for row in rows),
            "states": {name: sum(getattr(row, name) for row in rows) for name in reversed(STATES)},
            "trials": sum(row.budget for row in rows),
            "elapsed_s": sum(row.elapsed_s for row in rows),
            "speeds": speeds.get(target, {}),
        }
        for target, rows in sorted(of_target.items())
    ]


def _distribution(shares: Sequence[float]) -> list[int]:
    """Return how many shares are in each tenth; the last one has all above as well."""
    tenths = [min(int(share * TENTHS), TENTHS - 1) for share in shares]
    return [tenths.count(tenth) for tenth in range(TENTHS)]


def _speeds(session: Session) -> dict[str, Json]:
    """Return the days of each target, and the speed of its hosts by number of the day.

    The speed is the peak that was measured with each result, over the mean of the same host and of
    problems with the same peak.
    """
    sql = spelling.of(session.get_bind().dialect.name)
    problem, machine = models.Problem, models.Machine
    kinds = (models.Schedule, models.PastSchedule)
    names = ("problem_id", "machine_id", "target", "peak_gflops", "created_at")
    every = sa.union_all(*(sa.select(*(getattr(kind, name) for name in names)) for kind in kinds))
    row = every.subquery("results").c
    kind = [sa.literal_column(sql.setting("problems.canonical", key), sa.Text) for key in OF_PEAK]
    mean = sa.func.avg(row.peak_gflops).over(partition_by=(row.target, row.machine_id, *kind))
    each = (
        sa.select(row.target, machine.host, (row.peak_gflops / mean).label("speed"),
               sa.literal_column(sql.day("results.created_at"), sa.Text).label("day"))
        .join(problem, problem.id == row.problem_id)
        .join(machine, machine.id == row.machine_id)
        .where(row.peak_gflops.between(1 / LARGEST, LARGEST),
               sa.literal_column(sql.is_within("results.created_at", SPEED_S)))
        .subquery()
    )  # fmt: skip
    same = (each.c.target, each.c.day, each.c.host)
    query = sa.select(*same, sa.func.avg(each.c.speed)).group_by(*same).order_by(*same)
    found: dict[str, Json] = {}
    for target, day, host, speed in session.execute(query):
        of_target = found.setdefault(target, {"days": [], "hosts": {}})
        if day not in of_target["days"][-1:]:
            of_target["days"].append(day)
        at = len(of_target["days"]) - 1
        of_target["hosts"].setdefault(host, []).append((at, speed))
    return found


def _share(row: sa.Row[Any]) -> float:
    limit = row.peak_gflops
    with suppress(KernelsError):  # the page of its problem says what is wrong
        limit = roof(row.canonical, row.target, row.cache, limit, (row.last, row.bandwidth_gbs))
    return float(row.gflops / limit) if limit else 0.0


def roof(
    problem: str, target: str, cache: str, peak: float, memory: tuple[float | None, Any]
) -> float:
    """Return the lower of the peak and of what the memory feeds, in GFLOP/s.

    Memory counts with cold caches, or for operands larger than the last cache. Its bandwidth is
    known of one thread alone. `memory` holds the bytes of the last cache, and the bandwidth in
    GB/s if measured.
    """
    last, bandwidth = memory
    if not isinstance(bandwidth, int | float) or parse_target(target).threads != 1:
        return peak
    flops, size = _work(problem)
    is_from_memory = cache == "cold" or (last is not None and size > last)
    return min(peak, flops / size * bandwidth) if is_from_memory else peak


@lru_cache(maxsize=20_000)
def _work(problem: str) -> tuple[int, int]:
    parsed = parse_problem(problem)
    return parsed.flops, parsed.bytes
