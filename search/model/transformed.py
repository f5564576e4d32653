"""The amounts of a Winograd or Strassen schedule, for the analytical model.

A matrix product for each point, at the register tile's efficiency; the transforms before and behind
them, counted as lines that are copied; and the transformed filter, which every block of tiles reads
again from where it stays. Its panels are read for each register tile of a block, from the second
cache if the first does not hold one.
"""

from math import ceil, hypot, prod

from tilewise.kernels.block_sizes import equal_block
from tilewise.kernels.steps.algorithm import POINT
from tilewise.kernels.target.cores import LINE_BYTES, Core
from tilewise.search.model.amounts import (
    AMOUNTS,
    FMA_LATENCY,
    FMA_UNITS,
    LOADS_PER_CYCLE,
    Calls,
    add_computing,
)
from tilewise.search.model.traffic import OWN_SHARE
from tilewise.search.space.algorithms import (
    ALGORITHM,
    PAST_CACHES,
    WANTED,
    channels_of,
    nest_of_algorithm,
)
from tilewise.search.space.points import Point, TilePoint
from tilewise.search.space.space import Space


def transformed_amounts(space: Space, point: Point) -> dict[str, float]:
    """Return the amounts of one run of one thread."""
    workload, shape = space.workload, point["tile"]
    rows, cols = shape.rows, shape.cols(workload.lanes)
    extents = space.part_of(point, rows, cols)
    nest = nest_of_algorithm(space.workload.problem, str(point[ALGORITHM]))
    assert nest.algorithm is not None
    tiles, channels, depth = extents[nest.row], extents[nest.col], extents[nest.k]
    points = extents[POINT]
    block = min(equal_block(tiles, int(point[WANTED]), rows), tiles)
    blocks, panels = ceil(tiles / block), ceil(channels / cols)
    last = tiles - (blocks - 1) * block
    calls = points * panels * ((blocks - 1) * ceil(block / rows) + ceil(last / rows))
    cut = 1 - tiles * channels * points / (calls * rows * cols)
    out = dict.fromkeys(AMOUNTS, 0.0)
    add_computing(out, workload, shape, Calls(calls, depth, 1.0, cut), int(point["unroll"]))

    size, near = space.problem.element.bytes, OWN_SHARE * space.target.l2_bytes
    part = equal_block(channels, int(point[channels_of(workload)]), cols)
    image = ceil(channels / part) * points * tiles * ceil(depth * size / LINE_BYTES)
    products = points * tiles * ceil(channels * size / LINE_BYTES)
    weights = points * panels * depth * cols * size / LINE_BYTES
    weights_of_part = points * depth * part * size
    panel = points * block * min(cols, channels) * size
    held = points * block * depth * size + panel
    core = space.target.core
    copies = core.transforms.near if held <= near else core.transforms.far
    out["packed_a"] = copies * image
    out["packed_a"] += (copies if panel <= near else core.transforms.far_products) * products
    pixels = prod(nest.algorithm.tile)
    out["c_lines"] = products * pixels / points
    out["a_from_l2" if held <= near else "a_from_l3"] = ceil(part / cols) * image
    far = 0 if weights_of_part + held <= near else blocks
    if core.far_l3 and weights * LINE_BYTES + held > near:
        far = max(far, 1)  # a part that stays comes from there for its first block of tiles
    is_fetched = bool(point.get("prefetch")) and space.fetches_panels
    slowed = _slowed_line(space, rows, tiles / blocks, is_fetched)
    if space.fetches_panels and weights * LINE_BYTES > OWN_SHARE * space.target.l3_bytes > 0:
        slowed *= core.streams.filter_from_memory
    out["b_from_l3"], out["b_from_l2"] = far * weights * slowed, (blocks - far) * weights
    lines = rows if core.far_l3 else 0  # of A with a panel in the first cache
    if depth * (cols + lines) * size > OWN_SHARE * space.target.l1_bytes:
        out["b_from_l2"] += (calls / (points * panels) - blocks) * weights
    if not space.problem.has_constant_weights:
        out["packed_b" if weights_of_part <= near else "packed_b_far"] = weights
    if core.far_l3:
        waited_for = _lines_of_image(space) * core.far_l3.line / core.costs.a_from_l3
        out["a_from_l3"] += ceil(channels / part) * waited_for
    out["multiply_adds"] *= _less_loads(shape, core)
    out |= {name: out[name] * times for name, times in core.transforms.products}
    if point.get(PAST_CACHES) is False:
        out["c_lines"] *= core.transforms.fetched_result
    return out


def _slowed_line(space: Space, rows: int, tiles: float, is_fetched: bool) -> float:
    """How many times as long a line of a filter beyond L2 takes as lines of other operands.

    A register tile has `rows`, and a block `tiles`, each of which multiplies every line. Fetched
    ahead, a line is waited for as far as products do not hide it.
    """
    core = space.target.core
    if core.far_l3 is None:
        is_waited_for = space.fetches_panels and not is_fetched
        return max(1.0, core.streams.filter_unfetched_row * rows) if is_waited_for else 1.0
    products = tiles / FMA_UNITS
    waits = hypot(core.far_l3.line, products) - products
    if not is_fetched:
        waits += core.far_l3.unfetched
    elif rows >= tiles:  # to the first cache
        waits = max(0.0, waits - core.far_l3.near)
    return waits / core.costs.b_from_l3


def _less_loads(shape: TilePoint, core: Core) -> float:
    """Of the cycles of a step what is left where a core loads more elements of A in one."""
    busy = max(shape.rows * shape.vectors / FMA_UNITS, FMA_LATENCY)
    loads = shape.rows + shape.vectors
    return max(busy, loads / core.broadcasts) / max(busy, loads / LOADS_PER_CYCLE)


def _lines_of_image(space: Space) -> float:
    """Lines of an image beyond the second cache."""
    workload = space.workload
    image = workload.stored["B" if workload.nest.image == "B" else "A"].total
    return image / LINE_BYTES if image > OWN_SHARE * space.target.l2_bytes else 0.0
