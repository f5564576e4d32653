"""What a schedule of transformed operands takes, in the amounts of `tilewise.search.model.weights`.

A matrix product for each point, at the register tile's efficiency; the transforms before and behind
them, counted as lines that are copied; and the transformed filter, which every block of tiles reads
again from where it stays. Its panels are read for each register tile of a block, from the second
cache if the first does not hold one.
"""

from math import ceil, hypot, prod
from typing import NamedTuple

from tilewise.kernels.schedule import Register, Strassen, Winograd, begin
from tilewise.kernels.steps.transformed import POINT
from tilewise.kernels.target.cores import is_golden_cove_server
from tilewise.search.model.computing import (
    FMA_LATENCY,
    FMA_UNITS,
    LOADS_PER_CYCLE,
    Calls,
    add_computing,
)
from tilewise.search.model.traffic import LINE_BYTES, OWN_SHARE
from tilewise.search.model.weights import AMOUNTS, CASCADE_LAKE
from tilewise.search.space.division import equal_block
from tilewise.search.space.methods.algorithms import (
    PAST_CACHES,
    WANTED,
    channels_of,
    fetches_panels,
    transformed_part,
)
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space
from tilewise.search.space.tiles import TileShape, tile_shape

# Copied lines that a transformed line takes as long as: it is computed, too.
COPIES_NEAR, COPIES_FAR = 1.5, 2.5  # where a block and its products stay in L2, and beyond

# Products that leave L2 are missed twice, when they are written and when they are read. On Emerald
# Rapids a line takes 100 cycles then: 2048^3 by strassen levels=2 has 171 GFLOP/s in blocks of 120
# groups of rows, 133 in blocks of 258. Other processors have a nearer last cache.
PRODUCTS_FAR = 12.0

# Times as long as from L3 a line of a filter takes that is not fetched ahead: 7x7x512 on Zen 5 has
# 317, 275 and 157 GFLOP/s in tiles of 4, 8 and 16 rows, and 317, 370 and 372 with `prefetch`.
UNFETCHED_PER_ROW = 0.45
FROM_MEMORY = 3.0  # times as long as a line from L3: 46 GB/s, and 120

GOLDEN_COVE = {
    "loads": 0.15,
    "steps": 0.5,
    "crowded": 0.0,
    "a_from_l2": 0.1,
    "b_from_l2": 2.5,
    "packed_b": 7.0,
    "packed_b_far": 30.0,
}
"""What each takes on Intel's servers of the Golden Cove family, of what Cascade Lake's weights say.

These, and those below, were fitted to ten layers on Emerald Rapids by what each is for, and judged
by ten others (docs/experiments/0047-filters-from-a-far-last-cache.md). Unrolled loads do not crowd
the sums: `unroll factor=4` is up to 6% faster than none, in every tile, and 8 gains little more
(docs/experiments/0049-products-of-few-pixels.md).
"""
GOLDEN_COVE_COPIES = 0.4, 1.4
FAR_LINE, UNFETCHED = 6.0, 2.0  # cycles: 29 GB/s from the last cache at 2.9 GHz, and what it waits
BROADCASTS = 3  # elements loaded in a cycle; 16x1 computes at the peak
FETCHED_RESULT = 12.0  # times as long a line takes that is fetched from beyond L2 to be written
NEARER = 0.45  # of those, where it comes to the first cache: 7x7x512, 14x14x256 in tiles of 16 rows


class _Filter(NamedTuple):
    """How one run reads a transformed filter that lies beyond the second cache.

    Attributes:
        lines: of the whole.
        blocks: of tiles, each of which reads it from there.
        rows: of a register tile.
        tiles: of a block, each of which multiplies every line.
        is_fetched: whether tiles find it in the second cache.
    """

    lines: float
    blocks: int
    rows: int
    tiles: float
    is_fetched: bool

    def waited_for(self, space: Space) -> float:
        """Lines that take as long as those do which other operands have from the last cache."""
        streams, far = fetches_panels(space.workload), is_golden_cove_server(space.target.cpu)
        slowed = self._far() if far else self._near() if streams else 1.0
        if streams and self.lines * LINE_BYTES > OWN_SHARE * space.target.l3_bytes > 0:
            slowed *= FROM_MEMORY
        return self.blocks * self.lines * slowed

    def _near(self) -> float:
        return 1.0 if self.is_fetched else max(1.0, UNFETCHED_PER_ROW * self.rows)

    def _far(self) -> float:
        """Fetched ahead, a line is waited for as far as a block's products do not hide it."""
        products = self.tiles / FMA_UNITS
        waits = hypot(FAR_LINE, products) - products
        if not self.is_fetched:
            waits += UNFETCHED
        elif self.rows >= self.tiles:  # to the first cache
            waits = max(0.0, waits - NEARER)
        return waits / CASCADE_LAKE["b_from_l3"]


def transformed_amounts(
    space: Space, point: Point, method: Winograd | Strassen
) -> dict[str, float]:
    """The amounts of one run of one thread."""
    workload, shape = space.workload, tile_shape(point["tile"])
    rows, cols = shape.rows, shape.cols(workload.lanes)
    extents, _ = transformed_part(workload, point, method, Register(rows, cols, "cols"))
    dims = begin(space.problem, method)
    assert dims.algorithm is not None
    tiles, channels, depth = extents[dims.row], extents[dims.col], extents[dims.k]
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
    panel = points * block * min(cols, channels) * size
    held = points * block * depth * size + panel
    is_golden_cove = is_golden_cove_server(space.target.cpu)
    copies = (GOLDEN_COVE_COPIES if is_golden_cove else (COPIES_NEAR, COPIES_FAR))[held > near]
    out["packed_a"] = copies * image + (copies if panel <= near else PRODUCTS_FAR) * products
    pixels = prod(dims.algorithm.tile)
    out["c_lines"] = products * pixels / points
    out["a_from_l2" if held <= near else "a_from_l3"] = ceil(part / cols) * image
    far = 0 if weights_of_part + held <= near else blocks
    if is_golden_cove and weights * LINE_BYTES + held > near:
        far = max(far, 1)  # a part that stays comes from there for its first block of tiles
    is_fetched = bool(point.get("prefetch")) and fetches_panels(workload)
    read = _Filter(weights, far, rows, tiles / blocks, is_fetched)
    out["b_from_l3"], out["b_from_l2"] = read.waited_for(space), (blocks - far) * weights
    beside = rows if is_golden_cove else 0  # lines of A beside a panel in the first cache
    if depth * (cols + beside) * size > OWN_SHARE * space.target.l1_bytes:
        out["b_from_l2"] += (calls / (points * panels) - blocks) * weights
    if not space.problem.has_constant_weights:
        out["packed_b" if weights_of_part <= near else "packed_b_far"] = weights
    if is_golden_cove:
        out["multiply_adds"] *= _less_loads(shape)
        out |= {name: out[name] * times for name, times in GOLDEN_COVE.items()}
        out["a_from_l3"] += ceil(channels / part) * _lines_of_a_far_image(space)
        out["c_lines"] *= FETCHED_RESULT if point.get(PAST_CACHES) is False else 1.0
    return out


def _less_loads(shape: TileShape) -> float:
    """Of the cycles of a step what is left where three elements of A are loaded in one."""
    busy = max(shape.rows * shape.width / FMA_UNITS, FMA_LATENCY)
    loads = shape.rows + shape.width
    return max(busy, loads / BROADCASTS) / max(busy, loads / LOADS_PER_CYCLE)


def _lines_of_a_far_image(space: Space) -> float:
    """Of an image beyond the second cache, as long as lines of other operands take."""
    workload = space.workload
    image = workload.stored["B" if workload.dims.image == "B" else "A"].total
    if image <= OWN_SHARE * space.target.l2_bytes:
        return 0.0
    return image / LINE_BYTES * FAR_LINE / CASCADE_LAKE["a_from_l3"]
