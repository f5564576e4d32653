"""Time the passes of a network: pools, sums, pads, rows, transpositions.

The network's own code is timed, hot, since the layer before has just made what a pass reads.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from tilewise.kernels.mlir.frontend.program import WEIGHT_TYPES, Action, ModuleProgram, Outline
from tilewise.kernels.native.programs.steps import ProgramStep
from tilewise.kernels.native.threads.pinning import pin, usable_processors
from tilewise.kernels.oracle.operands import to_bf16
from tilewise.kernels.target.model import Target
from tilewise.search.errors import NetworkError
from tilewise.search.networks.plan import Plan, PlannedPass
from tilewise.search.networks.running.memory import Arena, Buffers, Lifetime, PlacedBuffers, room
from tilewise.search.networks.running.network import Chains
from tilewise.search.networks.running.rows import PassWorks
from tilewise.search.networks.running.works import Memory, NetworkWork
from tilewise.search.timing.measure import measure

BUDGET_S = 0.04
TOGETHER = 16
"""Runs in one call of a chain, as a network has many passes in one."""
Steps = tuple[ProgramStep | None, ...]


@dataclass
class PassTimes:
    """Times of passes on this machine, each measured once."""

    outline: Outline
    target: Target
    _known: dict[Steps, float] = field(default_factory=dict)

    @property
    def actions(self) -> tuple[Action, ...]:
        """The action of each node."""
        return self.outline.actions

    def of(self, plan: Plan) -> tuple[PlannedPass, ...]:
        """Return the passes of a plan that can run, in order.

        The plan's conversions decide which tensors passes write; its times do not matter.
        """
        program = ModuleProgram(self.outline, _constants(self.outline))
        buffers = Buffers(plan)
        return tuple(
            PlannedPass(nodes, work.label, self._time_us(work, buffers))
            for nodes, work in _works(plan, program, buffers)
        )

    def _time_us(self, work: NetworkWork, buffers: Buffers) -> float:
        memory = _memory(work, buffers, self.target.threads)
        calls = work.calls(memory)
        key = tuple(call.step for call in calls)
        if key not in self._known:
            halves = memory.activations.bytes.view(np.uint16)
            random = np.random.default_rng(0)
            # Of two such numbers side by side the second is the upper half of an f32 as well.
            halves[...] = to_bf16(random.standard_normal(len(halves), np.float32))
            made = replace(work, calls=lambda _memory: calls)
            self._known[key] = _timed(Chains([made] * TOGETHER, memory), memory.threads)
        return self._known[key]


def _works(
    plan: Plan, program: ModuleProgram, buffers: Buffers
) -> Iterator[tuple[tuple[int, ...], NetworkWork]]:
    """Yield each pass with its nodes."""
    passes = PassWorks(plan, program, buffers)
    for number, action in enumerate(program.outline.actions):
        nodes = passes.nodes(number)
        if not passes.is_grouped(number):
            if plan.nodes[number].kind == "contraction" or action == Action() or action.refused:
                continue
            before = passes.others.pad_before(number)
            nodes = (number,) if before is None else (before, number)
        try:
            work = passes.work(number)
        except NetworkError:
            continue
        if work is not None:
            yield nodes, work


def _constants(outline: Outline) -> dict[tuple[int, str], np.ndarray]:
    """Return ones for all constants, since their values do not affect times."""
    one = {"bf16": 0x3F80}
    return {
        (held.node, held.role): np.full(
            held.shape, one.get(held.dtype, 1), WEIGHT_TYPES[held.dtype]
        )
        for held in outline.constants
    }


def _memory(work: NetworkWork, buffers: Buffers, threads: int) -> Memory:
    """Return memory with the buffers of one work side by side."""
    used = {*work.reads, *work.writes}
    sizes = [size if number in used else 0 for number, size in enumerate(buffers.sizes)]
    offsets = [room(*sizes[:number]) if number in used else 0 for number in range(len(sizes))]
    total = room(*sizes)
    placed = PlacedBuffers(tuple(Lifetime(size, 0, 0) for size in sizes), tuple(offsets), total)
    return Memory(Arena(total), placed, Arena(work.weights_bytes), threads)


def _timed(chains: Chains, threads: int) -> float:
    """Return the microseconds of one of `TOGETHER` works."""

    def run(times: int) -> None:
        for _ in range(times):
            chains.run()

    run(1)
    before = pin({usable_processors()[0]}) if threads == 1 else None
    try:
        samples, _ = measure(run, BUDGET_S, threads=threads)
    finally:
        if before is not None:
            pin(before)
    return 1e6 * median(samples.times) / TOGETHER
