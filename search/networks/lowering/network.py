"""Lower a plan and its module to the steps of a network and its packed weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewise.kernels.errors import TargetError
from tilewise.kernels.mlir.frontend.program import ModuleProgram
from tilewise.kernels.native.programs.steps import ProgramStep
from tilewise.kernels.target import resolve
from tilewise.search.errors import NetworkError
from tilewise.search.networks.lowering.kernel_calls import KernelCalls, Memory, refused
from tilewise.search.networks.lowering.layers import Layers
from tilewise.search.networks.lowering.memory import (
    Arena,
    Buffers,
    Lifetime,
    PlacedBuffers,
    placed,
    static,
    type_of,
)
from tilewise.search.networks.lowering.rows import NonGemmOps
from tilewise.search.networks.plan import Plan, PlannedTensor
from tilewise.search.networks.variants import plain


def check_ops(program: ModuleProgram) -> None:
    """Raise NetworkError for the first unsupported op of a program."""
    outline = program.outline
    for node, action in zip(outline.graph.nodes, outline.actions, strict=True):
        if action.refused:
            is_pool = node.kind == "pool"  # whose reason says that it multiplies nothing
            raise refused(node, action.refused if is_pool else node.reason or action.refused)


def _check_same(plan: Plan, program: ModuleProgram) -> None:
    graph = program.outline.graph
    counts = len(plan.nodes), len(plan.tensors)
    if counts != (len(graph.nodes), len(graph.tensors)):
        found = f"{len(graph.nodes)} and {len(graph.tensors)}; make the plan again"
        raise NetworkError(
            f"the plan has {counts[0]} nodes and {counts[1]} tensors, the module {found}"
        )
    for number, (node, own) in enumerate(zip(plan.nodes, graph.nodes, strict=True)):
        first = None if node.found is None else node.found.problem
        second = None if own.found is None else own.found.with_accuracy(plan.accuracy).problem
        uses = (*node.reads, *node.makes), (*own.reads, *own.makes)
        facts = [[(use.tensor, use.shape, use.role) for use in some] for some in uses]
        if (node.op, first) != (own.op, second) or facts[0] != facts[1]:
            raise NetworkError(f"node {number} of the plan is {first or node.op}, that of the "
                               f"module {second or own.op}; make the plan again")  # fmt: skip
    for number, (tensor, its) in enumerate(zip(plan.tensors, graph.tensors, strict=True)):
        if tensor != PlannedTensor(**vars(its), layout=tensor.layout):
            raise NetworkError(f"tensor {number} of the plan is not the module's; make it again")


@dataclass(frozen=True)
class NetworkPart:
    """A layer, pass or copy of a network; `end` is the number of steps up to its end."""

    label: str
    node: int | None
    end: int


@dataclass(frozen=True)
class NetworkArray:
    """An argument or result; `offset` is that of its first byte in the activations."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


class LoweredNetwork:
    """A planned network as steps over two memories, with packed weights.

    Raises NetworkError for a plan of another module or machine, or an unsupported op.

    Attributes:
        parts: labels of all kernel calls, in order, with the steps of each.
        halos: offset and size of what is zero and never written.
    """

    def __init__(self, plan: Plan, program: ModuleProgram) -> None:
        _check_same(plan, program)
        check_ops(program)
        try:
            self.target = resolve(plan.target)
        except TargetError as error:
            raise NetworkError(f"{error}; make the plan here") from error
        self.plan, self._buffers = plan, Buffers(plan)
        calls = list(_all_calls(plan, program, self._buffers, Layers(
            plan, self.target, program.weights, self._buffers)))  # fmt: skip
        results = [self._buffers.of(one.tensor, plain(static(plan, one.tensor)))
                   for one in program.outline.results]  # fmt: skip
        self.placed = _placed(calls, self._buffers, results)
        weights = Arena(sum(one.weights_bytes for one in calls))
        memory = Memory(Arena(self.placed.size), self.placed, weights, self.target.threads)
        steps, parts = list[ProgramStep](), list[NetworkPart]()
        for one in calls:
            steps += one.steps(memory)
            parts.append(NetworkPart(one.label, one.node, len(steps)))
        self.steps, self.parts, self.weights = tuple(steps), tuple(parts), weights.bytes
        self.inputs = [self._array(one, None) for one in program.outline.arguments]
        self.results = [self._array(one.tensor, one.shape) for one in program.outline.results]
        self.halos = [(self.placed.offsets[one], self._buffers.sizes[one])
                      for one in sorted(self._buffers.halos)]  # fmt: skip

    def _array(self, tensor: int, shape: tuple[int, ...] | None) -> NetworkArray:
        """Return the place of a plain tensor."""
        sizes = static(self.plan, tensor)
        offset = self.placed.offsets[self._buffers.of(tensor, plain(sizes))]
        dtype = str(np.dtype(type_of(self.plan, tensor)))
        return NetworkArray(offset, sizes if shape is None else shape, dtype)


def _all_calls(
    plan: Plan, program: ModuleProgram, buffers: Buffers, layers: Layers
) -> Iterator[KernelCalls]:
    """Yield all kernel calls in order; each copy follows the tensor that it copies."""
    passes = NonGemmOps(plan, program, buffers)

    def copies(tensors: Sequence[int], node: int | None) -> Iterator[KernelCalls]:
        for one in plan.conversions:
            if one.tensor in tensors:
                yield passes.single.conversion(one.tensor, one.layout, node)

    given = [i for i, tensor in enumerate(plan.tensors) if tensor.is_given]
    for tensor in given:
        buffers.made(tensor)
    yield from copies(given, None)

    for number, node in enumerate(plan.nodes):
        is_layer = node.kind == "contraction"
        made = layers.calls(number) if is_layer else passes.calls(number)
        if made is not None:
            yield made
        for one in passes.nodes(number):
            yield from copies([use.tensor for use in plan.nodes[one].makes], one)


def _placed(
    calls: Sequence[KernelCalls], buffers: Buffers, results: Sequence[int]
) -> PlacedBuffers:
    """Place buffers for the steps from their first write to their last use."""
    end = len(calls)
    given = [i for i, tensor in enumerate(buffers.plan.tensors) if tensor.is_given]
    first = {buffers.made(tensor): -1 for tensor in given}
    last = dict.fromkeys((*first, *results), end)  # arguments stay for another run
    for step, one in enumerate(calls):
        for buffer in (*one.reads, *one.writes):
            first.setdefault(buffer, step)
            last[buffer] = max(last.get(buffer, step), step)
    for buffer in buffers.halos:
        first[buffer], last[buffer] = -1, end
    return placed([
        Lifetime(size, first.get(i, 0), last.get(i, 0)) for i, size in enumerate(buffers.sizes)
    ])  # fmt: skip
