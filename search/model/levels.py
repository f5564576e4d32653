"""A model of how long IREE's code takes, and the schedules to try first.

It orders points roughly: by what the multiply-add units do and by the cache that each factor is
read from. A search has its mean from here, and learns the rest.
"""

from dataclasses import dataclass
from math import ceil, log, log2

from tilewise.search.model.amounts import FMA_LATENCY, FMA_UNITS, LOADS_PER_CYCLE
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.space.levels import COLS_FIRST, ROWS_FIRST, LevelGenerator, lead_name
from tilewise.search.space.parameters import RegisterTile, Size, default
from tilewise.search.space.points import WHOLE, Point, TilePoint, Value
from tilewise.search.space.space import Space

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
class LevelModel:
    """Estimates the time of the configurations of a space, for a target `iree:NAME`."""

    space: Space

    @property
    def generator(self) -> LevelGenerator:
        """The generator of the space."""
        found = self.space.generator
        assert isinstance(found, LevelGenerator)
        return found

    def log_time(self, point: Point) -> float:
        """Return the logarithm of the modelled time of a point, up to a constant."""
        form, lanes = self.generator.form, self.generator.lanes
        high, wide = point["tile"].rows, point["tile"].vectors
        vectors = ceil(wide / lanes)
        sums = high * vectors
        step = max(sums / FMA_UNITS, FMA_LATENCY, (high / 2 + vectors) / LOADS_PER_CYCLE)
        computing = step * FMA_UNITS / sums
        if sums + vectors + 1 > self.space.target.vector_registers:
            computing *= SPILLED
        for extent, size in ((form.extent(form.rows), high), (form.extent(form.cols), wide)):
            computing *= 1 + PEELED * (extent % size) / extent
        chunk = int(point.get("cache_depth", WHOLE)) or form.extent(form.depth)
        computing *= 1 + ENTERED * FMA_LATENCY / (chunk * step)
        return log(computing + self._reading(point, chunk, high, wide))

    def _reading(self, point: Point, chunk: int, high: int, wide: int) -> float:
        """What the factor that is read again for each tile costs, by where it has its place."""
        form, target = self.generator.form, self.space.target
        rows = int(point.get("cache_rows", WHOLE)) or int(point["rows"]) or form.extent(form.rows)
        cols = int(point.get("cache_cols", WHOLE)) or int(point["cols"]) or form.extent(form.cols)
        again, tile = (cols, high) if point["inner"] == ROWS_FIRST else (rows, wide)
        held = again * chunk * self.space.problem.element.bytes
        if held <= target.l1_bytes:
            return 0.0
        if held <= target.l2_bytes:
            return FROM_L2 * 8 / tile
        is_near = held <= max(target.l3_bytes, target.l2_bytes)
        return (FROM_L3 if is_near else FROM_MEMORY) * 8 / tile


TimeModel = AnalyticalModel | LevelModel
"""How long the schedules of a space should take."""


def level_starts(model: LevelModel) -> list[Point]:
    """Return points of different schedules that were good on most problems."""
    found = dict[str, Point]()
    for sizes in _FIRST:
        point = _point(model.generator, sizes)
        found.setdefault(model.space.schedule(point).hash, point)
    return list(found.values())


def _point(levels: LevelGenerator, wanted: Sizes) -> Point:
    (high, vectors), depth, rows, cols, cached, outer = wanted
    names: dict[str, Value] = {"depth": depth, "rows": rows, "cols": cols, "outer": outer}
    names |= dict(zip(("cache_rows", "cache_cols", "cache_depth"), cached, strict=True))
    names |= {lead_name(loop): 1 for loop in levels.form.lead}
    wide = vectors * levels.lanes

    def apart(tile: TilePoint) -> float:
        return abs(log2(tile.rows / high)) + abs(log2(tile.vectors / wide))

    point: Point = {}
    for parameter in levels.parameters:
        value = names.get(parameter.name, default(parameter))
        if isinstance(parameter, RegisterTile):
            value = min(parameter.values, key=apart)
        elif isinstance(parameter, Size):
            value = parameter.nearest(parameter.size(value))
        elif value not in parameter.values:
            value = parameter.values[-1]
        point[parameter.name] = value
    return point
