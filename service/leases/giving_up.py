"""Rows that nobody can run any more, or that nobody has for long: they fail, and say why."""

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from tilewise.service.db.base import now
from tilewise.service.db.models import Toolchain
from tilewise.service.leases.table import LeasedTable, Row


def retire(
    table: LeasedTable[Row], session: Session, targets: Sequence[str], toolchain: str
) -> int:
    """Fail what waits for other toolchains, which nothing here can run any more.

    Its trials were timed by code that is gone, so they are not continued by another.

    Returns:
        How many there were.
    """
    model = table.model
    query = (
        select(model)
        .join(model.toolchain)
        .where(model.target.in_(targets), Toolchain.identity != toolchain)
        .where(model.state.in_(("queued", "running")))
        .with_for_update(of=model)
    )
    rows = [row for row in session.scalars(query) if table.fault_of(row) or table.is_free(row)]
    for row in rows:
        former = row.toolchain.identity
        table.fail(row, f"it was for the toolchain {former}, which changed; ask again")
    return len(rows)


def note_unserved(
    table: LeasedTable[Row],
    session: Session,
    served: Collection[tuple[str, str]],
    most: timedelta,
    is_ready: Callable[[Row], bool] = lambda _: True,
) -> int:
    """Note since when rows wait for a worker that could run them; those that did for long fail.

    Args:
        table: of the rows.
        session: a transaction that writes.
        served: each target that a live worker serves, with the toolchain of that worker.
        most: for which a row waits so.
        is_ready: whether a row waits for nothing else.

    Returns:
        How many failed.
    """
    model = table.model
    waiting = or_(model.state == "queued", model.unserved_since.is_not(None))
    active = model.state.in_(("queued", "running"))
    failed = 0
    query = select(model).join(model.toolchain).where(waiting, active)
    # One that somebody claims at this moment is locked, and waits no more.
    for row in session.scalars(query.with_for_update(of=model, skip_locked=True)):
        if table.fault_of(row) is not None:
            continue
        place = row.target, row.toolchain.identity
        if row.state != "queued" or place in served or not is_ready(row):
            row.unserved_since = None
        elif row.unserved_since is None:
            row.unserved_since = now()
        elif row.unserved_since < now() - most:
            failed += 1
            table.fail(row, _unserved(*place, most))
    return failed


def _unserved(target: str, toolchain: str, most: timedelta) -> str:
    return (
        f"no live worker has served {target} with {toolchain} for "
        f"{most.total_seconds():.0f} s; start one, or ask for a target of GET /v1/targets"
    )
