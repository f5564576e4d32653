"""The least cycles that a core can take for an iteration, by what the loop is made of."""

from dataclasses import dataclass

from tilewise.kernels.instructions import Instruction
from tilewise.kernels.native.assembly.instructions import Counts
from tilewise.kernels.native.microkernels.microkernel import KernelSpec
from tilewise.kernels.target.cores import Core, core_of

_UNITS = {
    "multiply-adds": "the multiply-add units bind",
    "loads": "loads bind",
    "stores": "stores bind",
    "front end": "the front end binds",
}


@dataclass(frozen=True)
class Bound:
    """The least cycles of an iteration, by resource, and what follows.

    Attributes:
        cycles: by resource.
        binds: the resource that takes most.
        peak_share: the largest share of the multiply-add peak that the loop can reach.
        latency: cycles that an accumulator's sums wait for one another. Not a part of the
            bound: the end of one call overlaps with the start of the next.
        core: what the core is taken for.
        declared: whether the processor is in the table of cores.
    """

    cycles: dict[str, float]
    binds: str
    peak_share: float
    latency: float
    core: Core
    declared: bool


def bound(counts: Counts, spec: KernelSpec, cpu: str) -> Bound:
    """The least cycles that an iteration can take on a core."""
    core, declared = core_of(cpu)
    width, one = counts.vector_bytes, spec.how.instruction
    slots, is_product = one.slots_on(core), one.b == "i32"
    operations = slots if is_product else 1
    multiply = counts.multiply_adds * slots * max(1.0, width / core.multiply_add_bytes)
    wide = max(1.0, width / core.load_bytes)
    spilled_stores = max(1.0, width / core.store_bytes)
    # A comparison and its jump are delivered as one.
    delivered = counts.instructions - 1 + counts.multiply_adds * (operations - 1)
    waits = 0 if counts.vector_spills else counts.chain * (1 if is_product else core.latency)
    cycles = {
        "multiply-adds": multiply / core.multiply_adds,
        "loads": (counts.vector_loads * wide + counts.broadcasts + counts.other_loads) / core.loads,
        "stores": counts.stores * spilled_stores / core.stores,
        "front end": delivered / core.width,
    }
    binds = max(cycles, key=lambda name: cycles[name])
    share = cycles["multiply-adds"] / cycles[binds] * _share_of_fastest(one, core)
    return Bound(cycles, binds, share, float(waits), core, declared)


def _share_of_fastest(one: Instruction, core: Core) -> float:
    """The rate of an instruction over that of the fastest for its type, of both it and widening."""
    if one.c == "i32":  # products of single i32 are slower
        return 1.0
    return min(1.0, one.k / one.slots_on(core))


def bound_text(limit: Bound, cpu: str) -> str:
    """What binds the loop, and what the core is taken for, in lines."""
    cycles = ", ".join(f"{name} {value:.1f}" for name, value in limit.cycles.items() if value)
    core = limit.core
    if limit.latency > limit.cycles[limit.binds]:
        cycles += (
            f"\nlatency: sums wait {limit.latency:.1f} cycles an iteration for one another, "
            "unless calls overlap; more accumulators would hide it"
        )
    known = "" if limit.declared else " (not in the table of cores: a conservative one is taken)"
    return (
        f"cycles an iteration: {cycles}\n"
        f"bound: at most {limit.peak_share:.1%} of the multiply-add peak; {_UNITS[limit.binds]}\n"
        f"core: {cpu}{known}: {core.multiply_adds} multiply-adds of "
        f"{core.multiply_add_bytes} bytes, {core.loads} loads of {core.load_bytes} bytes, "
        f"{core.width} instructions a cycle"
    )
