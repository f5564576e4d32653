"""What the instructions of an outer-product micro-kernel take, with all they read in L1."""

from math import log2
from typing import NamedTuple

from tilewise.search.space.points import TilePoint
from tilewise.search.space.workload import Workload

# The units of the amounts that weights were fitted to, on all processors: other numbers for a core
# would need other weights. What a core can start in a cycle is in `tilewise.kernels.target.cores`.
FMA_UNITS = 2  # multiply-adds begun in a cycle
FMA_LATENCY = 4  # cycles from a multiply-add's begin to its end
ADD_LATENCY = 1  # cycles; where products are added apart, only sums of integers wait for each other
LOADS_PER_CYCLE = 2  # vectors
LATENCY_HIDING_CHAINS = 20  # accumulators, from where no latency of multiply-adds shows
CROWDED_FROM = 0.5  # of the registers, from where unrolled loads crowd the accumulators


class Calls(NamedTuple):
    """Calls of a micro-kernel.

    Attributes:
        calls: how many.
        depth: elements of the reduction in each, filter taps included.
        computed_share: of all columns of the tiles, those that are computed.
        edge_share: of all tiles, those that the result cuts off.
    """

    calls: int
    depth: float
    computed_share: float
    edge_share: float


def add_computing(
    out: dict[str, float], workload: Workload, shape: TilePoint, work: Calls, unroll: int
) -> None:
    """Add the amounts of a tile's calls."""
    rows, vectors, adds_apart = shape.rows, shape.vectors, workload.adds_apart
    latency = ADD_LATENCY if adds_apart else FMA_LATENCY
    how = workload.arithmetic
    of_word = how.multiply_adds  # for each of which an element of A is loaded; B's are widened
    loads = (of_word * rows + vectors) / LOADS_PER_CYCLE
    instructions = of_word * rows * vectors * (2 if adds_apart else 1)
    widenings = how.depth * vectors if how.is_narrow else 0
    busy = max((instructions + widenings) / FMA_UNITS, of_word * latency, loads)
    steps = work.calls * (work.depth / how.depth)
    out["multiply_adds"] = steps * busy * work.computed_share
    out["loads"] = steps * loads
    enough = LATENCY_HIDING_CHAINS * latency / FMA_LATENCY
    out["few_chains"] = of_word * steps * max(0, enough - rows * vectors) / FMA_UNITS
    out["steps"] = steps / unroll
    out["unrolled"] = out["multiply_adds"] * log2(unroll)
    used = (rows * vectors + vectors) / workload.target.vector_registers
    out["crowded"] = out["unrolled"] * max(0, used - CROWDED_FROM)
    out["calls"] = work.calls
    out["edges"] = out["multiply_adds"] * work.edge_share
