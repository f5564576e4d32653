"""Parameters of a search: each knows its values, their neighbours, and numbers for them.

The numbers (an encoding) put values that act alike near each other, about one unit from end
to end: sizes by their logarithm, register tiles by rows and columns. A model of the speed
and the distance of two points are made of them.
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import product
from math import log2
from random import Random
from typing import Any

from tilewise.search.space.points import WHOLE, Point, TilePoint, Value

# Doublings that make one unit of the encoding.
SIZE_SPAN = 4.0  # of a block's size
ROWS_SPAN = 3.0  # of a register tile's rows
WIDTH_SPAN = 2.0  # of a register tile's vectors or single columns

MATRIX_SPAN = 2.0  # from other tiles to matrix tiles

MAX_TILE_STEP = 1.0  # doublings of rows or columns between neighbouring tiles
MAX_AREA_STEP = 0.5  # doublings of the area, where both rows and columns change


@dataclass(frozen=True)
class Parameter:
    """One dimension of the search: its name and its values, in their natural order."""

    name: str
    values: tuple[Value, ...]

    def neighbours(self, value: Value) -> tuple[Value, ...]:
        """Return the values next to `value` in the natural order."""
        at = self.values.index(value)
        return tuple(self.values[i] for i in (at - 1, at + 1) if 0 <= i < len(self.values))

    def encode(self, value: Value) -> tuple[float, ...]:
        """Return `value` as numbers, equally many for all values."""
        return (self.values.index(value) / max(1, len(self.values) - 1),)

    def distance(self, one: Value, other: Value) -> float:
        """Return the squared distance of the numbers of two values."""
        codes = zip(self.encode(one), self.encode(other), strict=True)
        return sum((a - b) ** 2 for a, b in codes)


@dataclass(frozen=True)
class Choice(Parameter):
    """Values without an order: each is every other's neighbour, and equally far from it."""

    def neighbours(self, value: Value) -> tuple[Value, ...]:
        """Return all other values."""
        return tuple(v for v in self.values if v != value)

    def encode(self, value: Value) -> tuple[float, ...]:
        """Return one number for two values, else one for each."""
        if len(self.values) <= 2:
            return super().encode(value)
        return tuple(float(v == value) for v in self.values)


@dataclass(frozen=True)
class Size(Parameter):
    """Wanted sizes of a block of a dim; the last, `WHOLE`, leaves the dim of `extent` uncut."""

    extent: int = 1

    @classmethod
    def below(cls, name: str, wanted: Iterable[int], extent: int) -> "Size":
        """Return the sizes below `extent`, and WHOLE."""
        return cls(name, (*(size for size in wanted if size < extent), WHOLE), extent)

    def size(self, value: Any) -> int:
        """Return the size that a value stands for."""
        return self.extent if value == WHOLE else int(value)

    def encode(self, value: Value) -> tuple[float, ...]:
        """Return the logarithm of the size."""
        return (log2(self.size(value)) / SIZE_SPAN,)

    def nearest(self, wanted: int) -> Value:
        """Return the value nearest to `wanted` by ratio; WHOLE if it covers the dim."""
        if wanted >= self.extent:
            return WHOLE
        return min(self.values, key=lambda v: abs(log2(self.size(v) / max(1, wanted))))


@dataclass(frozen=True)
class RegisterTile(Parameter):
    """Register tiles of every kind (`tilewise.search.space.tiles`)."""

    values: tuple[TilePoint, ...]

    def neighbours(self, value: Value) -> tuple[Value, ...]:
        """Return tiles with the next number of rows, of vectors, or of both at a similar area.

        Few tiles use all registers, and from one of those to another it takes two changes.
        """
        if value not in self._near:
            assert isinstance(value, TilePoint)
            near = tuple(other for other in self.values if _are_near(value, other))
            for pair in self._bridges:
                near += tuple(end for end in pair if end != value) if value in pair else ()
            self._near[value] = near
        return self._near[value]

    @cached_property
    def _near(self) -> dict[Value, tuple[Value, ...]]:
        """The neighbours found so far."""
        return {}

    @cached_property
    def _bridges(self) -> list[tuple[TilePoint, TilePoint]]:
        """For skinny and for matrix tiles, one and another tile, the nearest to each other."""
        found = []
        for kind in ("sweep", "matrix"):
            of_kind = [value for value in self.values if value.kind == kind]
            others = [value for value in self.values if value.kind != kind]
            if of_kind and others:
                ends = product(of_kind, others)
                found.append(min(ends, key=lambda pair: self.distance(*pair)))
        return found

    def encode(self, value: Value) -> tuple[float, ...]:
        """Return the logarithms of rows and columns (or vectors), and numbers for the kind of tile.

        That are the partial sums of a split, or the rows and streams of a skinny GEMM.
        """
        assert isinstance(value, TilePoint)
        skinny = log2(1 + value.depth) + log2(value.streams) / 2
        kind = log2(1 + value.partial_sums) - skinny / SIZE_SPAN
        kind += MATRIX_SPAN * (value.kind == "matrix")
        return (log2(value.rows) / ROWS_SPAN, log2(value.vectors) / WIDTH_SPAN, kind)


def _are_near(one: TilePoint, other: TilePoint) -> bool:
    """Whether two different tiles of one kind are a step apart."""
    if one == other or one.kind != other.kind:
        return False
    rows, width = log2(other.rows / one.rows), log2(other.vectors / one.vectors)
    if max(abs(rows), abs(width)) > MAX_TILE_STEP:
        return False
    changes = sum(a != b for a, b in zip(astuple(one), astuple(other), strict=True))
    areas = other.rows * other.vectors / (one.rows * one.vectors)
    return changes == 1 or abs(log2(areas)) <= MAX_AREA_STEP


def step_aside(parameters: tuple[Parameter, ...], point: Point, random: Random) -> Point:
    """Return a neighbour of `point`, with one parameter changed to a neighbouring value."""
    movable = [p for p in parameters if len(p.values) > 1]
    if not movable:
        return point
    parameter = random.choice(movable)
    near = parameter.neighbours(point[parameter.name])
    return point | {parameter.name: random.choice(near)} if near else point


def default(parameter: Parameter) -> Value:
    """Return the value of a parameter that a stored point does not have."""
    return parameter.values[-1] if isinstance(parameter, Size) else parameter.values[0]


def completed(parameters: Iterable[Parameter], params: Point) -> Point:
    """Return a stored point in the current parameters of its problem."""
    return {p.name: params.get(p.name, default(p)) for p in parameters}
