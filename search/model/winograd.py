"""What a schedule by minimal filtering takes, in the amounts of `search.model.weights`.

A matrix product for each point, at the register tile's efficiency; the transforms before and behind
them, counted as lines that are copied; and the transformed filter, which every block of tiles reads
again from where it stays. Its panels are read for each register tile of a block, from the second
cache if the first does not hold one.
"""

from math import ceil, hypot, prod
from typing import NamedTuple

from kernels.schedule import Register
from kernels.schedule.winograd import POINT, winograd_space
from kernels.target.cores import is_intel
from search.model.computing import FMA_UNITS, Calls, add_computing
from search.model.traffic import LINE_BYTES, OWN_SHARE
from search.model.weights import AMOUNTS, CASCADE_LAKE
from search.space.block_sizes import equal_block
from search.space.methods.winograd import WANTED, channels_of, filtered_part, streams_filter
from search.space.points import Point
from search.space.space import Space
from search.space.tiles import tile_shape

# Copied lines that a transformed line takes as long as: it is computed, too.
COPIES_NEAR, COPIES_FAR = 1.5, 2.5  # where a block and its products stay in L2, and beyond

# Times as long as from L3 a line of a filter takes that is not fetched ahead: 7x7x512 on Zen 5 has
# 317, 275 and 157 GFLOP/s in tiles of 4, 8 and 16 rows, and 317, 370 and 372 with `prefetch`.
UNFETCHED_PER_ROW = 0.45
FROM_MEMORY = 3.0  # times as long as a line from L3: 46 GB/s, and 120

# Cycles that a line of the filter takes on Intel's servers, where the last cache is far away:
# Emerald Rapids reads 29 GB/s of it at 2.9 GHz. A read again for another register tile takes one.
FAR_LINE, UNFETCHED, AGAIN = 6.5, 3.0, 0.94
IMAGE_AGAIN = 0.3  # of a line of other operands from L2: 7x7x512, 14x14x256 in tiles of 16 rows


class _Filter(NamedTuple):
    """How one run reads the transformed filter.

    Attributes:
        lines: of the whole.
        blocks: of tiles, each of which reads it.
        passes: over the whole by register tiles.
        rows: of a register tile.
        tiles: of a block, each of which multiplies every line.
        is_fetched: whether tiles find it in the second cache.
    """

    lines: float
    blocks: int
    passes: float
    rows: int
    tiles: float
    is_fetched: bool

    def waited_for(self, space: Space) -> float:
        """Lines that take as long as those do which other operands have from the last cache."""
        slowed = self._far(space) if is_intel(space.target.cpu) else self._near(space)
        if self.lines * LINE_BYTES > OWN_SHARE * space.target.l3_bytes > 0:
            slowed *= FROM_MEMORY if streams_filter(space.workload) else 1
        return self.blocks * self.lines * slowed

    def _near(self, space: Space) -> float:
        if self.is_fetched or not streams_filter(space.workload):
            return 1.0
        return max(1.0, UNFETCHED_PER_ROW * self.rows)

    def _far(self, space: Space) -> float:
        """Fetched ahead, a line is waited for as far as a block's products do not hide it."""
        products = self.tiles / FMA_UNITS
        waits = hypot(FAR_LINE, products) - products
        return (waits + (not self.is_fetched) * UNFETCHED) / CASCADE_LAKE["b_from_l3"]

    def read_again(self, space: Space) -> float:
        """Lines that register tiles read from the second cache, where the first lacks them."""
        cycles = AGAIN / CASCADE_LAKE["b_from_l2"] if is_intel(space.target.cpu) else 1.0
        return (self.passes - self.blocks) * self.lines * cycles


def filtered_amounts(space: Space, point: Point, output: int) -> dict[str, float]:
    """The amounts of one run of one thread."""
    workload, shape = space.workload, tile_shape(point["tile"])
    rows, cols = shape.rows, shape.cols(workload.lanes)
    extents, _ = filtered_part(workload, point, output, Register(rows, cols, "cols"))
    tiles, channels, depth = extents["t"], extents["co"], extents["ci"]
    points = extents[POINT]
    block = min(equal_block(tiles, int(point[WANTED]), rows), tiles)
    blocks, panels = ceil(tiles / block), ceil(channels / cols)
    last = tiles - (blocks - 1) * block
    calls = points * panels * ((blocks - 1) * ceil(block / rows) + ceil(last / rows))
    cut = 1 - tiles * channels * points / (calls * rows * cols)
    out = dict.fromkeys(AMOUNTS, 0.0)
    add_computing(out, workload, shape, Calls(calls, depth, 1.0, cut), int(point["unroll"]))

    size, near = space.problem.element.bytes, OWN_SHARE * space.target.l2_bytes
    part = min(equal_block(channels, int(point[channels_of(workload)]), cols), panels * cols)
    image = ceil(channels / part) * points * tiles * ceil(depth * size / LINE_BYTES)
    products = points * tiles * ceil(channels * size / LINE_BYTES)
    weights = points * panels * depth * cols * size / LINE_BYTES
    weights_of_part = points * depth * part * size
    held = points * block * (depth + min(cols, channels)) * size
    out["packed_a"] = (COPIES_NEAR if held <= near else COPIES_FAR) * (image + products)
    pixels = prod(winograd_space(space.problem, output).tile)
    out["c_lines"] = products * pixels / points
    hidden = IMAGE_AGAIN if is_intel(space.target.cpu) else 1.0
    out["a_from_l2" if held <= near else "a_from_l3"] = ceil(part / cols) * image * hidden
    is_fetched = bool(point.get("prefetch")) and streams_filter(workload)
    passes = calls / (points * panels)
    read = _Filter(weights, blocks, passes, rows, tiles / blocks, is_fetched)
    if weights_of_part + held <= near:
        out["b_from_l2"] = blocks * weights
    else:
        out["b_from_l3"] = read.waited_for(space)
    if depth * cols * size > OWN_SHARE * space.target.l1_bytes:
        out["b_from_l2"] += read.read_again(space)
    if not space.problem.has_constant_weights:
        out["packed_b" if weights_of_part <= near else "packed_b_far"] = weights
    return out
