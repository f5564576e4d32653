"""Time the passes of a network: pools, sums, pads, rows, transpositions, and copies.

The network's own code is timed, hot, since the layer before has just made what a pass reads.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from math import prod
from statistics import median

import numpy as np

from tilewise.kernels.mlir.frontend.program import WEIGHT_TYPES, Action, ModuleProgram, Outline
from tilewise.kernels.native.programs.steps import NetworkProgram, ProgramStep
from tilewise.kernels.native.threads.pinning import pin, usable_processors
from tilewise.kernels.oracle.operands import to_bf16
from tilewise.kernels.target import resolve
from tilewise.kernels.target.model import Target
from tilewise.search.errors import NetworkError
from tilewise.search.networks.lowering.kernel_calls import KernelCalls, Memory
from tilewise.search.networks.lowering.memory import (
    Arena,
    Buffers,
    Lifetime,
    PlacedBuffers,
    arena_bytes,
)
from tilewise.search.networks.lowering.non_gemm import conversion_of, copy_calls
from tilewise.search.networks.lowering.rows import NonGemmOps
from tilewise.search.networks.plan import Plan, PlannedPass
from tilewise.search.networks.standalone.files import load_steps
from tilewise.search.networks.variants import TensorLayout
from tilewise.search.timing.measure import measure

BUDGET_S = 0.04
TOGETHER = 16
"""Runs in one call, as a network has many passes in one."""
NAME = "tilewise_pass"


@dataclass
class PassTimes:
    """Times of passes on this machine, each measured once."""

    outline: Outline
    target: Target
    _known: dict[tuple[ProgramStep, ...], float] = field(default_factory=dict)

    def of(self, plan: Plan) -> Iterator[PlannedPass]:
        """Yield the passes of a plan that can run, in order.

        The plan's conversions decide which tensors passes write; its times do not matter.
        """
        program, buffers = ModuleProgram(self.outline, _constants(self.outline)), Buffers(plan)
        passes = NonGemmOps(plan, program, buffers)
        for number, action in enumerate(self.outline.actions):
            nodes = passes.nodes(number)
            if not passes.is_grouped(number):
                is_none = action == Action() or action.refused
                if plan.nodes[number].kind == "contraction" or is_none:
                    continue
                before = passes.single.pad_before(number)
                nodes = (number,) if before is None else (before, number)
            with suppress(NetworkError):
                work = passes.calls(number)
                if work is not None:
                    yield PlannedPass(nodes, work.label, self._time_us(work, buffers))

    def _time_us(self, work: KernelCalls, buffers: Buffers) -> float:
        memory = _memory(work, buffers.sizes, self.target.threads)
        steps = tuple(work.steps(memory))
        if steps not in self._known:
            self._known[steps] = _steps_us(steps, memory, self.target)
        return self._known[steps]


@cache
def conversion_us(
    target: str, shape: tuple[int, ...], dtype: str, made: TensorLayout, wanted: TensorLayout
) -> float:
    """Return microseconds of a copy on a target's threads, measured once; infinity if impossible.

    Raises NetworkError if it cannot be compiled here.
    """
    found = conversion_of(shape, dtype, made, wanted)
    if found is None:
        return float("inf")
    conversion, size = found
    work, here = copy_calls("copy", None, conversion, size, 0, 1), resolve(target)
    sizes = [size * prod(one) for one in (conversion.source_shape, conversion.target_shape)]
    memory = _memory(work, sizes, here.threads)
    return _steps_us(tuple(work.steps(memory)), memory, here)


def _steps_us(steps: tuple[ProgramStep, ...], memory: Memory, target: Target) -> float:
    """Return the median microseconds of steps, warm and, with one thread, pinned."""
    program = NetworkProgram(NAME, target, steps * TOGETHER, memory.placed.size)
    network = load_steps(program, memory.weights.bytes)
    halves = network.activations[: memory.placed.size].view(np.uint16)
    random = np.random.default_rng(0)
    # Of two such numbers side by side the second is the upper half of an f32 as well.
    halves[...] = to_bf16(random.standard_normal(len(halves), np.float32))

    def run(times: int) -> None:
        for _ in range(times):
            network()

    run(1)
    before = pin({usable_processors()[0]}) if target.threads == 1 else None
    try:
        samples, _ = measure(run, BUDGET_S, threads=target.threads)
    finally:
        if before is not None:
            pin(before)
    return median(samples.times) * 1e6 / TOGETHER


def _constants(outline: Outline) -> dict[tuple[int, str], np.ndarray]:
    """Return ones for all constants of passes, since their values do not affect times."""
    one = {"bf16": 0x3F80}
    return {
        (held.node, held.role): np.full(
            held.shape, one.get(held.dtype, 1), WEIGHT_TYPES[held.dtype]
        )
        for held in outline.constants
        if outline.graph.nodes[held.node].found is None
    }


def _memory(work: KernelCalls, buffers: Sequence[int], threads: int) -> Memory:
    """Return memory with the buffers of one work side by side; `buffers` are sizes."""
    used = {*work.reads, *work.writes}
    sizes = [size if number in used else 0 for number, size in enumerate(buffers)]
    offsets = [arena_bytes(*sizes[:number]) for number in range(len(sizes))]
    total = arena_bytes(*sizes)
    placed = PlacedBuffers(tuple(Lifetime(size, 0, 0) for size in sizes), tuple(offsets), total)
    return Memory(Arena(total), placed, Arena(work.weights_bytes), threads)
