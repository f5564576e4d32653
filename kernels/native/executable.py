"""Problem + Schedule + Target -> something that runs: micro-kernel, driver, scratch."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.arithmetic import Arithmetic, arithmetic, size_of
from kernels.errors import LoweringError
from kernels.loopnest import Nest, build
from kernels.native.compile import CompiledKernels, KernelSpec, compile_kernels
from kernels.native.dot import OFFSET
from kernels.native.driver import (
    PACK_A_SHIFT,
    PACK_B_SHIFT,
    DriverSource,
    flags,
    print_driver,
)
from kernels.native.geometry import LINE_BYTES, Geometry, geometry
from kernels.native.inner_product_spec import inner_product_spec
from kernels.native.loading import Driver, Drivers, load_driver
from kernels.native.microkernel import MicroKernelSpec
from kernels.problem import Conv2d, Problem, weights_are_constant
from kernels.reference import NUMPY_TYPES, Array, Operands, empty_aligned, operand_type
from kernels.schedule import Schedule
from kernels.support import check_supported
from kernels.target.model import Target


@dataclass(frozen=True)
class Call:
    """An executable bound to its operands: calling it computes C.

    The parameters hold addresses, so the call keeps every array alive.
    """

    driver: Driver
    parameters: Array
    repeat_at: int
    kept: tuple[Any, ...] = field(repr=False)

    def __call__(self, repeat: int = 1) -> None:
        """Compute C, `repeat` times in one entry so that short runs can be timed."""
        self.parameters[self.repeat_at] = repeat
        self.driver(self.parameters)


@dataclass(frozen=True)
class Executable:
    """A schedule's native code, for any operands of its problem."""

    problem: Problem
    nest: Nest
    kernels: CompiledKernels
    drivers: Drivers
    _names: tuple[str, ...]
    _sizes: dict[str, int]

    @property
    def scratch_bytes(self) -> dict[str, int]:
        """Bytes of scratch that each packed operand needs."""
        return {"A": self._sizes["scratch_a"], "B": self._sizes["scratch_b"]}

    def bind(self, operands: Operands, scratch: dict[str, Array] | None = None) -> Call:
        """Bind operands; without `scratch` it is allocated here. Constant weights are packed now.

        Raises:
            LoweringError: an operand of another shape or type, or not contiguous.
        """
        self._check(operands)
        if scratch is None:
            scratch = {n: empty_aligned((s,), np.uint8) for n, s in self.scratch_bytes.items()}
        values = self._sizes | {
            "a": operands["A"].ctypes.data,
            "b": operands["B"].ctypes.data,
            "c": operands["C"].ctypes.data,
            "bias": operands["bias"].ctypes.data if "bias" in operands else 0,
            "a_panels": scratch["A"].ctypes.data,
            "b_panels": scratch["B"].ctypes.data,
        }
        parameters = np.array([values[name] for name in self._names], np.int64)
        # Copies of the dicts: a caller may replace an array, and its address would dangle.
        kept = (dict(operands), dict(scratch), self.kernels)
        if self.drivers.prepare is not None:
            self.drivers.prepare(parameters)
        return Call(self.drivers.run, parameters, self._names.index("repeat"), kept)

    def run(self, operands: Operands) -> None:
        """Compute C once."""
        self.bind(operands)()

    def counted_run(self, operands: Operands) -> dict[str, int]:
        """Compute C once and count: micro-kernel calls and packs of A and B."""
        call = self.bind(operands)
        counter = self._names.index("count")
        call.parameters[counter] = 1
        call()
        total = int(call.parameters[counter]) - 1
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


def plan(problem: Problem, schedule: Schedule, target: Target) -> Plan:
    """What `lower` compiles; raises what `lower` raises, short of compilation."""
    check_supported(problem)
    nest = build(problem, schedule)
    how = arithmetic(problem.element.name, target, split=schedule.lanes > 1)
    strides = geometry(problem, schedule, nest, how)
    spec = microkernel_spec(problem, schedule, target, strides)
    source = print_driver(problem, schedule, nest, strides, how)
    return Plan(nest, spec, source, _sizes(problem, nest, strides, spec))


def lower(problem: Problem, schedule: Schedule, target: Target) -> Executable:
    """Compile a schedule for this machine.

    Raises:
        UnsupportedError: no lowering covers the problem.
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
    }
    driver = load_driver(source.text)
    return Executable(problem, planned.nest, kernels, driver, source.parameters, sizes)


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
    )


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
        **{f"ap_{dim}": stride for dim, stride in strides.packed_a_dims.items()},
    }
    levels: dict[str, int] = {}
    for loop in nest.loops:
        level = levels.get(loop.dim, 0)
        sizes[f"{loop.dim}_step{level}"] = loop.step
        levels[loop.dim] = level + 1
    if isinstance(problem, Conv2d):
        sizes |= _image_sizes(problem, nest)
    scratch = _scratch(nest, strides, how)
    if weights_are_constant(problem):
        scratch |= _ahead(nest, spec)
    return sizes | {"chunk_bytes": 0, "batch_bytes": 0} | scratch


def _image_sizes(problem: Conv2d, nest: Nest) -> dict[str, int]:
    packed = next((c.shape for c in nest.copies if c.operand == "A"), (0, 0, 0))
    return {
        "height": problem.h,
        "width": problem.w,
        "channels": problem.ci,
        "conv_stride": problem.stride,
        "pad": problem.pad,
        "row_reach": problem.dilation * (problem.kh - 1) + 1,
        "packed_cols": packed[1],
    }


def _scratch(nest: Nest, strides: Geometry, how: Arithmetic) -> dict[str, int]:
    """Bytes of scratch for each packed operand; one line for one that is read in place."""
    scratch = {"scratch_a": LINE_BYTES, "scratch_b": LINE_BYTES}
    for copy in nest.copies:
        if copy.operand == "B":
            panels, taps, depth, cols = copy.shape
            words = taps * -(-depth // how.depth)
            sums = size_of(how.accumulator) if how.offset else 0
            scratch["scratch_b"] = panels * cols * (words * size_of(how.word) + sums)
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
    batches = space.extent(space.batch) if space.batch else 1
    return {
        "chunk_bytes": chunk_bytes,
        "batch_bytes": batch_bytes,
        "scratch_b": batches * batch_bytes,
    }
