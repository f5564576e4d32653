"""A schedule compiled for this machine: micro-kernel, macro-kernel, scratch, and bound calls."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.jit.loading import (
    CompiledKernels,
    MacroKernel,
    code_of,
    compile_kernels,
    load_macro_kernel,
    macro_kernel_code,
)
from tilewise.kernels.native.macrokernel.parameters import (
    BARRIER,
    COUNTERS,
    EXTRAS,
    PARTS,
    REPEAT,
    Addresses,
    bounds,
    names_of,
)
from tilewise.kernels.native.microkernels.microkernel import pieces_of
from tilewise.kernels.native.plan import Scratch, plan
from tilewise.kernels.nest import Nest
from tilewise.kernels.oracle.operands import (
    NUMPY_TYPES,
    Array,
    Operands,
    empty_aligned,
    operand_type,
)
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target

if TYPE_CHECKING:
    from tilewise.kernels.native.threads.pool import ThreadPool


@dataclass(frozen=True)
class KernelCall:
    """An executable bound to its operands: calling it computes C.

    The parameters hold addresses: the call keeps every array alive.

    Attributes:
        macro_kernel: the compiled macro-kernel.
        parameters: a row for each thread.
        repeat_at: the column of the number of repeats.
        addresses: of each row.
        scratch_bytes: of the panels of each operand, for all threads.
        kept: what the addresses in the rows point into.
    """

    macro_kernel: MacroKernel
    parameters: Array
    repeat_at: int
    addresses: tuple[int, ...]
    scratch_bytes: dict[str, int]
    kept: tuple[Any, ...] = field(repr=False)

    def __call__(self, repeat: int = 1) -> None:
        """Compute C, `repeat` times in one call so that short runs can be timed."""
        self.parameters[:, self.repeat_at] = repeat
        if len(self.addresses) == 1:
            self.macro_kernel.run(self.addresses[0])
        else:
            _thread_pool(len(self.addresses)).run(self.macro_kernel.entry, self.addresses)


@dataclass(frozen=True)
class Executable:
    """A schedule's native code, for any operands of its problem.

    Attributes:
        problem, schedule: what it computes, and how.
        nest: its loops.
        kernels, macro_kernel: its micro-kernels and its macro-kernel.
        scratch: memory for panels of A and B, and for sums of C.
    """

    problem: Problem
    schedule: Schedule
    nest: Nest
    kernels: CompiledKernels
    macro_kernel: MacroKernel
    scratch: dict[str, Scratch]
    _names: tuple[str, ...]
    _sizes: dict[str, int]

    @property
    def scratch_bytes(self) -> dict[str, int]:
        """Return the bytes of scratch for all threads: of packed A and B, of sums apart from C."""
        used = {name: scratch.total for name, scratch in self.scratch.items()}
        return used if used["C"] else {name: used[name] for name in ("A", "B")}

    def packs_ahead(self, operand: str) -> bool:
        """Return whether an operand is packed once, when it is bound."""
        stage = self.nest.stage(operand)
        return stage is not None and stage.is_ahead

    def bind(self, operands: Operands, scratch: dict[str, Array] | None = None) -> KernelCall:
        """Bind operands, and pack constant weights; None allocates the scratch.

        Raises:
            LoweringError: an operand of another shape or type, or not contiguous.
        """
        self._check(operands)
        if scratch is None:
            scratch = {n: empty_aligned((s,), np.uint8) for n, s in self.scratch_bytes.items()}
        parameters = self._parameters(self._addresses(operands, scratch))
        addresses = tuple(row.ctypes.data for row in parameters)
        # Copies of the dicts: a caller may replace an array, and its address would dangle.
        kept = (dict(operands), dict(scratch), self.kernels)
        if self.macro_kernel.prepare is not None:
            self.macro_kernel.prepare(addresses[0])
        repeat_at = self._names.index(REPEAT)
        return KernelCall(
            self.macro_kernel, parameters, repeat_at, addresses, self.scratch_bytes, kept
        )

    def given(self, call: KernelCall) -> list[dict[str, int]]:
        """Return what is not a size of each thread's parameters: addresses, and its part.

        An address that the macro-kernel does not read is 0.
        """
        names = (
            *names_of(Addresses),
            *(edge for dim in self.nest.parts[0] for edge in bounds(dim)),
        )
        rows = [dict(zip(self._names, map(int, row), strict=True)) for row in call.parameters]
        return [{name: row.get(name, 0) for name in names} for row in rows]

    def _addresses(self, operands: Operands, scratch: dict[str, Array]) -> Addresses[int]:
        roles = {role: operands[self.nest.operand(role).name] for role in ("A", "B")}
        return Addresses(
            a=roles["A"].ctypes.data,
            b=roles["B"].ctypes.data,
            c=operands["C"].ctypes.data,
            **{
                name: operands[name].ctypes.data if name in self.problem.extras else 0
                for name in EXTRAS
            },
            a_panels=scratch["A"].ctypes.data,
            b_panels=scratch["B"].ctypes.data,
            c_sums=scratch["C"].ctypes.data if "C" in scratch else 0,
        )

    def _parameters(self, addresses: Addresses[int]) -> Array:
        """Return a row for each thread."""
        parts = len(self.nest.parts)
        barrier = _thread_pool(parts).barrier if parts > 1 else 0
        shared = self._sizes | {BARRIER: barrier, PARTS: parts}
        rows = [shared | self._part(addresses, index) for index in range(parts)]
        return np.array([[row[name] for name in self._names] for row in rows], np.int64)

    def _part(self, addresses: Addresses[int], index: int) -> dict[str, int]:
        """Return what is one thread's own: its part of each parallel dim, and its panels."""
        own = replace(
            addresses,
            a_panels=addresses.a_panels + index * self.scratch["A"].step,
            b_panels=addresses.b_panels + index * self.scratch["B"].step,
            c_sums=addresses.c_sums + index * self.scratch["C"].step,
        )
        part: dict[str, int] = dict(vars(own))
        for dim, ends in self.nest.parts[index].items():
            part |= dict(zip(bounds(dim), ends, strict=True))
        return part

    def run(self, operands: Operands) -> None:
        """Compute C once."""
        self.bind(operands)()

    def counted_run(self, operands: Operands) -> dict[str, int]:
        """Compute C once and count: micro-kernel calls, packs of A and B, transforms of C."""
        call = self.bind(operands)
        counters = call.parameters[:, : len(COUNTERS)]
        counters[:, 0] = 1
        call()
        counters[:, 0] -= 1
        return dict(zip(COUNTERS, map(int, counters.sum(axis=0)), strict=True))

    def _check(self, operands: Operands) -> None:
        for name, shape in self.problem.operand_shapes.items():
            dtype = NUMPY_TYPES[operand_type(self.problem, name)]
            array = operands.get(name)
            if array is None or array.shape != shape or array.dtype != dtype:
                found = "absent" if array is None else f"{array.dtype}{list(array.shape)}"
                wanted = f"{np.dtype(dtype)}{list(shape)}"
                raise LoweringError(f"{self.problem}: operand {name} is {found}, not {wanted}")
            if not array.flags.c_contiguous:
                raise LoweringError(f"{self.problem}: operand {name} is not contiguous")


def _thread_pool(threads: int) -> "ThreadPool":
    """Return this process's threads; importing them loads Numba, which takes long."""
    from tilewise.kernels.native.threads.thread_pool import thread_pool

    return thread_pool(threads)


def compile_ahead(problem: Problem, schedule: Schedule, target: Target) -> None:
    """Compile what `lower` will load, here or in another process; raise what that raises."""
    planned = plan(problem, schedule, target)
    try:
        for name, piece in pieces_of(planned.kernel, planned.use).items():
            if name in planned.functions:
                code_of(piece)
        macro_kernel_code(planned.source.text)
    except Exception as error:
        raise LoweringError(f"compiling {schedule} failed: {error}") from error


def lower(problem: Problem, schedule: Schedule, target: Target) -> Executable:
    """Compile a schedule for this machine.

    Args:
        problem: what is computed.
        schedule: how.
        target: where.

    Raises:
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: it needs what the target lacks, or compilation failed.
    """
    planned = plan(problem, schedule, target)
    kernels = compile_kernels(planned.kernel, planned.functions, planned.use)
    macro_kernel = load_macro_kernel(planned.source.text)
    return Executable(
        problem,
        schedule,
        planned.nest,
        kernels,
        macro_kernel,
        planned.scratch,
        planned.source.parameters,
        planned.sizes | kernels.addresses,
    )
