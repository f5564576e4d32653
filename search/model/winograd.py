"""What a schedule of transformed operands takes, in the amounts of `search.model.weights`.

A matrix product for each point, at the register tile's efficiency; the transforms before and behind
them, counted as lines that are copied; and the transformed filter, which every block of tiles reads
again from where it stays. Its panels are read for each register tile of a block, from the second
cache if the first does not hold one.
"""

from math import ceil, prod

from kernels.schedule import Register, Strassen, Winograd
from kernels.schedule.transformed import transformed_space
from kernels.schedule.winograd import POINT
from search.model.computing import Calls, add_computing
from search.model.traffic import LINE_BYTES, OWN_SHARE
from search.model.weights import AMOUNTS
from search.space.block_sizes import equal_block
from search.space.methods.winograd import WANTED, channels_of, filtered_part, streams_filter
from search.space.points import Point
from search.space.space import Space
from search.space.tiles import tile_shape

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


def filtered_amounts(space: Space, point: Point, method: Winograd | Strassen) -> dict[str, float]:
    """The amounts of one run of one thread."""
    workload, shape = space.workload, tile_shape(point["tile"])
    rows, cols = shape.rows, shape.cols(workload.lanes)
    extents, _ = filtered_part(workload, point, method, Register(rows, cols, "cols"))
    dims = transformed_space(space.problem, method)
    tiles, channels, depth = extents[dims.row], extents[dims.col], extents[dims.stream]
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
    out["packed_a"] = (COPIES_NEAR if held <= near else COPIES_FAR) * image
    out["packed_a"] += (COPIES_NEAR if panel <= near else PRODUCTS_FAR) * products
    pixels = prod(dims.tile)
    out["c_lines"] = products * pixels / points
    out["a_from_l2" if held <= near else "a_from_l3"] = ceil(part / cols) * image
    stays = weights_of_part + held <= near
    slowed = 1.0
    if streams_filter(workload) and not stays:
        slowed = 1.0 if point.get("prefetch") else max(1.0, UNFETCHED_PER_ROW * rows)
        if weights * LINE_BYTES > OWN_SHARE * space.target.l3_bytes > 0:
            slowed *= FROM_MEMORY
    out["b_from_l2" if stays else "b_from_l3"] = blocks * weights * slowed
    if depth * cols * size > OWN_SHARE * space.target.l1_bytes:
        out["b_from_l2"] += (calls / (points * panels) - blocks) * weights
    if not space.problem.has_constant_weights:
        out["packed_b" if weights_of_part <= near else "packed_b_far"] = weights
    return out
