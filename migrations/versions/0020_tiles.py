"""The tile of a trial is an object of fields, and no text.

`6x4` becomes `{"rows": 6, "vectors": 4, "kind": "outer", ...}`. A text that no tile of this version
says, such as `2x2w8e`, and params that are no object stay as they are. Going down, the objects
become the same texts again.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import context, op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

ROWS_AT_ONCE = 1000
SIZE = r"([1-9][0-9]{0,8})"
TEXT = re.compile(f"{SIZE}x{SIZE}(?:s{SIZE}|w{SIZE}(?:i{SIZE})?)?")
FIELDS = {"rows", "vectors", "kind", "partial_sums", "depth", "streams"}


def upgrade() -> None:
    if not context.is_offline_mode():
        rewrite(op.get_bind(), fields_of)


def downgrade() -> None:
    if not context.is_offline_mode():
        rewrite(op.get_bind(), text_of)


def rewrite(connection: sa.Connection, changed: Callable[[dict[str, Any]], Any]) -> None:
    """Give the params of all trials another tile, where `changed` has one."""
    # As text: an edit may have left something else in the column.
    trials = sa.table("trials", sa.column("id"), sa.column("params"))
    query = (
        sa.select(trials.c.id, sa.cast(trials.c.params, sa.Text).label("params"))
        .order_by(trials.c.id)
        .limit(ROWS_AT_ONCE)
    )
    new = sa.bindparam("new", type_=sa.JSON(none_as_null=True))
    update = sa.update(trials).where(trials.c.id == sa.bindparam("row")).values(params=new)
    last = -1
    while rows := connection.execute(query.where(trials.c.id > last)).all():
        last = rows[-1].id
        found = [(row.id, params_of(row.params)) for row in rows]
        values = [
            {"row": number, "new": params | {"tile": tile}}
            for number, params in found
            if (tile := changed(params)) is not None
        ]
        if values:
            connection.execute(update, values)


def params_of(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "null")
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def fields_of(params: dict[str, Any]) -> dict[str, Any] | None:
    """A tile's fields; None where its params have no text of one."""
    text = params.get("tile")
    found = TEXT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    rows, vectors, partial_sums, depth, streams = (int(size or 0) for size in found.groups())
    kind = "split" if partial_sums else "sweep" if depth else "outer"
    return {
        "rows": rows, "vectors": vectors,
        "kind": "iree" if "inner" in params else kind,  # a parameter of IREE's spaces alone
        "partial_sums": partial_sums, "depth": depth, "streams": streams or 1,
    }  # fmt: skip


def text_of(params: dict[str, Any]) -> str | None:
    """The text of a tile; None where its params have no fields of one."""
    tile = params.get("tile")
    if not isinstance(tile, dict) or set(tile) != FIELDS:
        return None
    text = f"{tile['rows']}x{tile['vectors']}"
    if tile["kind"] == "split":
        return f"{text}s{tile['partial_sums']}"
    if tile["kind"] == "sweep":
        return f"{text}w{tile['depth']}" + (f"i{tile['streams']}" if tile["streams"] != 1 else "")
    return text
