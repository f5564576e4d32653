"""What a core can start in one cycle, and what memory takes: a declared table by LLVM's names.

The first bounds the speed of a loop from its instructions alone; the second is what searches
estimate times by. No other file decides by the name of a processor. Sources: AMD's Software
Optimization Guides (publications 55723 and 56305 for family 17h, 56665 for 19h, 57647
for Zen 4, 58455 for Zen 5), Intel's 64 and IA-32 Architectures Optimization Reference
Manual (248966), Agner Fog's microarchitecture manual and instruction tables, uops.info. The slots
of `vdpbf16ps` are measured, on Emerald Rapids and Zen 5; for `costs`, `transforms`, `streams` and
`far_l3` see `tilewise.kernels.target.costs`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from tilewise.kernels.problem.keys import DTYPES
from tilewise.kernels.target.costs import (
    CASCADE_LAKE,
    GOLDEN_COVE_MESH,
    GOLDEN_COVE_TRANSFORMS,
    STREAMS,
    TRANSFORMS,
    ZEN5,
    Costs,
    FarCache,
    Streams,
    Transforms,
)


@dataclass(frozen=True)
class Core:
    """Throughput of one core; wider instructions take several cycles of a unit.

    Attributes:
        multiply_adds, multiply_add_bytes: units that multiply and add vectors, and their width.
        loads, load_bytes: vector loads started per cycle, and their width.
        stores, store_bytes: vector stores started per cycle, and their width.
        width: instructions (fused micro-operations) that the front end delivers per cycle.
        latency: cycles from a fused multiply-add to one that needs its sum.
        slots: slots of a multiply-add unit per mnemonic, where they differ from
            `tilewise.kernels.instructions`.
        broadcasts: elements loaded per cycle, each to all lanes of a vector.
        costs, transforms, streams: cycles of loops, lines and packs, of transforms of operands, and
            of lines of an operand that no cache keeps.
        far_l3: cycles of lines of a far last-level cache; None for a near one.
        older_model: the name for which IREE compiles if a virtual machine hides bf16.
    """

    multiply_adds: int
    multiply_add_bytes: int
    loads: int
    load_bytes: int
    stores: int
    store_bytes: int
    width: int
    latency: int = 4
    slots: Mapping[str, int] = field(default_factory=dict)
    broadcasts: int = 2
    costs: Costs = ZEN5
    transforms: Transforms = TRANSFORMS
    streams: Streams = STREAMS
    far_l3: FarCache | None = None
    older_model: str | None = None


_TWO_PRODUCTS = {"mul.i32": 2}  # of 16 bits, of which a 32-bit multiplication is made
_HASWELL = Core(2, 32, 2, 32, 1, 32, 4, latency=5, slots=_TWO_PRODUCTS)
_SKYLAKE = Core(2, 32, 2, 32, 1, 32, 4, slots=_TWO_PRODUCTS)
_SKYLAKE_SERVER = Core(2, 64, 2, 64, 1, 64, 4, slots=_TWO_PRODUCTS)
# Clients of these families join two 256-bit units for a 512-bit multiply-add.
_SUNNY_COVE = Core(2, 32, 2, 64, 1, 64, 5, slots=_TWO_PRODUCTS)
_SUNNY_COVE_SERVER = Core(2, 64, 2, 64, 1, 64, 5, slots=_TWO_PRODUCTS)
_GOLDEN_COVE = Core(2, 32, 3, 32, 2, 32, 6, slots=_TWO_PRODUCTS)
_GOLDEN_COVE_SERVER = Core(
    2, 64, 2, 64, 1, 64, 6, slots={**_TWO_PRODUCTS, "vdpbf16ps": 4}, broadcasts=3,
    transforms=GOLDEN_COVE_TRANSFORMS, far_l3=GOLDEN_COVE_MESH, older_model="icelake-server",
)  # fmt: skip

_AMD = {
    "znver1": Core(2, 16, 2, 16, 1, 16, 6, latency=5),
    "znver2": Core(2, 32, 2, 32, 1, 32, 6, latency=5),
    "znver3": Core(2, 32, 2, 32, 1, 32, 6),
    "znver4": Core(2, 32, 2, 32, 1, 32, 6),
    "znver5": Core(2, 64, 2, 64, 1, 64, 8),
}
_INTEL = {
    **dict.fromkeys(("haswell", "broadwell"), _HASWELL),
    "skylake": _SKYLAKE,
    **dict.fromkeys(("skylake-avx512", "cascadelake", "cooperlake"), _SKYLAKE_SERVER),
    **dict.fromkeys(("icelake-client", "tigerlake", "rocketlake"), _SUNNY_COVE),
    "icelake-server": _SUNNY_COVE_SERVER,
    **dict.fromkeys(("alderlake", "raptorlake", "meteorlake"), _GOLDEN_COVE),
    **dict.fromkeys(("sapphirerapids", "emeraldrapids", "graniterapids"), _GOLDEN_COVE_SERVER),
}
_CORES = _AMD | {cpu: replace(core, costs=CASCADE_LAKE) for cpu, core in _INTEL.items()}
DEFAULT = Core(2, 64, 2, 64, 1, 64, 4, slots=_TWO_PRODUCTS)
"""For a processor that is not in the table: two multiply-adds and two loads of any width,
as cores have had since 2013, and the narrowest front end of those above."""

LINE_BYTES = 64
"""Of a cache line, on every processor in the table."""

INTEGERS_ORDERED_FOR = "znver4"
"""Whose latencies order sums of products of integers, on every processor. By those of Sapphire
Rapids LLVM has so many products wait that accumulators spill: 26 references to the stack in a tile
of 6x4 of i32 by four.
"""


def core_of(cpu: str, features: Collection[str] = ()) -> tuple[Core, bool]:
    """Return the core of a processor, and whether it is in the table (else it is `DEFAULT`).

    With matrix tiles it is a server's, also where a virtual machine gives it a client's name.
    """
    name = "sapphirerapids" if "amx-tile" in features else cpu
    return _CORES.get(name, DEFAULT), name in _CORES


CLOCK_GHZ = 5.5
"""Above the sustained clock of every processor in the table of cores."""

DEPTH = {"bf16": 2, "f16": 2, "i8": 4, "u8": 4}
"""Elements that the widest dot-product instruction sums into a lane; 1 for other types."""


TILE_LANES = 256
"""32-bit sums that the matrix unit of a processor with AMX adds to in a cycle."""


def ceiling_gflops(cpu: str, features: Collection[str], dtype: str, threads: int) -> float:
    """Return the multiply-adds of the widest instructions in GFLOP/s (two operations each)."""
    core, _ = core_of(cpu, features)
    lanes = core.multiply_adds * core.multiply_add_bytes // DTYPES[dtype].accumulator_bytes
    if "amx-tile" in features and dtype in DEPTH:
        lanes = TILE_LANES
    return 2.0 * lanes * DEPTH.get(dtype, 1) * CLOCK_GHZ * threads
