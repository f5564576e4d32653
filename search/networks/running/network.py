"""A network in memory: loaded from a plan and its module, run by one call of a chain."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.errors import TargetError
from tilewise.kernels.mlir.frontend.graph import TensorUse
from tilewise.kernels.mlir.frontend.program import ModuleProgram
from tilewise.kernels.mlir.frontend.read import read_program
from tilewise.kernels.native.passes.passes import Chain, chain, pass_of
from tilewise.kernels.native.programs.steps import ProgramStep
from tilewise.kernels.native.threads.thread_pool import thread_pool
from tilewise.kernels.oracle.operands import poison
from tilewise.kernels.target import resolve
from tilewise.kernels.target.model import Target
from tilewise.search.errors import NetworkError
from tilewise.search.networks.plan import Plan, PlannedUse
from tilewise.search.networks.running.layers import Layers
from tilewise.search.networks.running.memory import (
    Arena,
    Buffers,
    Lifetime,
    PlacedBuffers,
    placed,
    static,
    type_of,
)
from tilewise.search.networks.running.rows import PassWorks
from tilewise.search.networks.running.works import Memory, NetworkWork, ThreadCall, refused
from tilewise.search.networks.variants import plain


def check(plan: Plan, program: ModuleProgram) -> None:
    """Raise NetworkError for a plan of another module, or an unsupported op."""
    _check_same(plan, program)
    check_ops(program)


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
        told = f"{len(graph.nodes)} and {len(graph.tensors)}; make the plan again"
        raise NetworkError(
            f"the plan has {counts[0]} nodes and {counts[1]} tensors, the module {told}"
        )
    for number, (node, own) in enumerate(zip(plan.nodes, graph.nodes, strict=True)):
        first = None if node.found is None else node.found.problem
        second = None if own.found is None else own.found.with_accuracy(plan.accuracy).problem
        uses = (*node.reads, *node.makes), (*own.reads, *own.makes)
        if (node.op, first) != (own.op, second) or list(map(_told, uses[0])) != list(
            map(_told, uses[1])
        ):
            raise NetworkError(f"node {number} of the plan is {first or node.op}, that of the "
                               f"module {second or own.op}; make the plan again")  # fmt: skip
    for number, (tensor, its) in enumerate(zip(plan.tensors, graph.tensors, strict=True)):
        if (tensor.shape, tensor.dtype, tensor.is_given, tensor.is_result) != (
            its.shape, its.dtype, its.is_given, its.is_result
        ):  # fmt: skip
            raise NetworkError(f"tensor {number} of the plan is not the module's; make it again")


def _told(use: TensorUse | PlannedUse) -> tuple[object, ...]:
    return use.tensor, use.shape, use.role


Array = NDArray[Any]


@dataclass(frozen=True)
class LayerTime:
    """The time of a part of a network."""

    label: str
    node: int | None
    time_us: float


class Network:
    """A network that runs in this process, in one thread of the caller at a time.

    With `threads` above one the process's thread pool helps. Its arrays and code live as long as it
    does. Raises NetworkError for a plan of another module or machine, or an unsupported op.
    """

    def __init__(self, plan: Plan, program: ModuleProgram, *, has_huge_pages: bool = True) -> None:
        check(plan, program)
        try:
            target = resolve(plan.target)
        except TargetError as error:
            raise NetworkError(f"{error}; make the plan here") from error
        self.plan, self._outline, self._target = plan, program.outline, target
        self._buffers = Buffers(plan)
        works = list(_works(plan, program, self._buffers, Layers(
            plan, target, program.weights, self._buffers)))  # fmt: skip
        results = [self._buffers.of(one.tensor, plain(static(plan, one.tensor)))
                   for one in program.outline.results]  # fmt: skip
        self.placed = _placed(works, self._buffers, results)
        arena = partial(Arena, has_huge_pages=has_huge_pages)
        weights = arena(sum(one.weights_bytes for one in works))
        self.memory = Memory(arena(self.placed.size), self.placed, weights, target.threads)
        self._works = works
        self._inputs = [self._array(one, None) for one in program.outline.arguments]
        self._results = [self._array(one.tensor, one.shape) for one in program.outline.results]
        self._chains = Chains(works, self.memory)

    @classmethod
    def load(cls, plan: Plan, module: bytes) -> "Network":
        """Load the network of a plan and its module, as text or bytecode.

        Raises ModuleError for an unreadable module or missing weights, NetworkError as the class
        does.
        """
        return cls(plan, read_program(module))

    @property
    def inputs(self) -> tuple[Array, ...]:
        """Where the arguments are: fill them, call the network, and read `results`."""
        return tuple(self._inputs)

    @property
    def results(self) -> tuple[Array, ...]:
        """The results until the next run."""
        return tuple(self._results)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all works, in order."""
        return tuple(work.label for work in self._works)

    @property
    def steps(self) -> tuple[ProgramStep, ...]:
        """All calls in order, for another process."""
        return tuple(self._chains.steps)

    @property
    def target(self) -> Target:
        """The processor and number of threads."""
        return self._target

    def run(self, *arguments: Array) -> tuple[Array, ...]:
        """Return new arrays with the results; raise NetworkError for unsuitable arguments."""
        if len(arguments) != len(self._inputs):
            raise NetworkError(f"{len(arguments)} arguments; the network takes {len(self._inputs)}")
        for number, (given, held) in enumerate(zip(arguments, self._inputs, strict=True)):
            if given.shape != held.shape or given.dtype != held.dtype:
                raise NetworkError(f"argument {number} is {given.dtype}{list(given.shape)}, not "
                                   f"{held.dtype}{list(held.shape)}")  # fmt: skip
            held[...] = given
        self()
        return tuple(one.copy() for one in self._results)

    def __call__(self) -> None:
        """Compute `results` of `inputs` in one call of compiled code, without allocation."""
        self._chains.run()

    def times(self, rounds: int) -> tuple[LayerTime, ...]:
        """Return the time of each part, called alone, which adds about a microsecond each."""
        taken: list[list[float]] = [[] for _ in self._works]
        for _ in range(rounds):
            for number, times in enumerate(taken):
                begin = time.perf_counter()
                self._chains.run_one(number)
                times.append(1e6 * (time.perf_counter() - begin))
        return tuple(
            LayerTime(work.label, work.node, median(times))
            for work, times in zip(self._works, taken, strict=True)
        )

    def poison(self) -> None:
        """Fill the memory of activations, except halos, with a pattern of no right result."""
        kept = [self.memory.bytes_of(one).copy() for one in sorted(self._buffers.halos)]
        poison(self.memory.activations.bytes)
        for number, held in zip(sorted(self._buffers.halos), kept, strict=True):
            self.memory.bytes_of(number)[...] = held

    def _array(self, tensor: int, shape: tuple[int, ...] | None) -> Array:
        """Return a plain tensor's memory."""
        sizes = static(self.plan, tensor)
        held = self.memory.bytes_of(self._buffers.of(tensor, plain(sizes)))
        return held.view(type_of(self.plan, tensor)).reshape(sizes if shape is None else shape)


def _works(
    plan: Plan, program: ModuleProgram, buffers: Buffers, layers: Layers
) -> Iterator[NetworkWork]:
    """Yield all works in order; each copy follows the tensor that it copies."""
    passes = PassWorks(plan, program, buffers)

    def copies(tensors: Sequence[int], node: int | None) -> Iterator[NetworkWork]:
        for one in plan.conversions:
            if one.tensor in tensors:
                yield passes.others.conversion(one.tensor, one.layout, node)

    given = [i for i, tensor in enumerate(plan.tensors) if tensor.is_given]
    for tensor in given:
        buffers.made(tensor)
    yield from copies(given, None)

    for number, node in enumerate(plan.nodes):
        is_layer = node.kind == "contraction"
        work = layers.work(number) if is_layer else passes.work(number)
        if work is not None:
            yield work
        for one in passes.nodes(number):
            yield from copies([use.tensor for use in plan.nodes[one].makes], one)


def _placed(
    works: Sequence[NetworkWork], buffers: Buffers, results: Sequence[int]
) -> PlacedBuffers:
    """Place buffers for the steps from their first write to their last use."""
    end = len(works)
    given = [i for i, tensor in enumerate(buffers.plan.tensors) if tensor.is_given]
    first = {buffers.made(tensor): -1 for tensor in given}
    last = dict.fromkeys((*first, *results), end)  # arguments stay for another run
    for step, work in enumerate(works):
        for buffer in (*work.reads, *work.writes):
            first.setdefault(buffer, step)
            last[buffer] = max(last.get(buffer, step), step)
    for buffer in buffers.halos:
        first[buffer], last[buffer] = -1, end
    return placed([
        Lifetime(size, first.get(i, 0), last.get(i, 0)) for i, size in enumerate(buffers.sizes)
    ])  # fmt: skip


class Chains:
    """The calls of a network as one table per thread."""

    def __init__(self, works: Sequence[NetworkWork], memory: Memory) -> None:
        self._threads = memory.threads
        self.steps: list[ProgramStep] = []
        calls, ends = list[ThreadCall](), [0]
        for work in works:
            for call in work.calls(memory):
                calls += [call] if call.meets else [call, *self._meeting()]
                self.steps += [call.step] if call.step is not None else []
            ends.append(len(calls))
        nothing = pass_of("nothing").entry
        self._tables = [
            np.array([
                (call.entry, call.parameters[thread]) if thread < len(call.parameters)
                else (nothing, 0) for call in calls
            ] or [(nothing, 0)], np.int64)
            for thread in range(self._threads)
        ]  # fmt: skip
        self._kept = calls
        parts = [(0, len(calls)), *pairwise(ends)]
        self._rows = [self._range(first, end) for first, end in parts]
        self._entry: int = chain().address
        self._function = Chain(self._entry)

    def run(self) -> None:
        """Run all calls."""
        self._run(0)

    def run_one(self, number: int) -> None:
        """Run the calls of one work."""
        self._run(number + 1)

    def _run(self, number: int) -> None:
        addresses = self._rows[number][1]
        if self._threads == 1:
            self._function(addresses[0])
        else:
            thread_pool(self._threads).run(self._entry, addresses)

    def _range(self, first: int, end: int) -> tuple[Array, tuple[int, ...]]:
        """Return the parameters of each thread's chain, and their addresses."""
        table = np.array([[one.ctypes.data, first, end] for one in self._tables], np.int64)
        return table, tuple(row.ctypes.data for row in table)

    def _meeting(self) -> list[ThreadCall]:
        """Return a barrier if there are several threads."""
        if self._threads == 1:
            return []
        words = np.array([thread_pool(self._threads).barrier, self._threads], np.int64)
        address: int = words.ctypes.data
        return [ThreadCall(pass_of("barrier").entry, (address,) * self._threads, words)]
