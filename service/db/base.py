"""The declarative base: constraint names and the column types that every model shares.

A database is a file that others can write to, and SQLite keeps any value in any column. So no
value that a column cannot have stops the reading of a row, or of the rows next to it: it is read
as `Garbled`, and `damage` names it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from math import inf, isfinite
from typing import Any, ClassVar

from sqlalchemy import JSON, DateTime, Dialect, Double, MetaData, inspect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from tilewise.search.space.points import Point, point_from_json, point_to_json

# Alembic can only alter a constraint that has a name, and the name must be the same
# on every database.
NAMING = {
    "ix": "ix_%(column_0_N_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

UNBOUNDED = ("max_error",)  # of a wrong result it may be infinite
_SHOWN = 40  # characters of a garbled value


_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass
class ServerClock:
    """The clock of the database server, read occasionally and continued by the monotonic clock.

    Hosts whose clocks differ agree on it, so that none takes the lease of another for late. `read`
    is None without a server.
    """

    read: datetime | None = None
    read_at_s: float = -inf

    def set(self, moment: datetime) -> None:
        """Continue from a moment that the server has just named."""
        self.read, self.read_at_s = moment.astimezone(UTC), time.clock_gettime(_BOOT)

    @property
    def age_s(self) -> float:
        """Seconds since the clock was read."""
        return time.clock_gettime(_BOOT) - self.read_at_s

    def now(self) -> datetime:
        """Return the present moment: this host's, if there is no server."""
        if self.read is None:
            return datetime.now(UTC)
        return self.read + timedelta(seconds=self.age_s)


SERVER_CLOCK = ServerClock()


def now() -> datetime:
    """Return the current time in UTC, by the clock of the database server if there is one."""
    return SERVER_CLOCK.now()


@dataclass(frozen=True)
class Garbled:
    """A stored value that its column cannot have."""

    value: object

    def __str__(self) -> str:
        text = repr(self.value)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class _Tolerant(TypeDecorator[Any]):
    """A type whose values are read as `Garbled` where they are not of its kind."""

    __abstract__ = True
    cache_ok = True
    kind: ClassVar[type[Any]]

    @property
    def python_type(self) -> type[Any]:
        """What its values are."""
        return self.kind

    def result_processor(
        self, dialect: Dialect, coltype: object
    ) -> Callable[[Any | None], Any | None] | None:
        """Return the conversion from a driver's value to Python's, which never raises."""
        read = super().result_processor(dialect, coltype)
        kind = self.kind

        def tolerant(value: Any | None) -> Any | None:
            try:
                made = value if read is None else read(value)
            except (TypeError, ValueError, RecursionError):
                return Garbled(value)
            return made if made is None or isinstance(made, kind) else Garbled(value)

        return tolerant


class UtcDateTime(_Tolerant):
    """A timestamp with a zone, stored in UTC; SQLite itself stores no zone."""

    impl = DateTime(timezone=True)
    cache_ok = True
    kind = datetime

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert a timestamp to UTC; raise ValueError for a naive one."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"timestamp {value} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Mark what a database without zones gives as UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Object(_Tolerant):
    """A JSON object; None is NULL."""

    impl = JSON(none_as_null=True)
    cache_ok = True
    kind = dict


class Array(_Tolerant):
    """A JSON array; None is NULL."""

    impl = JSON(none_as_null=True)
    cache_ok = True
    kind = list


class StoredPoint(_Tolerant):
    """A point of a search space (`tilewise.search.space.points`) as a JSON object."""

    impl = JSON(none_as_null=True)
    cache_ok = True
    kind = dict

    def process_bind_param(self, value: Point | None, dialect: Dialect) -> dict[str, Any] | None:
        """Return the point as JSON."""
        return None if value is None else point_to_json(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Any | None:
        """Return the point, or values that are no object as they are.

        Raises ValueError for an invalid tile.
        """
        return point_from_json(value) if isinstance(value, dict) else value


class Base(DeclarativeBase):
    """Base of every model; its first column is a number."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: UtcDateTime,
        float: Double(),
        dict[str, Any]: Object,
        list[Any]: Array,
    }

    id: Mapped[int] = mapped_column(primary_key=True, sort_order=-1)


def damage(row: Base) -> str | None:
    """Describe the first column with a value that it cannot have; None for a sound row.

    Infinite numbers are such values, except for errors. Deferred columns count once they are
    loaded.
    """
    for name, kind, is_nullable, is_deferred in _columns(type(row)):
        if is_deferred and name not in vars(row):
            continue
        value = getattr(row, name)
        if value is None and is_nullable:
            continue
        is_sound = isinstance(value, (kind, int) if kind is float else kind)
        if is_sound and kind is float and name not in UNBOUNDED:
            is_sound = isfinite(value)
        if not is_sound:
            raw = value if isinstance(value, Garbled) else Garbled(value)
            return f"{name} is {raw}, not of type {kind.__name__}"
    return None


def is_sound(row: Base) -> bool:
    """Return whether a row has no `damage`."""
    return damage(row) is None


@cache
def _columns(model: type[Base]) -> list[tuple[str, type[Any], bool, bool]]:
    """Name, Python type, whether NULL is allowed and whether deferred, of the model's columns."""
    return [
        (one.key, one.columns[0].type.python_type, bool(one.columns[0].nullable), one.deferred)
        for one in inspect(model).column_attrs
    ]
