"""Problem + Schedule + Target -> something that runs: micro-kernel, driver, scratch."""

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from kernels.arithmetic import Arithmetic, arithmetic, size_of
from kernels.errors import LoweringError
from kernels.loopnest import Nest, build
from kernels.native.barrier import BARRIER_WORDS
from kernels.native.compile import CompiledKernels, KernelSpec, compile_kernels
from kernels.native.crew import crew
from kernels.native.dot import OFFSET
from kernels.native.driver import (
    PACK_A_SHIFT,
    PACK_B_SHIFT,
    DriverSource,
    flags,
    print_driver,
)
from kernels.native.geometry import Geometry, geometry
from kernels.native.inner_product_spec import inner_product_spec
from kernels.native.loading import Drivers, load_driver
from kernels.native.microkernel import MicroKernelSpec
from kernels.native.vector_ir import LINE_BYTES
from kernels.problem import Conv2d, Problem
from kernels.problem.iteration import is_packed_ahead, iteration_space
from kernels.reference import NUMPY_TYPES, Array, Operands, empty_aligned, operand_type
from kernels.schedule import Parallel, Schedule
from kernels.target.model import Target


@dataclass(frozen=True)
class Call:
    """An executable bound to its operands: calling it computes C.

    The parameters hold addresses, so the call keeps every array alive.

    Attributes:
        drivers: the compiled driver.
        parameters: a row for each thread.
        repeat_at: the column of the number of repeats.
        addresses: of each row.
        kept: what the addresses in the rows point into.
    """

    drivers: Drivers
    parameters: Array
    repeat_at: int
    addresses: tuple[int, ...]
    kept: tuple[Any, ...] = field(repr=False)

    def __call__(self, repeat: int = 1) -> None:
        """Compute C, `repeat` times in one entry so that short runs can be timed."""
        self.parameters[:, self.repeat_at] = repeat
        if len(self.addresses) == 1:
            self.drivers.run(self.addresses[0])
        else:
            crew(len(self.addresses)).run(self.drivers.entry, self.addresses)


@dataclass(frozen=True)
class Executable:
    """A schedule's native code, for any operands of its problem."""

    problem: Problem
    nest: Nest
    kernels: CompiledKernels
    drivers: Drivers
    scratch: dict[str, "Scratch"]
    _names: tuple[str, ...]
    _sizes: dict[str, int]

    @property
    def scratch_bytes(self) -> dict[str, int]:
        """Bytes of scratch that each packed operand needs, those of all threads together."""
        return {name: scratch.total for name, scratch in self.scratch.items()}

    def bind(self, operands: Operands, scratch: dict[str, Array] | None = None) -> Call:
        """Bind operands; without `scratch` it is allocated here. Constant weights are packed now.

        Raises:
            LoweringError: an operand of another shape or type, or not contiguous.
        """
        self._check(operands)
        if scratch is None:
            scratch = {n: empty_aligned((s,), np.uint8) for n, s in self.scratch_bytes.items()}
        values = self._sizes | {
            "a": operands[self.nest.space.operand("A")].ctypes.data,
            "b": operands[self.nest.space.operand("B")].ctypes.data,
            "c": operands["C"].ctypes.data,
            "bias": operands["bias"].ctypes.data if "bias" in operands else 0,
            "a_panels": scratch["A"].ctypes.data,
            "b_panels": scratch["B"].ctypes.data,
        }
        barrier = empty_aligned((BARRIER_WORDS,), np.int64)
        barrier[:] = 0
        values |= {"barrier": barrier.ctypes.data, "parts": len(self.nest.parts)}
        rows = [self._part(values, index) for index in range(len(self.nest.parts))]
        parameters = np.array([[row[name] for name in self._names] for row in rows], np.int64)
        addresses = tuple(row.ctypes.data for row in parameters)
        # Copies of the dicts: a caller may replace an array, and its address would dangle.
        kept = (dict(operands), dict(scratch), self.kernels, barrier)
        if self.drivers.prepare is not None:
            self.drivers.prepare(addresses[0])
        return Call(self.drivers, parameters, self._names.index("repeat"), addresses, kept)

    def _part(self, values: dict[str, int], index: int) -> dict[str, int]:
        """The parameters of one thread: its part of each parallel dim, and its own panels."""
        bounds: dict[str, int] = {}
        for dim, (first, end) in self.nest.parts[index].items():
            bounds |= {f"{dim}_first": first, f"{dim}_end": end}
        panels = {
            "a_panels": values["a_panels"] + index * self.scratch["A"].step,
            "b_panels": values["b_panels"] + index * self.scratch["B"].step,
        }
        return values | bounds | panels

    def run(self, operands: Operands) -> None:
        """Compute C once."""
        self.bind(operands)()

    def counted_run(self, operands: Operands) -> dict[str, int]:
        """Compute C once and count: micro-kernel calls and packs of A and B."""
        call = self.bind(operands)
        counter = self._names.index("count")
        call.parameters[:, counter] = 1
        call()
        total = int((call.parameters[:, counter] - 1).sum())
        return {
            "micro_kernels": total % (1 << PACK_A_SHIFT),
            "A": (total >> PACK_A_SHIFT) % (1 << (PACK_B_SHIFT - PACK_A_SHIFT)),
            "B": total >> PACK_B_SHIFT,
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


@dataclass(frozen=True)
class Scratch:
    """Memory for an operand's panels.

    Attributes:
        total: bytes for all threads.
        step: bytes from one thread's panels to the next one's; 0 where all read the same.
    """

    total: int
    step: int

    @classmethod
    def of_each(cls, size: int, threads: int) -> "Scratch":
        """Panels of `size` bytes for each thread, from a cache line on."""
        step = -(-size // LINE_BYTES) * LINE_BYTES
        return cls(size if threads == 1 else threads * step, step)


@dataclass(frozen=True)
class Plan:
    """A schedule's native code before it is compiled.

    Attributes:
        nest: the loop nest.
        spec: the micro-kernel that the schedule asks for.
        source: the driver.
        sizes: every parameter of the driver that is not an address.
    """

    nest: Nest
    spec: KernelSpec
    source: DriverSource
    sizes: dict[str, int]

    @property
    def is_ahead(self) -> bool:
        """Whether B is packed before the driver runs, by a function of its own."""
        return self.source.prepares

    @property
    def scratch(self) -> dict[str, "Scratch"]:
        """What each packed operand needs."""
        threads = len(self.nest.parts)
        a, b = self.sizes["scratch_a"], self.sizes["scratch_b"]
        return {
            "A": Scratch.of_each(a, threads),
            "B": Scratch(b, 0) if self.is_ahead else Scratch.of_each(b, threads),
        }


def plan(problem: Problem, schedule: Schedule, target: Target) -> Plan:
    """What `lower` compiles; raises what `lower` raises, short of compilation."""
    nest = build(problem, schedule)
    how = arithmetic(problem.element.name, target, split=schedule.lanes > 1)
    strides = geometry(problem, schedule, nest, how)
    spec = microkernel_spec(problem, schedule, target, strides)
    source = print_driver(problem, schedule, nest, strides, how)
    return Plan(nest, spec, source, _sizes(problem, nest, strides, spec))


def lower(problem: Problem, schedule: Schedule, target: Target) -> Executable:
    """Compile a schedule for this machine.

    Raises:
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: it asks for what the target has not, or compilation failed.
    """
    planned = plan(problem, schedule, target)
    source, kernels = planned.source, compile_kernels(planned.spec)
    sizes = planned.sizes | {
        "full": kernels.full,
        "edge": kernels.edge,
        "pack_b_panel": kernels.pack_b_panel,
        "pack_a_panel": kernels.pack_a_panel,
        "copy_rows": kernels.copy_rows,
        "copy_patches": kernels.copy_patches,
    }
    driver = load_driver(source.text)
    return Executable(
        problem, planned.nest, kernels, driver, planned.scratch, source.parameters, sizes
    )


def microkernel_spec(
    problem: Problem, schedule: Schedule, target: Target, strides: Geometry
) -> KernelSpec:
    """The micro-kernel that a schedule asks for.

    Raises:
        LoweringError: register columns that are no whole vectors of the target.
    """
    if schedule.lanes > 1:
        return inner_product_spec(problem, schedule, target, strides)
    register, lanes = schedule.register, target.lanes(problem.element.name)
    space = iteration_space(problem)
    if register.cols % lanes:
        raise LoweringError(
            f"step '{register}': cols={register.cols} is not a multiple of the "
            f"{lanes} {problem.element.name} lanes of {target.cpu}"
        )
    return MicroKernelSpec(
        how=arithmetic(problem.element.name, target),
        rows=register.rows,
        vectors=register.cols // lanes,
        lanes=lanes,
        unroll=schedule.unroll,
        a_row=strides.a_row,
        a_step=strides.a_step,
        b_row=strides.b_row,
        b_packed=schedule.packs("B"),
        taps=strides.tap_rows * strides.tap_cols > 1,
        fma=target.has_fma,
        b_transposed=strides.b_transposed,
        prefetched=_lines_of_a_row(problem, register.cols) if schedule.prefetches else 0,
        bias_rows=space.row in strides.bias_dims,
        patch_stride=problem.stride if isinstance(problem, Conv2d) and space.patches else 0,
    )


def _lines_of_a_row(problem: Problem, cols: int) -> int:
    """Cache lines of one row of a panel's source."""
    return -(-cols * problem.element.bytes // LINE_BYTES)


def _sizes(problem: Problem, nest: Nest, strides: Geometry, spec: KernelSpec) -> dict[str, int]:
    """Every parameter of the driver that is not an address."""
    space, how = nest.space, spec.how
    row = space.row
    sizes = {
        "size": size_of(how.stored),
        "out_size": size_of(how.accumulator),
        "packed_size": size_of(how.packed),
        "packed_zero": OFFSET if how.offset else 0,
        "word_depth": how.depth,
        "word_size": size_of(how.word),
        "sums_size": spec.cols * size_of(how.accumulator) if how.offset else 0,
        "lanes": spec.lanes,
        "taps": space.taps,
        "tap_rows": strides.tap_rows,
        "tap_cols": strides.tap_cols,
        "depth_factor": strides.depth_factor,
        "a_tap_row": strides.a_tap_row,
        "a_tap_col": strides.a_tap_col,
        "b_tap_source": strides.b_tap_source,
        "a_stream": strides.a_stream,
        "b_stream": strides.b_stream,
        "a_row_source": strides.a_dims[row],
        "packed_row": strides.packed_row,
        "c_row": strides.c_dims[row],
        "register_rows": nest.kernel.rows,
        "register_cols": nest.kernel.cols,
        "unroll": nest.kernel.unroll,
        "count": 0,
        "repeat": 1,
        **flags(
            load_first=getattr(problem, "init", "zero") == "accumulate",
            bias="bias" in problem.operand_shapes,
            relu=getattr(problem, "epilogue", "none") == "relu",
        ),
        **{f"{dim}_extent": extent for dim, extent in space.extents},
        **{f"a_{dim}": stride for dim, stride in strides.a_dims.items()},
        **{f"b_{dim}": stride for dim, stride in strides.b_dims.items()},
        **{f"c_{dim}": stride for dim, stride in strides.c_dims.items()},
        **{f"bias_{dim}": stride for dim, stride in strides.bias_dims.items()},
        **{f"ap_{dim}": stride for dim, stride in strides.packed_a_dims.items()},
    }
    levels: dict[str, int] = {}
    for loop in nest.loops:
        if loop.kind == Parallel.name:
            continue
        level = levels.get(loop.dim, 0)
        sizes[f"{loop.dim}_step{level}"] = loop.step
        levels[loop.dim] = level + 1
    if isinstance(problem, Conv2d):
        sizes |= _image_sizes(problem, nest)
    scratch = _scratch(nest, strides, how)
    if is_packed_ahead(problem, "B"):
        scratch |= _ahead(nest, spec)
    return sizes | {"chunk_bytes": 0, "batch_bytes": 0} | scratch


def _image_sizes(problem: Conv2d, nest: Nest) -> dict[str, int]:
    packed = next((c.shape for c in nest.copies if c.operand == nest.space.image), (0, 0))
    return {
        "height": problem.h,
        "width": problem.w,
        "channels": problem.ci,
        "conv_stride": problem.stride,
        "pad": problem.pad,
        "dilation": problem.dilation,
        "filter_rows": problem.kh,
        "filter_cols": problem.kw,
        "out_width": problem.ow,
        "row_reach": problem.dilation * (problem.kh - 1) + 1,
        "packed_cols": packed[1],
    }


def _scratch(nest: Nest, strides: Geometry, how: Arithmetic) -> dict[str, int]:
    """Bytes of scratch for each packed operand; one line for one that is read in place."""
    scratch = {"scratch_a": LINE_BYTES, "scratch_b": LINE_BYTES, "raw_at": 0}
    for copy in nest.copies:
        if copy.operand == "B":
            panels, taps, depth, cols = copy.shape
            words = taps * -(-depth // how.depth)
            sums = size_of(how.accumulator) if how.offset else 0
            scratch["scratch_b"] = panels * cols * (words * size_of(how.word) + sums)
            if nest.space.patches and how.depth > 1:
                scratch["raw_at"] = scratch["scratch_b"]
                scratch["scratch_b"] += depth * cols * size_of(how.stored)
        elif len(copy.shape) == 2:
            rows, depth = copy.shape
            steps = -(-depth // how.depth) if strides.a_transposed else rows
            scratch["scratch_a"] = steps * strides.packed_row * size_of(how.packed)
        else:
            pixels = copy.shape[0] * copy.shape[1]
            scratch["scratch_a"] = pixels * strides.packed_row * size_of(how.packed)
    return scratch


def _ahead(nest: Nest, spec: KernelSpec) -> dict[str, int]:
    """Bytes of constant weights in panels: of one chunk, of one batch, and of all."""
    space, how = nest.space, spec.how
    chunk = nest.kernel.depth
    words = space.taps * -(-chunk // how.depth)
    sums = size_of(how.accumulator) if how.offset else 0
    panels = -(-space.extent(space.col) // spec.cols)
    chunk_bytes = panels * spec.cols * (words * size_of(how.word) + sums)
    batch_bytes = -(-space.extent(space.stream) // chunk) * chunk_bytes
    batches = prod(space.extent(dim) for dim in space.lead)
    return {
        "chunk_bytes": chunk_bytes,
        "batch_bytes": batch_bytes,
        "scratch_b": batches * batch_bytes,
    }
