"""An analytical model of a schedule's time, in cycles of the multiply-add units.

After Low, Igual, Smith and Quintana-Orti, Analytical Modeling Is Enough for High-Performance
BLIS (ACM TOMS 43(2), 2016), whose rules choose a register tile by latency times throughput
of the multiply-add units and blocks by what stays in which cache. The model turns these rules into
costs that add up, and can compare any two schedules: where the rules say that a block fits, the
cost of reading it falls to that of the nearer cache.

`amounts` counts what takes time; `tilewise.kernels.target.costs` says what one of each takes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log, prod
from operator import itemgetter, mul

from tilewise.kernels.nest import Role
from tilewise.kernels.target.cores import LINE_BYTES
from tilewise.kernels.target.costs import Costs
from tilewise.search.model.amounts import (
    AMOUNTS,
    FMA_LATENCY,
    FMA_UNITS,
    LOADS_PER_CYCLE,
    READS,
    UNHIDDEN,
    Calls,
    add_computing,
    cycles_of,
)
from tilewise.search.model.grouped_conv import grouped_conv_amounts
from tilewise.search.model.traffic import add_packs, add_reads, sizes_of
from tilewise.search.model.transformed import transformed_amounts
from tilewise.search.space.algorithms import algorithm_of
from tilewise.search.space.points import Point, TilePoint
from tilewise.search.space.space import Space
from tilewise.search.space.workload import Workload

_unhidden = itemgetter(*map(AMOUNTS.index, UNHIDDEN))
_reads = itemgetter(*map(AMOUNTS.index, READS))


@dataclass(frozen=True)
class AnalyticalModel:
    """Estimates the time of the schedules of a space.

    Attributes:
        space: whose points the model judges.
        costs: of one of each amount.
    """

    space: Space
    costs: Costs

    @classmethod
    def shipped(cls, space: Space) -> "AnalyticalModel":
        """Return the model with the costs that Tilewise ships for the space's target."""
        return cls(space, space.target.core.costs)

    @cached_property
    def _cycles(self) -> tuple[float, ...]:
        return cycles_of(self.costs)

    def log_time(self, point: Point) -> float:
        """Return the logarithm of the modelled cycles of a point."""
        return self.log_cycles(amounts(self.space, point).values())

    def log_cycles(self, counted: Iterable[float]) -> float:
        """Return the logarithm of the modelled cycles of amounts in the order of `AMOUNTS`."""
        overlap = self.costs.overlap
        cycles = list(map(mul, self._cycles, counted))
        unhidden, reading = sum(_unhidden(cycles)), sum(_reads(cycles))
        computing = sum(cycles) - reading - unhidden
        return log(unhidden + (computing**overlap + reading**overlap) ** (1 / overlap))


def amounts(space: Space, point: Point) -> dict[str, float]:
    """Return the amounts of `AMOUNTS` in one run of one thread.

    Slots of vector multiply-adds (or what else holds up a step) and of loads; accumulators
    that lack; steps of the reduction's loop; calls of micro-kernels; slots in tiles that are
    cut off; cache lines of C, and of A and B by the cache they come from, packed or as rows
    of the operand; lines that packs copy.
    """
    workload, shape, nest = space.workload, point["tile"], space.workload.nest
    if nest.group:
        return grouped_conv_amounts(space, point)
    if algorithm_of(point):
        return transformed_amounts(space, point)
    tile = shape.rows, shape.cols(workload.lanes)
    extents = space.part_of(point, *tile)
    rows, cols = extents[nest.row], extents[nest.col]
    if shape.kind == "split":
        out = _split_amounts(workload, shape, rows, cols, int(point["unroll"]))
    elif shape.kind == "sweep":
        out = _skinny_amounts(workload, shape, rows, cols)
    else:
        out = _panel_amounts(space, point, tile)
    lead = prod(extents[dim] for dim in nest.named(Role.LEAD))
    return {name: amount * lead for name, amount in out.items()} if lead > 1 else out


def _panel_amounts(space: Space, point: Point, tile: tuple[int, int]) -> dict[str, float]:
    """The amounts of tiles that multiply panels, of `tile` rows and columns."""
    workload, sizes = space.workload, sizes_of(space, point, *tile)
    out = dict.fromkeys(AMOUNTS, 0.0)
    work = Calls(
        sizes.calls,
        sizes.depth * workload.nest.taps,
        sizes.computed_share(tile[1], workload.lanes),
        sizes.edge_share(*tile),
    )
    add_computing(out, workload, point["tile"], work, int(point["unroll"]))
    accumulator = workload.problem.element.accumulator_bytes
    out["c_lines"] = (2 * sizes.chunks - 1) * sizes.rows * sizes.cols * accumulator / LINE_BYTES
    add_reads(out, space, point, sizes, tile)
    add_packs(out, space, point, sizes, tile[1])
    return out


def _split_amounts(
    workload: Workload, shape: TilePoint, rows: int, cols: int, unroll: int
) -> dict[str, float]:
    """The amounts of a split tile, which reads both factors along the reduction."""
    chains = shape.rows * shape.vectors * shape.partial_sums
    loads = (shape.rows + shape.vectors) * shape.partial_sums
    calls = ceil(rows / shape.rows) * ceil(cols / shape.vectors)
    steps = calls * ceil(workload.depth / (shape.partial_sums * workload.lanes))
    busy = max(chains / FMA_UNITS, FMA_LATENCY, loads / LOADS_PER_CYCLE)
    out = dict.fromkeys(AMOUNTS, 0.0)
    out["multiply_adds"] = steps * busy
    out["steps"] = steps / unroll
    out["calls"] = calls * (1 + shape.rows * shape.vectors / 2)  # sums within vectors
    return out


def _skinny_amounts(workload: Workload, shape: TilePoint, rows: int, cols: int) -> dict[str, float]:
    """The amounts of a skinny tile: for every k-block C is visited once, B for each tile of rows.

    A visit of B loads its rows and joins them to words, and loads A's words for every vector of the
    tile's width. Words of whole vectors are joined once, stored, and loaded for each tile.
    """
    out, deep = dict.fromkeys(AMOUNTS, 0.0), workload.skinny_arithmetic.depth
    vectors, chunks = ceil(cols / workload.lanes), ceil(workload.depth / shape.depth)
    words, tiles = shape.depth / deep, ceil(rows / shape.rows)
    in_whole_vectors = shape.vectors % deep == 0
    is_shared = in_whole_vectors and deep > 1 and tiles > 1 and shape.streams == 1
    visits = 1 if is_shared else tiles
    loads = visits * shape.depth + tiles * shape.rows * words / shape.vectors
    if is_shared:
        loads += (1 + tiles) * words
    loads += visits * words * (deep - 1)  # joins, as many of which begin in a cycle
    visit = rows * (words / FMA_UNITS + 1) + loads / LOADS_PER_CYCLE
    out["multiply_adds"] = chunks * vectors * visit
    out["calls"] = float(chunks)
    return out
