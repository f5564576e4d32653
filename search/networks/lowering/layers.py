"""Contractions of a network: compiled schedules with weights packed at load."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.native import Executable, lower
from tilewise.kernels.native.executable import KernelCall as Bound
from tilewise.kernels.native.macrokernel.parameters import Addresses, names_of
from tilewise.kernels.native.programs.steps import Kernel, Pass, ProgramStep
from tilewise.kernels.oracle.operands import NUMPY_TYPES, Operands, operand_type
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target
from tilewise.search.errors import NetworkError
from tilewise.search.networks.lowering.kernel_calls import KernelCalls, Memory, pass_step, refused
from tilewise.search.networks.lowering.memory import Buffers, arena_bytes
from tilewise.search.networks.plan import Plan, PlannedNode, PlannedUse
from tilewise.search.networks.planning import COPIED, UNKNOWN
from tilewise.search.networks.variants import plain

Array = NDArray[Any]
_TRANSPOSED = {
    "B": {True: (3, 2, 0, 1), False: (2, 3, 1, 0)},
    "C": {True: (0, 3, 1, 2), False: (0, 2, 3, 1)},
}
"""Axes of a filter and of an image of the other layout, for channels first and last."""


@dataclass
class Layers:
    """Makes the kernel calls of contractions; `weights` are constants by node and role."""

    plan: Plan
    target: Target
    weights: Mapping[tuple[int, str], Array]
    buffers: Buffers
    _made: dict[tuple[str, str], Executable] = field(default_factory=dict)

    def calls(self, number: int) -> KernelCalls:
        """Return the work of a node.

        Raises NetworkError without a schedule or an operand, or if code generation fails.
        """
        node = self.plan.nodes[number]
        executable = self._executable(node)
        problem = executable.problem
        constants = self._constants(number, executable)
        uses = {use.role: use for use in (*node.makes, *node.reads)}
        self._check(node, problem, constants, uses)
        reads = {role: self.buffers.of(use.tensor, use.layout) for role, use in uses.items()}
        made, before = self._result(number, node)
        scratch = {name: self.buffers.scratch(size)
                   for name, size in executable.scratch_bytes.items()
                   if not (name == "B" and executable.macro_kernel.prepare)}  # fmt: skip
        layer = _Layer(executable, constants, {**reads, "C": made}, scratch, before)
        return KernelCalls(
            problem.canonical, number, tuple(reads[use.role] for use in node.reads),
            (made, *scratch.values()), layer.steps, layer.weights_bytes,
        )  # fmt: skip

    def _executable(self, node: PlannedNode) -> Executable:
        place = f"{node.op} at {node.where.rpartition(' ')[0]}"
        if node.problem is None or node.schedule is None:
            raise NetworkError(f"{place}: {node.reason or UNKNOWN}; plan it with more --trials")
        if node.reason == COPIED:
            raise refused(node, f"is planned around: {node.reason}")
        if any(use.layout.block for use in (*node.reads, *node.makes)):
            raise NetworkError(f"{place}: its channels are in blocks, as version 0.1 planned; "
                               "make the plan again")  # fmt: skip
        key = node.problem, node.schedule.hash
        if key not in self._made:
            schedule = Schedule.from_json(list(node.schedule.steps))
            try:
                self._made[key] = lower(parse_problem(node.problem), schedule, self.target)
            except KernelsError as error:
                raise NetworkError(f"{place}: {error}; make the plan again") from error
        return self._made[key]

    def _constants(self, number: int, executable: Executable) -> Operands:
        """Return constant operands as the kernel reads them."""
        problem, found = executable.problem, self.plan.nodes[number].found
        assert found is not None
        is_first = problem.has_channels_first
        is_turned = parse_problem(found.problem).has_channels_first != is_first
        constants = {role: self.weights[number, role] for role in problem.operand_shapes
                     if (number, role) in self.weights}  # fmt: skip
        for role in ("B", "C"):
            if is_turned and role in constants:
                transposed = constants[role].transpose(_TRANSPOSED[role][is_first])
                constants[role] = np.ascontiguousarray(transposed)
        return constants

    def _check(
        self, node: PlannedNode, problem: Problem, constants: Operands, uses: dict[str, PlannedUse]
    ) -> None:
        """Require each operand to be available, whole and contiguous."""
        for role, shape in problem.operand_shapes.items():
            size = prod(shape) * np.dtype(NUMPY_TYPES[operand_type(problem, role)]).itemsize
            had = None
            if role in constants:
                had = constants[role].nbytes
            elif role in uses:
                had = self.buffers.sizes[self.buffers.of(uses[role].tensor, uses[role].layout)]
            if had != size:
                reason = "is not known" if had is None else f"has {had} bytes, not {size}"
                raise refused(node, f"has an operand {role} that {reason}")

    def _result(self, number: int, node: PlannedNode) -> tuple[int, int | None]:
        """Return the buffer of C, and what has to be copied to it first.

        Sums start in the memory of the initial tensor if nothing else needs it.
        """
        (makes,) = node.makes
        start = next((use for use in node.reads if use.role == "C"), None)
        if start is None:
            return self.buffers.of(makes.tensor, makes.layout), None
        given = self.buffers.of(start.tensor, start.layout)
        if self._is_needed(start, number):
            return self.buffers.of(makes.tensor, makes.layout), given
        self.buffers.share(makes.tensor, makes.layout, given)
        return given, None

    def _is_needed(self, use: PlannedUse, number: int) -> bool:
        """Return whether a tensor is used again at or after a node, or by the caller."""
        buffer = self.buffers.of(use.tensor, use.layout)
        readers = [
            (i, other)
            for i, node in enumerate(self.plan.nodes)
            for other in node.reads
            if i >= number and self.buffers.known(other.tensor, other.layout) == buffer
        ]
        outside = [
            self.buffers.known(i, layout)
            for i, tensor in enumerate(self.plan.tensors)
            if tensor.is_result or tensor.is_given
            for layout in (tensor.layout, plain(tensor.shape))
        ]
        return len(readers) > 1 or buffer in outside


@dataclass(frozen=True)
class _Layer:
    """A contraction without memory."""

    executable: Executable
    constants: Operands
    buffers: dict[str, int]
    scratch: dict[str, int]
    before: int | None

    @property
    def _packs_ahead(self) -> bool:
        return self.executable.macro_kernel.prepare is not None

    @property
    def weights_bytes(self) -> int:
        """Bytes of panels, and of constants that are read unpacked."""
        panels = self.executable.scratch_bytes["B"] if self._packs_ahead else 0
        return arena_bytes(panels, *(self.constants[role].nbytes for role in self._read()))

    def _read(self) -> list[str]:
        """Return the roles of constants that a run reads: not B once it is packed."""
        return [role for role in self.constants if not (role == "B" and self._packs_ahead)]

    def steps(self, memory: Memory) -> list[ProgramStep]:
        """Return the kernel's call, after a copy of the initial sums if there is one."""
        operands: Operands = dict(self.constants)
        operands |= {role: memory.weights.keep(self.constants[role]) for role in self._read()}
        start = None if self.before is None else memory.at(self.before)
        if "C" in operands:
            start = memory.place(operands.pop("C").ctypes.data)
        problem = self.executable.problem
        for role in problem.operand_shapes:
            if role not in operands:
                memory_of_it = memory.bytes_of(self.buffers[role])
                kind = NUMPY_TYPES[operand_type(problem, role)]
                operands[role] = memory_of_it.view(kind).reshape(problem.operand_shapes[role])
        scratch = {name: memory.bytes_of(buffer) for name, buffer in self.scratch.items()}
        if self._packs_ahead:
            scratch["B"] = memory.weights.take(self.executable.scratch_bytes["B"])
        step = self._step(self.executable.bind(operands, scratch), memory)
        if start is None:
            return [step]
        ends = start, memory.place(operands["C"].ctypes.data)
        return [pass_step(Pass("copy"), memory, ends, operands["C"].nbytes // 4), step]

    def _step(self, bound: Bound, memory: Memory) -> ProgramStep:
        """Return the kernel's call, without unpacked weights."""
        rows = []
        for given in self.executable.given(bound):
            held = given | {"b": 0} if self._packs_ahead else given
            rows.append(tuple(
                memory.place(value) if value and name in names_of(Addresses) else value
                for name, value in held.items()
            ))  # fmt: skip
        does = Kernel(self.executable.problem, self.executable.schedule)
        return ProgramStep(does, tuple(rows))
