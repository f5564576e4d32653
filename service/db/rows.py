"""Find or create rows that are unique per natural key."""

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from tilewise.kernels.problem import Problem, ProblemRange
from tilewise.service.db import models
from tilewise.service.db.base import Base, damage, now
from tilewise.service.errors import DamagedError, NotFoundError
from tilewise.service.host.machine import MachineInfo

Row = TypeVar("Row", bound=Base)


def required(row: Row | None, name: str, fault_of: Callable[[Row], str | None] = damage) -> Row:
    """Return the row that `name` names (`plan 3`); raise NotFoundError or DamagedError."""
    if row is None:
        raise NotFoundError(f"there is no {name}")
    broken = fault_of(row)
    if broken is not None:
        raise DamagedError(f"the row of {name} in the database is damaged: {broken}")
    return row


def inserted(session: Session, *rows: Base) -> bool:
    """Insert rows; return False, with none inserted, if another process was first."""
    try:
        with session.begin_nested():
            session.add_all(rows)
    except IntegrityError:
        return False
    return True


def problem_row(session: Session, problem: Problem | ProblemRange) -> models.Problem:
    """Return the row of a problem or a range, corrected if it names another one."""
    row = _ensure(session, models.Problem, {"key": problem.key}, canonical=problem.canonical)
    if row.canonical != problem.canonical:
        row.canonical = problem.canonical
    return row


def toolchain_row(session: Session, identity: str) -> models.Toolchain:
    """Return the row of a toolchain."""
    return _ensure(session, models.Toolchain, {"identity": identity})


def machine_row(session: Session, machine: MachineInfo) -> models.Machine:
    """Return the updated row of a machine."""
    facts = {**vars(machine), "features": list(machine.features)}
    del facts["host"]
    row = _ensure(session, models.Machine, {"host": machine.host}, **facts)
    for name, value in {**facts, "seen_at": now()}.items():
        setattr(row, name, value)
    return row


def worker_row(session: Session, owner: str, **facts: Any) -> models.Worker:
    """Return the row of a worker process, created from its facts if there is none."""
    return _ensure(session, models.Worker, {"owner": owner}, **facts)


def _ensure(session: Session, model: type[Row], key: dict[str, Any], **values: Any) -> Row:
    query = select(model).filter_by(**key)
    found = session.scalar(query)
    if found is not None:
        return found
    made = model(**key, **values)
    return made if inserted(session, made) else session.scalars(query).one()


def given(*columns: tuple[Any, object]) -> list[ColumnElement[bool]]:
    """Return conditions that columns have some values, of those that are not None."""
    return [column == value for column, value in columns if value is not None]


WORK = ("problem_id", "target", "toolchain_id", "cache")
"""The columns that name a piece of work; jobs, results and past results have them."""


def same_work(model: Any, row: Any, *but: str) -> list[ColumnElement[bool]]:
    """Return conditions that a model has the work of a row, or of another model, but for some."""
    return [getattr(model, name) == getattr(row, name) for name in WORK if name not in but]


def newest(
    session: Session, model: type[Row], before: int | None, limit: int, *wanted: ColumnElement[bool]
) -> list[Row]:
    """Return rows with numbers below `before`, the newest first."""
    number = model.__table__.c.id
    if before is not None:
        wanted = (*wanted, number < before)
    query = select(model).where(*wanted).order_by(number.desc()).limit(limit)
    return list(session.scalars(query))
