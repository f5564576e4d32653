"""The amounts of depthwise and grouped convolutions, for the analytical model.

A register tile loads a window of the image, and its filter where registers do not hold that; the
vectors that it multiplies bound it, or its loads, or its stores. A line of the image comes from
where it lies once for all channels that are computed before the next one, and again for the tiles
below that share it, if what was read in between has not driven it out.
"""

from math import ceil, prod
from typing import NamedTuple

from tilewise.kernels.nest import LoopKind, Nest
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import loop_nest
from tilewise.kernels.target.cores import LINE_BYTES as LINE
from tilewise.search.model.amounts import AMOUNTS, FMA_LATENCY, FMA_UNITS, LOADS_PER_CYCLE
from tilewise.search.model.traffic import OWN_SHARE
from tilewise.search.space.points import Point
from tilewise.search.space.schedules import schedule_of
from tilewise.search.space.space import Space
from tilewise.search.space.workload_parameters import jammed_lines

RESULT = ("n", "oh", "ow", "co")


class _Tile(NamedTuple):
    """A register tile, in vectors and outputs.

    It has `down` lines of the result with `across` pixels (in planes: vectors) each, of `vectors`
    of channels (1 in planes), and loads `reads` vectors of the image.
    """

    down: int
    across: int
    vectors: int
    reads: int

    @property
    def sums(self) -> int:
        """Accumulators."""
        return self.down * self.across * self.vectors


def grouped_conv_amounts(space: Space, point: Point) -> dict[str, float]:
    """Return the amounts of `AMOUNTS` in one run of one thread."""
    problem, target = space.problem, space.target
    tile, out = _tile(space, point), dict.fromkeys(AMOUNTS, 0.0)
    nest = loop_nest(problem, schedule_of(space.workload, point))
    tiles = _tiles(space, nest, tile)
    taps = space.workload.nest.taps * space.workload.depth
    is_held = taps * tile.vectors + tile.sums + 1 <= target.vector_registers
    walks_pixels = problem.has_channels_first or point["outer"] == "cols"
    loads = tile.reads + (0 if is_held and walks_pixels else taps * tile.vectors)
    slots = tile.sums * taps * (2 if space.workload.adds_apart else 1) / FMA_UNITS
    busy = max(slots, loads / LOADS_PER_CYCLE, tile.sums)
    out["multiply_adds"] = tiles * busy
    out["loads"] = tiles * loads / LOADS_PER_CYCLE
    out["few_chains"] = tiles * taps * max(0, FMA_UNITS * FMA_LATENCY - tile.sums) / FMA_UNITS
    out["c_lines"] = prod(map(nest.part, RESULT)) * problem.element.accumulator_bytes / LINE
    blocks = nest.loops_of(LoopKind.TILE)
    out["calls"] = float(prod(here.trips for here in nest.visit() if here.node in blocks))
    _add_reads(out, space, nest, tile, walks_pixels)
    return out


def _tile(space: Space, point: Point) -> _Tile:
    problem, shape, inputs = space.problem, point["tile"], space.workload.depth
    down_taps, across_taps = problem.window
    if problem.has_channels_first:
        lines = _window(shape.rows, down_taps, problem, 0)
        reads = lines * shape.vectors * across_taps * min(problem.strides[1], 2) * inputs
        return _Tile(shape.rows, shape.vectors, 1, reads)
    down = jammed_lines(space.workload, shape, point["lines"])
    lines, pixels = (
        _window(outputs, taps, problem, side)
        for side, (outputs, taps) in enumerate(((down, down_taps), (shape.rows, across_taps)))
    )
    spread = max(1, inputs // space.workload.nest.group)
    return _Tile(down, shape.rows, shape.vectors, lines * pixels * shape.vectors * spread)


def _window(outputs: int, taps: int, problem: Problem, side: int) -> int:
    """Different lines (side 0) or pixels (side 1) that neighbouring outputs read."""
    stride, dilation = problem.strides[side], problem.dilations[side]
    return len({o * stride + t * dilation for o in range(outputs) for t in range(taps)})


def _tiles(space: Space, nest: Nest, tile: _Tile) -> int:
    """Register tiles that cover the part of a thread."""
    images, down, across, channels = map(nest.part, RESULT)
    lines, lanes = ceil(down / tile.down), space.workload.lanes
    if space.problem.has_channels_first:
        return images * channels * lines * ceil(ceil(across / lanes) / tile.across)
    return images * ceil(ceil(channels / lanes) / tile.vectors) * lines * ceil(across / tile.across)


def _add_reads(
    out: dict[str, float], space: Space, nest: Nest, tile: _Tile, walks_pixels: bool
) -> None:
    """Add the cache lines of the image that are not found in the first cache.

    `walks_pixels` says whether the lines of one vector of channels (or of one plane) follow each
    other.
    """
    problem, target, size = space.problem, space.target, space.problem.element.bytes
    (taps, _), (_, across) = problem.window, problem.spatial_axes
    shape = problem.operand_shapes["A"]
    image = prod(shape) * size * prod(map(nest.part, RESULT)) / prod(map(nest.extent, RESULT))
    window = _window(tile.down, taps, problem, 0)
    strip = window * prod(shape[across:]) * size
    if walks_pixels and not problem.has_channels_first:
        strip = window * shape[across] * max(LINE, tile.vectors * space.workload.lanes * size)
    halo = (taps - 1) * problem.dilations[0] / (nest.enclosing("oh") * problem.strides[0])
    first = image * (1 + halo)
    again = image * max(0.0, window / (tile.down * problem.strides[0]) - 1)
    is_near = problem.bytes <= OWN_SHARE * target.l2_bytes
    out["b_rows_from_l2" if is_near else "b_rows_from_l3"] += first / LINE
    if strip > OWN_SHARE * target.l1_bytes:
        out["b_rows_from_l2"] += again / LINE
