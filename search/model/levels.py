"""A model of how long IREE's code takes, and the schedules that it should be asked for first.

It orders points roughly: by what the multiply-add units do and by the cache that each factor is
read from. A search has its mean from here, and learns the rest.
"""

from dataclasses import dataclass
from math import ceil, log

from tilewise.search.model.amounts import FMA_LATENCY, FMA_UNITS, LOADS_PER_CYCLE, shipped
from tilewise.search.model.analytical import Model
from tilewise.search.space.levels import (
    COLS_FIRST,
    ROWS_FIRST,
    LevelSpace,
    VectorTile,
    lead_name,
    sides,
)
from tilewise.search.space.parameters import Size, default
from tilewise.search.space.points import WHOLE, Point, Value

SPILLED = 1.5  # times as long, where accumulators do not fit the registers
FROM_L2, FROM_L3, FROM_MEMORY = 0.06, 0.25, 0.6  # of the time, where a factor is read from there
PEELED = 0.5  # of the time of what a tile leaves over
ENTERED = 4.0  # iterations of the reduction that it takes to enter its loop

Sizes = tuple[tuple[int, int], int, int, int, tuple[int, int, int], str]
_FIRST: tuple[Sizes, ...] = (
    # tile, depth, rows, cols, cached rows, columns and depth, which loop is outside
    ((8, 2), 4, WHOLE, 64, (WHOLE, WHOLE, WHOLE), ROWS_FIRST),
    ((12, 2), 2, WHOLE, 32, (WHOLE, WHOLE, WHOLE), COLS_FIRST),
    ((8, 2), 2, WHOLE, WHOLE, (256, 256, 256), ROWS_FIRST),
    ((8, 2), 4, WHOLE, 256, (128, 256, 128), COLS_FIRST),
    ((14, 2), 1, WHOLE, WHOLE, (64, 64, WHOLE), COLS_FIRST),
    ((8, 2), 1, 128, 128, (WHOLE, WHOLE, WHOLE), ROWS_FIRST),
    ((6, 4), 2, WHOLE, 64, (WHOLE, WHOLE, WHOLE), ROWS_FIRST),
    ((4, 4), 8, WHOLE, 64, (WHOLE, WHOLE, WHOLE), ROWS_FIRST),
)


@dataclass(frozen=True)
class LevelModel(Model):
    """How long the schedules of a `LevelSpace` should take."""

    @classmethod
    def of(cls, space: LevelSpace) -> "LevelModel":
        """The model of a space; the weights are those of its processor, and unused."""
        return cls(space, shipped(space.target))

    def log_time(self, point: Point) -> float:
        """Logarithm of the modelled time of a point, up to a constant."""
        space = self.space
        assert isinstance(space, LevelSpace)
        high, wide = sides(point["tile"])
        vectors = ceil(wide / space.lanes)
        sums = high * vectors
        step = max(sums / FMA_UNITS, FMA_LATENCY, (high / 2 + vectors) / LOADS_PER_CYCLE)
        computing = step * FMA_UNITS / sums
        if sums + vectors + 1 > space.target.vector_registers:
            computing *= SPILLED
        form = space.form
        for extent, size in ((form.extent(form.rows), high), (form.extent(form.cols), wide)):
            computing *= 1 + PEELED * (extent % size) / extent
        chunk = int(point.get("cache_depth", WHOLE)) or form.extent(form.depth)
        computing *= 1 + ENTERED * FMA_LATENCY / (chunk * step)
        return log(computing + self._reading(space, point, chunk, high, wide))

    @staticmethod
    def _reading(space: LevelSpace, point: Point, chunk: int, high: int, wide: int) -> float:
        """What the factor that is read again for each tile costs, by where it has its place."""
        form, size = space.form, space.problem.element.bytes
        rows = int(point.get("cache_rows", WHOLE)) or int(point["rows"]) or form.extent(form.rows)
        cols = int(point.get("cache_cols", WHOLE)) or int(point["cols"]) or form.extent(form.cols)
        again, tile = (cols, high) if point["inner"] == ROWS_FIRST else (rows, wide)
        held = again * chunk * size
        target = space.target
        if held <= target.l1_bytes:
            return 0.0
        if held <= target.l2_bytes:
            return FROM_L2 * 8 / tile
        return (
            (FROM_L3 if held <= max(target.l3_bytes, target.l2_bytes) else FROM_MEMORY) * 8 / tile
        )


def level_starts(model: LevelModel, most: int) -> list[Point]:
    """Up to `most` points of different schedules that were good on most problems."""
    space, found = model.space, dict[str, Point]()
    assert isinstance(space, LevelSpace)
    for sizes in _FIRST:
        point = _point(space, sizes)
        found.setdefault(space.schedule(point).hash, point)
    return list(found.values())[:most]


def _point(space: LevelSpace, wanted: Sizes) -> Point:
    (high, vectors), depth, rows, cols, cached, outer = wanted
    names: dict[str, Value] = {"depth": depth, "rows": rows, "cols": cols, "outer": outer}
    names |= dict(zip(("cache_rows", "cache_cols", "cache_depth"), cached, strict=True))
    names |= {lead_name(loop): 1 for loop in space.form.lead}
    point: Point = {}
    for parameter in space.parameters:
        value = names.get(parameter.name, default(parameter))
        if isinstance(parameter, VectorTile):
            value = parameter.nearest(high, vectors * space.lanes)
        elif isinstance(parameter, Size):
            value = parameter.nearest(parameter.size(value))
        elif value not in parameter.values:
            value = parameter.values[-1]
        point[parameter.name] = value
    return point
