"""Lists that leave out, count and log damaged rows."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from types import GenericAlias
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

from pydantic import BaseModel, TypeAdapter, ValidationError

from tilewise.schema.base import Json
from tilewise.service.db.base import Base, damage
from tilewise.service.faults import tell_once

Row = TypeVar("Row", bound=Base | tuple[Base, ...])

log = logging.getLogger(__name__)


def listed(
    name: str, rows: Sequence[Row], show: Callable[[Row], Json], view: type[BaseModel]
) -> Json:
    """Return the rows of one page as `show` makes them, and the number of `unreadable` rows.

    `name` is the field of the list, `view` the model of its items. The first of a tuple names a
    row.
    """
    made = [(row, shown) for row in rows if (shown := _shown(row, show)) is not None]
    try:
        _list_of(view).validate_python([shown for _, shown in made])
    except ValidationError as error:
        # One validation of all is much faster than one of each, and names the same places.
        faults = {int(fault["loc"][0]): fault for fault in reversed(error.errors())}
        for index, fault in faults.items():
            _tell(made[index][0], ": ".join((*map(str, fault["loc"][1:]), fault["msg"])))
        made = [one for index, one in enumerate(made) if index not in faults]
    return {name: [shown for _, shown in made], "unreadable": len(rows) - len(made)}


@dataclass(frozen=True)
class RowPage:
    """A page of at most `limit` rows of the list `name` at `path`; `filters` are of its query."""

    name: str
    path: str
    limit: int
    filters: Mapping[str, str | None]

    def of(
        self,
        found: Sequence[Row],
        show: Callable[[Row], Json],
        view: type[BaseModel],
        cursor_of: Callable[[Any], int] = attrgetter("id"),
    ) -> Json:
        """Return the page of rows, of which one beyond `limit` says that there are more.

        `cursor_of` names the last row for the path of the page after.
        """
        page, following = found[: self.limit], None
        if len(found) > self.limit:
            query = {"cursor": cursor_of(page[-1]), "limit": self.limit, **self.filters}
            given = {name: value for name, value in query.items() if value is not None}
            following = f"{self.path}?{urlencode(given)}"
        return {**listed(self.name, page, show, view), "next": following}


def _shown(row: Row, show: Callable[[Row], Json]) -> Json | None:
    try:
        return show(row)
    except (AttributeError, TypeError, ValueError, ArithmeticError) as error:
        _tell(row, str(error))
        return None


def _tell(row: Base | tuple[Base, ...], why: str) -> None:
    first = row[0] if isinstance(row, tuple) else row
    where = f"row {getattr(first, 'id', '?')} of {first.__tablename__}"
    tell_once(log, f"{where} is damaged and left out of lists: {damage(first) or why}")


@cache
def _list_of(view: type[BaseModel]) -> TypeAdapter[list[Any]]:
    return TypeAdapter(cast("type[list[Any]]", GenericAlias(list, (view,))))
