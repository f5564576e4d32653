"""The amounts that the analytical model counts. `tilewise.kernels.target.costs` has their costs.

`benchmarks/replay/fit.py` fitted the costs, none below zero, to recorded spaces of problems of
different kinds, for each processor that was recorded. Cores differ in what hides behind computing,
and in what a line costs that the caches have to fetch. `tilewise.search.transfer.calibration`
corrects the costs by trials on another processor.

Cores of Intel have the costs of Cascade Lake, all others those of Zen 5. One more of Intel's was
recorded, a server of the Golden Cove family (docs/search.md). On its eighteen spaces the costs of
Cascade Lake choose schedules with 77 to 100% of the best one's speed, those of Zen 5 schedules with
38 to 100%.
"""

from dataclasses import astuple, fields
from math import ceil, log2
from typing import NamedTuple

from tilewise.kernels.arithmetic import WidenedWeights
from tilewise.kernels.target.costs import Costs
from tilewise.search.space.points import TilePoint
from tilewise.search.space.schedules import unit_of_depth
from tilewise.search.space.tiles import TILE
from tilewise.search.space.workload import Workload

AMOUNTS = tuple(field.name for field in fields(Costs) if field.name != "overlap")
READS = tuple(name for name in AMOUNTS if "_from_" in name)
UNHIDDEN = ("calls", "c_lines", "packed_a", "packed_b", "packed_b_far", "fetched_b")
"""Names of all amounts; of the reads, which hide behind computing; of what hides behind nothing."""


def cycles_of(costs: Costs) -> tuple[float, ...]:
    """Return the cycles that one of each of `AMOUNTS` takes."""
    return astuple(costs)[: len(AMOUNTS)]


# The units of the amounts that costs were fitted to, on all processors: other numbers for a core
# would need other costs. What a core can start in a cycle is in `tilewise.kernels.target.cores`.
FMA_UNITS = 2  # multiply-adds begun in a cycle
FMA_LATENCY = 4  # cycles from a multiply-add's begin to its end
ADD_LATENCY = 1  # cycles; where products are added apart, only sums of integers wait for each other
LOADS_PER_CYCLE = 2  # vectors
LATENCY_HIDING_CHAINS = 20  # accumulators, from where no latency of multiply-adds shows
CROWDED_FROM = 0.5  # of the registers, from where unrolled loads crowd the accumulators


class Calls(NamedTuple):
    """Calls of a micro-kernel, each with `depth` elements of the reduction, filter taps included.

    The shares are those of the tiles' columns that are computed, and of tiles that are cut off.
    """

    calls: int
    depth: float
    computed_share: float
    edge_share: float


def add_computing(
    out: dict[str, float], workload: Workload, shape: TilePoint, work: Calls, unroll: int
) -> None:
    """Add the amounts of a tile's calls."""
    if shape.kind == "matrix":
        _add_matrix_tiles(out, workload, shape, work, unroll)
        return
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


TILE_CYCLES = 16  # of a product of matrix tiles
TILE_LOAD_CYCLES = 8  # from the first cache
END_OF_BLOCK_CYCLES = 16  # that sums take through memory, for each tile


def _add_matrix_tiles(
    out: dict[str, float], workload: Workload, shape: TilePoint, work: Calls, unroll: int
) -> None:
    """Add the amounts of calls that load a tile of each row and column of their grid a step."""
    tall, wide, how = shape.rows // TILE, shape.vectors, workload.arithmetic_of("matrix")
    steps = work.calls * ceil(work.depth / unit_of_depth(how)) * len(how.instruction.parts)
    loads = tall + wide
    busy = max(tall * wide * TILE_CYCLES, loads * TILE_LOAD_CYCLES)
    if isinstance(how, WidenedWeights):  # whose step is a block, with an end of its own
        products = how.products * (how.depth // how.step)
        busy = products * max(TILE_CYCLES, loads * TILE_LOAD_CYCLES) + END_OF_BLOCK_CYCLES
        loads *= products
    out["multiply_adds"] = steps * busy
    out["loads"] = steps * loads * TILE_LOAD_CYCLES
    out["steps"] = steps / unroll
    out["calls"] = work.calls
    out["edges"] = out["multiply_adds"] * work.edge_share
