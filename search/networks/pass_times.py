"""Time the passes of a network: pools, sums, pads, rows, transpositions.

The network's own code is timed, hot, since the layer before has just made what a pass reads.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from tilewise.kernels.mlir.frontend.program import WEIGHT_TYPES, Action, ModuleProgram, Outline
from tilewise.kernels.native.programs.steps import NetworkProgram, ProgramStep
from tilewise.kernels.oracle.operands import to_bf16
from tilewise.kernels.target.model import Target
from tilewise.search.errors import NetworkError
from tilewise.search.networks.copy_times import hot_us
from tilewise.search.networks.lowering.kernel_calls import KernelCalls, Memory
from tilewise.search.networks.lowering.memory import (
    Arena,
    Buffers,
    Lifetime,
    PlacedBuffers,
    arena_bytes,
)
from tilewise.search.networks.lowering.rows import NonGemmOps
from tilewise.search.networks.plan import Plan, PlannedPass
from tilewise.search.networks.standalone.files import load_steps

TOGETHER = 16
"""Runs in one call, as a network has many passes in one."""
NAME = "tilewise_pass"


@dataclass
class PassTimes:
    """Times of passes on this machine, each measured once."""

    outline: Outline
    target: Target
    _known: dict[tuple[ProgramStep, ...], float] = field(default_factory=dict)

    def of(self, plan: Plan) -> tuple[PlannedPass, ...]:
        """Return the passes of a plan that can run, in order.

        The plan's conversions decide which tensors passes write; its times do not matter.
        """
        return tuple(self._each(plan))

    def _each(self, plan: Plan) -> Iterator[PlannedPass]:
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
        memory = _memory(work, buffers, self.target.threads)
        steps = tuple(work.steps(memory))
        if steps not in self._known:
            program = NetworkProgram(NAME, self.target, steps * TOGETHER, memory.placed.size)
            network = load_steps(program, memory.weights.bytes)
            halves = network.activations[: memory.placed.size].view(np.uint16)
            random = np.random.default_rng(0)
            # Of two such numbers side by side the second is the upper half of an f32 as well.
            halves[...] = to_bf16(random.standard_normal(len(halves), np.float32))
            self._known[steps] = hot_us(network, memory.threads) / TOGETHER
        return self._known[steps]


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


def _memory(work: KernelCalls, buffers: Buffers, threads: int) -> Memory:
    """Return memory with the buffers of one work side by side."""
    used = {*work.reads, *work.writes}
    sizes = [size if number in used else 0 for number, size in enumerate(buffers.sizes)]
    offsets = [
        arena_bytes(*sizes[:number]) if number in used else 0 for number in range(len(sizes))
    ]
    total = arena_bytes(*sizes)
    placed = PlacedBuffers(tuple(Lifetime(size, 0, 0) for size in sizes), tuple(offsets), total)
    return Memory(Arena(total), placed, Arena(work.weights_bytes), threads)
