"""The stored best schedules, current or stale."""

from collections.abc import Iterable

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session, contains_eager

from tilewise.kernels.problem import Problem
from tilewise.service.db import models
from tilewise.service.db.rows import given
from tilewise.service.results.stored import Lookup, among, best_first

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
    session: Session, problem: Problem | str, lookup: Lookup, *, lock: bool = False
) -> models.Schedule | None:
    """Return the best schedule of a problem (or its key) under exactly this toolchain.

    It is hot unless the look-up names a cache mode. `lock` keeps others from changing the row until
    this transaction ends, and waits for those that are changing it.
    """
    work = {"target": lookup.target, "toolchain": lookup.toolchain, "cache": lookup.cache or "hot"}
    return session.scalar(_LOCKED if lock else _FRESH, {"key": key_of(problem), **work})


def find_schedule(
    session: Session, problem: Problem | str, lookup: Lookup
) -> models.Schedule | None:
    """Return the best schedule under the toolchain, else the newest under another."""
    key = key_of(problem)
    return find_schedules(session, [key], lookup).get(key)


def find_schedules(
    session: Session, keys: Iterable[str], lookup: Lookup
) -> dict[str, models.Schedule]:
    """Return what `find_schedule` returns for each key that has a result, in one query."""
    query = _SCHEDULES.where(
        among(session, models.Problem.__table__.c.key, set(keys)),
        *given((models.Schedule.target, lookup.target), (models.Schedule.cache, lookup.cache)),
    )
    found: dict[str, models.Schedule] = {}
    for row in session.scalars(query.order_by(*best_first(lookup.toolchain))):
        found.setdefault(row.problem.key, row)
    return found


def key_of(problem: Problem | str) -> str:
    """Return the key of a problem or of a key."""
    return problem if isinstance(problem, str) else problem.key
