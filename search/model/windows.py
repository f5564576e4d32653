"""What a schedule of a convolution with few channels in a group amounts to.

A register tile loads a window of the image, and its filter where registers do not hold that; the
vectors that it multiplies bound it, or its loads, or its stores. A line of the image comes from
where it lies once for all channels that are computed before the next one, and again for the tiles
below that share it, if what was read in between has not driven it out.
"""

from math import ceil, prod
from typing import NamedTuple

from tilewise.kernels.nest import Loop, LoopKind
from tilewise.kernels.problem import Conv2d
from tilewise.kernels.schedule import loop_nest
from tilewise.kernels.target.cores import LINE_BYTES as LINE
from tilewise.search.model.computing import FMA_LATENCY, FMA_UNITS, LOADS_PER_CYCLE
from tilewise.search.model.traffic import OWN_SHARE
from tilewise.search.model.weights import AMOUNTS
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space
from tilewise.search.space.windows import jammed_lines, window_schedule

STORES_PER_CYCLE = 1
HELD = 1  # registers beside sums and filter


class _Tile(NamedTuple):
    """A register tile, in vectors and outputs.

    Attributes:
        down, across: lines of the result, and pixels (in planes: vectors) of each.
        vectors: of channels; 1 in planes.
        reads: vectors of the image that it loads.
    """

    down: int
    across: int
    vectors: int
    reads: int

    @property
    def sums(self) -> int:
        """Accumulators."""
        return self.down * self.across * self.vectors


def window_amounts(space: Space, point: Point) -> dict[str, float]:
    """How much there is of each of `weights.AMOUNTS` in one run."""
    problem, target = space.problem, space.target
    assert isinstance(problem, Conv2d)
    tile, out = _tile(space, problem, point), dict.fromkeys(AMOUNTS, 0.0)
    tiles = _tiles(space, problem, tile)
    taps = space.workload.dims.taps * space.workload.extents[space.workload.dims.stream]
    is_held = taps * tile.vectors + tile.sums + HELD <= target.vector_registers
    walks_pixels = problem.has_channels_first or point["outer"] == "cols"
    loads = tile.reads + (0 if is_held and walks_pixels else taps * tile.vectors)
    slots = tile.sums * taps * (2 if space.workload.adds_apart else 1) / FMA_UNITS
    busy = max(slots, loads / LOADS_PER_CYCLE, tile.sums / STORES_PER_CYCLE)
    out["multiply_adds"] = tiles * busy
    out["loads"] = tiles * loads / LOADS_PER_CYCLE
    out["few_chains"] = tiles * taps * max(0, FMA_UNITS * FMA_LATENCY - tile.sums) / FMA_UNITS
    out["c_lines"] = prod(problem.operand_shapes["C"]) * problem.element.accumulator_bytes / LINE
    block_lines = _add_calls(out, space, point)
    _add_reads(out, space, problem, tile, (block_lines, walks_pixels))
    return out


def _tile(space: Space, problem: Conv2d, point: Point) -> _Tile:
    """The register tile of a point."""
    shape, inputs = point["tile"], problem.ci // problem.groups
    if problem.has_channels_first:
        lines = _window(shape.rows, problem.kh, problem)
        reads = lines * shape.vectors * problem.kw * min(problem.stride, 2) * inputs
        return _Tile(shape.rows, shape.vectors, 1, reads)
    down = jammed_lines(space.workload, shape, point["lines"])
    lines, pixels = (
        _window(outputs, taps, problem)
        for outputs, taps in ((down, problem.kh), (shape.rows, problem.kw))
    )
    spread = max(1, problem.ci // problem.co)
    return _Tile(down, shape.rows, shape.vectors, lines * pixels * shape.vectors * spread)


def _window(outputs: int, taps: int, problem: Conv2d) -> int:
    """Different lines (or pixels) that neighbouring outputs read."""
    reads = {o * problem.stride + t * problem.dilation for o in range(outputs) for t in range(taps)}
    return len(reads)


def _tiles(space: Space, problem: Conv2d, tile: _Tile) -> int:
    """Register tiles that cover the result."""
    lines, lanes = ceil(problem.oh / tile.down), space.workload.lanes
    if problem.has_channels_first:
        return problem.n * problem.co * lines * ceil(ceil(problem.ow / lanes) / tile.across)
    channels = ceil(ceil(problem.co / lanes) / tile.vectors)
    return problem.n * channels * lines * ceil(problem.ow / tile.across)


def _add_calls(out: dict[str, float], space: Space, point: Point) -> int:
    """Add the calls of the micro-kernel, one for each block; the lines of a block."""
    nest = loop_nest(space.problem, window_schedule(space.workload, point))
    lines = space.workload.extents["oh"]
    calls = 1
    for here in nest.visit():
        if isinstance(here.node, Loop) and here.node.kind is LoopKind.TILE:
            calls *= here.trips
            lines = here.node.step if here.node.dim == "oh" else lines
    out["calls"] = float(calls)
    return lines


def _add_reads(
    out: dict[str, float], space: Space, problem: Conv2d, tile: _Tile, walk: tuple[int, bool]
) -> None:
    """Add the cache lines of the image that are not found in the first cache.

    Args:
        out: amounts by name, which are added to.
        space: of the point.
        problem: the space's.
        tile: the register tile.
        walk: lines of a block, and whether the lines of one vector of channels (or of one plane)
            follow each other.
    """
    target, size = space.target, problem.element.bytes
    block_lines, walks_pixels = walk
    image = prod(problem.operand_shapes["A"]) * size
    window = _window(tile.down, problem.kh, problem)
    one_line = problem.w * (size if problem.has_channels_first else problem.ci * size)
    strip = window * one_line
    if walks_pixels and not problem.has_channels_first:
        strip = window * problem.w * max(LINE, tile.vectors * space.workload.lanes * size)
    halo = (problem.kh - 1) * problem.dilation / (block_lines * problem.stride)
    first = image * (1 + halo)
    again = image * max(0.0, window / (tile.down * problem.stride) - 1)
    is_near = problem.bytes <= OWN_SHARE * target.l2_bytes
    out["b_rows_from_l2" if is_near else "b_rows_from_l3"] += first / LINE
    if strip > OWN_SHARE * target.l1_bytes:
        out["b_rows_from_l2"] += again / LINE
