"""A point of a space: one value for each parameter, and how it is stored as JSON."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

TileKind = Literal["outer", "split", "sweep", "matrix", "iree"]
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class TilePoint:
    """A register tile: the value of the parameter `tile`.

    Attributes:
        rows: of C.
        vectors: of a row of C; single columns in a split tile and in one of IREE's.
        kind: of micro-kernel: outer products of vectors of columns, sums split along k, a skinny
            GEMM (`sweep`), matrix tiles (AMX), or a tile of IREE's code generation.
        partial_sums: vectors along k that a split tile sums each element in; else 0.
        depth: rows of B that a skinny GEMM reads side by side, its k-block; else 0.
        streams: parts of k that a skinny GEMM takes those rows from.
    """

    rows: int
    vectors: int
    kind: TileKind = "outer"
    partial_sums: int = 0
    depth: int = 0
    streams: int = 1

    def __post_init__(self) -> None:
        sizes = (self.rows, self.vectors, self.streams, self.partial_sums + 1, self.depth + 1)
        is_sized = all(type(size) is int and 1 <= size <= _LARGEST for size in sizes)
        if not is_sized or self.kind not in get_args(TileKind):
            raise ValueError(f"no register tile: {self!r:.200}")

    def __str__(self) -> str:
        text = f"{self.rows}x{self.vectors}"
        if self.kind == "split":
            return f"{text}s{self.partial_sums}"
        if self.kind == "sweep":
            return f"{text}w{self.depth}" + (f"i{self.streams}" if self.streams > 1 else "")
        return f"{text}t" if self.kind == "matrix" else text

    @property
    def description(self) -> str:
        """The tile in words."""
        unit = "column" if self.kind in ("split", "iree") else "vector"
        parts = [f"{_counted(self.rows, 'row')} x {_counted(self.vectors, unit)}"]
        if self.kind == "split":
            parts.append(_counted(self.partial_sums, "partial sum"))
        if self.kind == "sweep":
            parts.append(f"k-block {self.depth}")
        if self.kind == "matrix":
            parts.append("matrix tiles")
        if self.streams > 1:
            parts.append(_counted(self.streams, "k-stream"))
        return ", ".join(parts)

    def cols(self, lanes: int) -> int:
        """Return the columns of C, if a vector has so many lanes."""
        return self.vectors * lanes if self.kind in ("outer", "sweep", "matrix") else self.vectors


Value = int | str | bool | TilePoint
Point = dict[str, Any]
"""A `Value` for each parameter, of the type of the parameter's values."""

WHOLE = 0  # the size of a block that leaves its dim uncut
_TILE = "tile"
_SIZE = r"([1-9][0-9]{0,8})"
_TEXT = re.compile(f"{_SIZE}x{_SIZE}(?:s{_SIZE}|w{_SIZE}(?:i{_SIZE})?)?")


def point_from_json(params: Mapping[str, Any]) -> Point:
    """Return a stored point.

    Its tile may be text, as trials had it up to schema 0019. A text that is no tile, such as
    `2x2w8e` of a step that went away, stays text: it is displayed, and no space holds it.

    Raises ValueError for an object that is no tile.
    """
    tile = params.get(_TILE)
    if isinstance(tile, str):
        tile = _tile_from_text(tile, is_iree="inner" in params)
    elif isinstance(tile, dict):
        try:
            tile = TilePoint(**tile)
        except TypeError as error:
            raise ValueError(f"no register tile: {tile!r:.200}") from error
    return dict(params) if tile is None else {**params, _TILE: tile}


def _tile_from_text(text: str, is_iree: bool) -> TilePoint | str:
    found = _TEXT.fullmatch(text)
    if found is None:
        return text
    rows, vectors, partial_sums, depth, streams = (int(size or 0) for size in found.groups())
    kind: TileKind = "split" if partial_sums else "sweep" if depth else "outer"
    return TilePoint(rows, vectors, "iree" if is_iree else kind, partial_sums, depth, streams or 1)


def point_to_json(point: Point) -> dict[str, Any]:
    """Return a point as JSON, with an object for its tile."""
    return {k: asdict(v) if isinstance(v, TilePoint) else v for k, v in point.items()}


def scalars_of(point: Point) -> dict[str, Any]:
    """Return a point with its tile as text, such as `6x4`, `2x3s4` and `1x4w8i8`."""
    return {k: str(v) if isinstance(v, TilePoint) else v for k, v in point.items()}


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("s" if count != 1 else "")
