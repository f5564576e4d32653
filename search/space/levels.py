"""The parameters of a tuning spec: the sizes at each level of IREE's code generation.

A point asks for tiles of about some size. Its configuration has tiles of whole vector tiles, so
that what a workgroup gets, and what a cache holds, cuts no vector tile. Where tiles leave a
remainder it is peeled off; masked vectors would be several times slower.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from tilewise.kernels.mlir.payload.function import has_epilogue
from tilewise.kernels.mlir.tuning_spec.config import (
    AnySchedule,
    Configuration,
    LevelName,
    PipelineName,
    Remainders,
    TileSize,
)
from tilewise.kernels.mlir.tuning_spec.form import LoopForm, Loops, form_of
from tilewise.kernels.mlir.tuning_spec.text import STACK_BYTES, outgrows_stack
from tilewise.kernels.problem import Problem
from tilewise.kernels.target.model import Target
from tilewise.search.space.parameters import Choice, Parameter, RegisterTile, Size
from tilewise.search.space.points import WHOLE, Point, TilePoint

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
VECTORS = (1, 2, 3, 4, 6, 8)
SPARE_REGISTERS = 2  # for what is loaded of both factors
FULL = 0.4  # of the registers, from where a tile is worth a trial, unless the result has no more


def vector_tiles(form: LoopForm, target: Target, lanes: int) -> RegisterTile:
    """Return the tiles that fit the registers and fill them, or hold the whole result's side."""
    rows, cols = form.extent(form.rows), form.extent(form.cols)
    free = target.vector_registers - SPARE_REGISTERS
    found: dict[TilePoint, None] = {}
    for high in (rows, *ROWS) if rows < ROWS[-1] else ROWS:
        for vectors in VECTORS:
            wide = min(vectors * lanes, cols)
            held = high * ceil(wide / lanes)
            is_whole = high == rows or wide == cols or vectors == VECTORS[-1]
            if high <= rows and held <= free and (held >= FULL * free or is_whole):
                found[TilePoint(high, wide, "iree")] = None
    return RegisterTile("tile", tuple(sorted(found, key=lambda tile: (tile.rows, tile.vectors))))


DEPTHS = (1, 2, 4, 8, 16)  # iterations of the reduction in one tile of vectors
SHARES = (16, 32, 64, 128, 256, 512, 1024)  # of rows or columns that a workgroup gets
LEADS = (1, 2, 4, 8)  # of another loop
CACHED = (32, 64, 128, 256, 512)
CACHED_DEPTHS = (32, 64, 128, 256, 512, 1024)
ROWS_FIRST, COLS_FIRST = "rows", "cols"


@dataclass(frozen=True)
class LevelGenerator:
    """The configurations that a search through IREE may try."""

    problem: Problem
    target: Target

    @cached_property
    def form(self) -> LoopForm:
        """The op whose sizes are chosen; UnsupportedError if no spec can choose them."""
        return form_of(self.problem)

    @property
    def lanes(self) -> int:
        """Elements of the result in a vector register."""
        return self.target.lanes(self.problem.element.name)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, in their order."""
        form = self.form
        rows, cols, depth = (form.extent(name) for name in (form.rows, form.cols, form.depth))
        chosen: list[Parameter] = [
            vector_tiles(form, self.target, self.lanes),
            Parameter("depth", tuple(d for d in DEPTHS if d <= depth)),
            Choice("inner", (ROWS_FIRST, COLS_FIRST)),
            Choice("outer", (ROWS_FIRST, COLS_FIRST)),
            Size.below("rows", SHARES, rows),
            Size.below("cols", SHARES, cols),
            *(Size.below(lead_name(loop), LEADS, extent) for loop, extent in form.lead.items()),
        ]
        if form.op == "contraction":
            chosen += [
                Size.below("cache_rows", CACHED, rows),
                Size.below("cache_cols", CACHED, cols),
                Size.below("cache_depth", CACHED_DEPTHS, depth),
            ]
        return tuple(chosen)

    def schedule(self, point: Point) -> Configuration:
        """Return the configuration of a point, without levels that have no effect."""
        form, tile = self.form, point["tile"]
        alone, units = dict.fromkeys(form.lead, 1), {form.rows: tile.rows, form.cols: tile.vectors}
        lead = {d: _whole(point[lead_name(d)], extent, 1) for d, extent in form.lead.items()}
        share = {
            form.rows: _whole(point["rows"], form.extent(form.rows), tile.rows),
            form.cols: _whole(point["cols"], form.extent(form.cols), tile.vectors),
        }
        levels: dict[LevelName, Loops] = {"distribution": lead | _ordered(share, point["outer"])}
        if form.op == "contraction":  # whose share has tiles that stay in a cache
            wanted = zip(share.items(), ("cache_rows", "cache_cols"), strict=True)
            cached = {d: _whole(point[name], size, units[d]) for (d, size), name in wanted}
            if cached != share:
                levels["cache_parallel"] = alone | cached
            if WHOLE != point["cache_depth"] < form.extent(form.depth):
                levels["cache_reduction"] = {form.depth: point["cache_depth"]}
        levels["vector_common_parallel"] = alone | _ordered(units, point["inner"])
        levels["vector_reduction"] = dict.fromkeys(form.reduction, 1) | {form.depth: point["depth"]}
        tiles = tuple(TileSize(at, d, n) for at, sizes in levels.items() for d, n in sizes.items())
        is_window = form.op == "convolution"
        pipeline: PipelineName = "ConvTileAndDecomposeExpert" if is_window else "DoubleTilingExpert"
        return Configuration(tiles, pipeline, _remainders(form, tiles))

    def why_illegal(self, schedule: AnySchedule) -> str | None:
        """Return why the sums of a tiled reduction with an epilogue exceed IREE's stack, or None.

        Without one they lie in the result. What else IREE cannot do its compiler refuses.
        """
        assert isinstance(schedule, Configuration), "this generator made it"
        if has_epilogue(self.problem) and outgrows_stack(self.form, schedule):
            return f"the sums between chunks of the reduction take more than {STACK_BYTES} bytes"
        return None


def lead_name(loop: str) -> str:
    """Return the parameter of a loop's share."""
    return f"share_{loop}"


def _ordered(pair: Loops, first: object) -> Loops:
    return pair if first == ROWS_FIRST else dict(reversed(pair.items()))


def _whole(wanted: int, extent: int, unit: int) -> int:
    """Return the size that a point wants of an extent, as a whole number of units."""
    if wanted == WHOLE or wanted >= extent:
        return extent
    return min(extent, max(1, wanted // unit) * unit)


def _remainders(form: LoopForm, tiles: Iterable[TileSize]) -> Remainders:
    """Whether any level's tiles do not divide what the level around it gave."""
    left = form.loops
    is_even = True
    for tile in tiles:
        is_even = is_even and left[tile.dim] % tile.size == 0
        left[tile.dim] = tile.size
    return "masked" if is_even else "peeled"
