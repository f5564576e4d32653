"""Problem + Schedule + Target -> something that runs: micro-kernel, driver, scratch."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.jit.loading import (
    CompiledKernels,
    Drivers,
    code_of,
    compile_kernels,
    driver_code,
    load_driver,
)
from tilewise.kernels.native.macrokernel.pack_printer import PACK_A_SHIFT, PACK_B_SHIFT
from tilewise.kernels.native.macrokernel.parameters import (
    COUNT,
    REPEAT,
    TRANSFORMED,
    Addresses,
    Threads,
    bounds,
    names_of,
    values_of,
)
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
    from tilewise.kernels.native.threads.thread_pool import ThreadPool


@dataclass(frozen=True)
class Call:
    """An executable bound to its operands: calling it computes C.

    The parameters hold addresses, so the call keeps every array alive.

    Attributes:
        drivers: the compiled driver.
        parameters: a row for each thread.
        repeat_at: the column of the number of repeats.
        addresses: of each row.
        scratch_bytes: of the panels of each operand, those of all threads together.
        kept: what the addresses in the rows point into.
    """

    drivers: Drivers
    parameters: Array
    repeat_at: int
    addresses: tuple[int, ...]
    scratch_bytes: dict[str, int]
    kept: tuple[Any, ...] = field(repr=False)

    def __call__(self, repeat: int = 1) -> None:
        """Compute C, `repeat` times in one entry so that short runs can be timed."""
        self.parameters[:, self.repeat_at] = repeat
        if len(self.addresses) == 1:
            self.drivers.run(self.addresses[0])
        else:
            _thread_pool(len(self.addresses)).run(self.drivers.entry, self.addresses)


@dataclass(frozen=True)
class Executable:
    """A schedule's native code, for any operands of its problem.

    Attributes:
        problem, schedule: what it computes, and how.
        nest: its loops.
        kernels, drivers: its code.
        scratch: memory for panels.
    """

    problem: Problem
    schedule: Schedule
    nest: Nest
    kernels: CompiledKernels
    drivers: Drivers
    scratch: dict[str, Scratch]
    _names: tuple[str, ...]
    _sizes: dict[str, int]

    @property
    def scratch_bytes(self) -> dict[str, int]:
        """Bytes of scratch that each packed operand needs, those of all threads together."""
        return {name: scratch.total for name, scratch in self.scratch.items()}

    def packs_ahead(self, operand: str) -> bool:
        """Whether an operand is packed once, when it is bound."""
        stage = self.nest.stage(operand)
        return stage is not None and stage.is_ahead

    def bind(self, operands: Operands, scratch: dict[str, Array] | None = None) -> Call:
        """Bind operands; without `scratch` it is allocated here. Constant weights are packed now.

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
        if self.drivers.prepare is not None:
            self.drivers.prepare(addresses[0])
        repeat_at = self._names.index(REPEAT)
        return Call(self.drivers, parameters, repeat_at, addresses, self.scratch_bytes, kept)

    def given(self, call: Call) -> list[dict[str, int]]:
        """What each thread's driver is told beside sizes, by name: addresses, and its part."""
        edges = [edge for dim in self.nest.parts[0] for edge in bounds(dim)]
        names = (*names_of(Addresses), *(edges if len(self.nest.parts) > 1 else ()))
        places = {name: self._names.index(name) for name in names}
        return [{name: int(row[at]) for name, at in places.items()} for row in call.parameters]

    def _addresses(self, operands: Operands, scratch: dict[str, Array]) -> Addresses[int]:
        roles = {role: operands[self.nest.operand(role).name] for role in ("A", "B")}
        return Addresses(
            a=roles["A"].ctypes.data,
            b=roles["B"].ctypes.data,
            c=operands["C"].ctypes.data,
            bias=operands["bias"].ctypes.data if "bias" in operands else 0,
            a_panels=scratch["A"].ctypes.data,
            b_panels=scratch["B"].ctypes.data,
        )

    def _parameters(self, addresses: Addresses[int]) -> Array:
        """A row for each thread."""
        parts = len(self.nest.parts)
        threads = Threads(_thread_pool(parts).barrier if parts > 1 else 0, parts)
        shared = self._sizes | values_of(threads)
        rows = [shared | self._part(addresses, index) for index in range(parts)]
        return np.array([[row[name] for name in self._names] for row in rows], np.int64)

    def _part(self, addresses: Addresses[int], index: int) -> dict[str, int]:
        """What is one thread's own: its part of each parallel dim, and its panels."""
        own = replace(
            addresses,
            a_panels=addresses.a_panels + index * self.scratch["A"].step,
            b_panels=addresses.b_panels + index * self.scratch["B"].step,
        )
        part = values_of(own)
        for dim, ends in self.nest.parts[index].items():
            part |= dict(zip(bounds(dim), ends, strict=True))
        return part

    def run(self, operands: Operands) -> None:
        """Compute C once."""
        self.bind(operands)()

    def counted_run(self, operands: Operands) -> dict[str, int]:
        """Compute C once and count: micro-kernel calls, packs of A and B, transforms of C."""
        call = self.bind(operands)
        counter = self._names.index(COUNT)
        call.parameters[:, counter] = 1
        call()
        others = {}
        if TRANSFORMED in self._names:
            others["C"] = int(call.parameters[:, self._names.index(TRANSFORMED)].sum())
        total = int((call.parameters[:, counter] - 1).sum())
        return {
            "micro_kernels": total % (1 << PACK_A_SHIFT),
            "A": (total >> PACK_A_SHIFT) % (1 << (PACK_B_SHIFT - PACK_A_SHIFT)),
            "B": total >> PACK_B_SHIFT,
            **others,
        }

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
    """This process's threads; Numba, which compiles how they wait, is loaded for them alone."""
    from tilewise.kernels.native.threads.thread_pool import thread_pool

    return thread_pool(threads)


def compile_ahead(problem: Problem, schedule: Schedule, target: Target) -> None:
    """Compile what `lower` will load, here or in another process; raises what that raises."""
    planned = plan(problem, schedule, target)
    try:
        for name, piece in planned.kernel.pieces(planned.use).items():
            if name in planned.functions:
                code_of(piece)
        driver_code(planned.source.text)
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
        LoweringError: it asks for what the target has not, or compilation failed.
    """
    planned = plan(problem, schedule, target)
    kernels = compile_kernels(planned.kernel, planned.functions, planned.use)
    driver = load_driver(planned.source.text)
    return Executable(
        problem,
        schedule,
        planned.nest,
        kernels,
        driver,
        planned.scratch,
        planned.source.parameters,
        planned.sizes | kernels.addresses,
    )
