"""The stored best schedules, current or stale."""

from collections.abc import Iterable

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session, contains_eager

from tilewise.kernels.problem import Problem
from tilewise.kernels.system.toolchain import identity
from tilewise.search.records import CacheMode
from tilewise.service.db import models
from tilewise.service.results.stored import among, best_first

# Made once: to build one takes longer than SQLite takes to answer it.
_SCHEDULES = (
    select(models.Schedule)
    .join(models.Schedule.problem)
    .join(models.Schedule.toolchain)
    .options(contains_eager(models.Schedule.problem), contains_eager(models.Schedule.toolchain))
)
_FRESH = _SCHEDULES.where(
    models.Problem.key == bindparam("key"),
    models.Schedule.target == bindparam("target"),
    models.Toolchain.identity == bindparam("toolchain"),
    models.Schedule.cache == bindparam("cache"),
)
_LOCKED = _FRESH.with_for_update(of=models.Schedule).execution_options(populate_existing=True)


def find_fresh(
    session: Session,
    problem: Problem | str,
    target: str,
    toolchain: str,
    cache: CacheMode = "hot",
    *,
    lock: bool = False,
) -> models.Schedule | None:
    """Return the best schedule of a problem (or its key) under exactly this toolchain.

    `lock` keeps others from changing the row until this transaction ends, and waits for those that
    are changing it.
    """
    given = {"key": key_of(problem), "target": target, "toolchain": toolchain, "cache": cache}
    return session.scalar(_LOCKED if lock else _FRESH, given)


def find_schedule(
    session: Session,
    problem: Problem | str,
    target: str,
    toolchain: str | None = None,
    cache: CacheMode | None = None,
) -> models.Schedule | None:
    """Return the best schedule under the present toolchain, else the newest under another.

    `toolchain` None is the present one. `cache` None prefers hot over cold.
    """
    query = (
        _SCHEDULES.where(models.Problem.key == key_of(problem), models.Schedule.target == target)
        .order_by(*best_first(toolchain or identity()))
        .limit(1)
    )
    if cache is not None:
        query = query.where(models.Schedule.cache == cache)
    return session.scalar(query)


def find_schedules(
    session: Session,
    keys: Iterable[str],
    target: str,
    toolchain: str | None = None,
    cache: CacheMode | None = None,
) -> dict[str, models.Schedule]:
    """Return what `find_schedule` returns for each key that has a result, in one query."""
    query = _SCHEDULES.where(
        among(session, models.Problem.__table__.c.key, set(keys)), models.Schedule.target == target
    ).order_by(*best_first(toolchain or identity()))
    if cache is not None:
        query = query.where(models.Schedule.cache == cache)
    found: dict[str, models.Schedule] = {}
    for row in session.scalars(query):
        found.setdefault(row.problem.key, row)
    return found


def key_of(problem: Problem | str) -> str:
    """Return the key of a problem or of a key."""
    return problem if isinstance(problem, str) else problem.key
