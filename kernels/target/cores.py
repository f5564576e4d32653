"""What a core can start in one cycle, by LLVM's name of the processor: a declared table.

It bounds the speed of a loop from its instructions alone. Sources: AMD's Software
Optimization Guides (publications 55723 and 56305 for family 17h, 56665 for 19h, 57647
for Zen 4, 58455 for Zen 5), Intel's 64 and IA-32 Architectures Optimization Reference
Manual (248966), Agner Fog's microarchitecture manual and instruction tables, uops.info. The slots
of `vdpbf16ps` are measured, on Emerald Rapids and Zen 5.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Core:
    """Throughput of one core; a wider instruction takes several turns of a unit.

    Attributes:
        multiply_adds: units that multiply and add vectors.
        multiply_add_bytes: width of each.
        loads: vector loads started in a cycle.
        load_bytes: width of each.
        stores: vector stores started in a cycle.
        store_bytes: width of each.
        width: instructions (fused micro-operations) that the front end delivers in a cycle.
        latency: cycles from a fused multiply-add to one that needs its sum.
        slots: of a multiply-add unit that instructions take, by mnemonic, where they take other
            numbers than `tilewise.kernels.instructions` declares.
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


_TWO_PRODUCTS = {"mul.i32": 2}  # of 16 bits, of which a 32-bit multiplication is made
_HASWELL = Core(2, 32, 2, 32, 1, 32, 4, latency=5, slots=_TWO_PRODUCTS)
_SKYLAKE = Core(2, 32, 2, 32, 1, 32, 4, slots=_TWO_PRODUCTS)
_SKYLAKE_SERVER = Core(2, 64, 2, 64, 1, 64, 4, slots=_TWO_PRODUCTS)
# Clients of these families join two 256-bit units for a 512-bit multiply-add.
_SUNNY_COVE = Core(2, 32, 2, 64, 1, 64, 5, slots=_TWO_PRODUCTS)
_SUNNY_COVE_SERVER = Core(2, 64, 2, 64, 1, 64, 5, slots=_TWO_PRODUCTS)
_GOLDEN_COVE = Core(2, 32, 3, 32, 2, 32, 6, slots=_TWO_PRODUCTS)
_GOLDEN_COVE_SERVER = Core(2, 64, 2, 64, 1, 64, 6, slots={**_TWO_PRODUCTS, "vdpbf16ps": 4})

_CORES = {
    "znver1": Core(2, 16, 2, 16, 1, 16, 6, latency=5),
    "znver2": Core(2, 32, 2, 32, 1, 32, 6, latency=5),
    "znver3": Core(2, 32, 2, 32, 1, 32, 6),
    "znver4": Core(2, 32, 2, 32, 1, 32, 6),
    "znver5": Core(2, 64, 2, 64, 1, 64, 8),
    **dict.fromkeys(("haswell", "broadwell"), _HASWELL),
    "skylake": _SKYLAKE,
    **dict.fromkeys(("skylake-avx512", "cascadelake", "cooperlake"), _SKYLAKE_SERVER),
    **dict.fromkeys(("icelake-client", "tigerlake", "rocketlake"), _SUNNY_COVE),
    "icelake-server": _SUNNY_COVE_SERVER,
    **dict.fromkeys(("alderlake", "raptorlake", "meteorlake"), _GOLDEN_COVE),
    **dict.fromkeys(("sapphirerapids", "emeraldrapids", "graniterapids"), _GOLDEN_COVE_SERVER),
}
DEFAULT = Core(2, 64, 2, 64, 1, 64, 4, slots=_TWO_PRODUCTS)
"""For a processor that is not in the table: two multiply-adds and two loads of any width,
as cores have had since 2013, and the narrowest front end of those above."""


def is_intel(cpu: str) -> bool:
    """Whether the table has the processor, as one of Intel's."""
    return cpu in _CORES and not cpu.startswith("znver")


def is_golden_cove_server(cpu: str) -> bool:
    """Whether a processor is one of Intel's servers with cores of the Golden Cove family."""
    return _CORES.get(cpu) is _GOLDEN_COVE_SERVER


def core_of(cpu: str) -> tuple[Core, bool]:
    """The core of a processor, and whether it is in the table (else it is `DEFAULT`)."""
    return _CORES.get(cpu, DEFAULT), cpu in _CORES
