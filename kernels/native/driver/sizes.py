"""The values of a driver's parameters, but for addresses: extents, strides, steps, scratch."""

from dataclasses import dataclass
from math import prod
from typing import Literal

from tilewise.kernels.arithmetic import Arithmetic, size_of
from tilewise.kernels.loopnest import Copy, Nest
from tilewise.kernels.native.driver.parameters import (
    STREAMS,
    Calls,
    Control,
    Elements,
    ImageSizes,
    Moves,
    PanelsAhead,
    PatchSizes,
    RegisterTile,
    RowsAhead,
    TapLoops,
    extent,
    step,
    stride,
    values_of,
)
from tilewise.kernels.native.driver.transform_sizes import bytes_of_transforms, sizes_of_transforms
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.microkernels.abi import ADD_BIAS, LOAD_C, RELU
from tilewise.kernels.native.microkernels.outer_product_spec import OuterProductSpec, lines_of_a_row
from tilewise.kernels.native.microkernels.specs import KernelSpec
from tilewise.kernels.native.microkernels.sweep.spec import SweepSpec
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.problem import Conv2d, Problem
from tilewise.kernels.problem.iteration import is_packed_ahead
from tilewise.kernels.schedule import Parallel
from tilewise.kernels.steps.transformed import POINT


@dataclass(frozen=True)
class PanelBytes:
    """Bytes of scratch for packed A and packed B; one line for one that is read in place.

    Sums of a sweep that lie in panels have the place of A's.
    """

    a: int
    b: int


def driver_sizes(
    problem: Problem, nest: Nest, strides: Strides, spec: KernelSpec
) -> dict[str, int]:
    """Every parameter of the driver that is not an address, by name."""
    sizes = values_of(
        Control(),
        _elements(spec),
        _tap_loops(nest, strides, spec),
        _moves(nest, strides),
        _panels_ahead(nest, spec) if is_packed_ahead(problem, "B", nest.space) else PanelsAhead(),
        _calls(problem, nest, strides, spec),
        RegisterTile(nest.kernel.rows, nest.kernel.cols),
        _rows_ahead(problem, strides, spec),
    )
    if isinstance(problem, Conv2d):
        sizes |= values_of(
            _image_sizes(problem, nest, strides), _patch_sizes(problem, nest, spec.how)
        )
    if POINT in nest.space.dims:
        sizes |= sizes_of_transforms(problem, nest, strides)
    sizes |= {extent(dim): length for dim, length in nest.space.extents}
    sizes[STREAMS] = nest.kernel.streams
    return sizes | _steps(nest) | _strides(strides)


def panel_bytes(problem: Problem, nest: Nest, strides: Strides, spec: KernelSpec) -> PanelBytes:
    """Scratch for the panels of one thread; weights that are packed ahead lie in all of theirs."""
    if POINT in nest.space.dims:
        return PanelBytes(*bytes_of_transforms(problem, nest, strides))
    a = b = LINE_BYTES
    if isinstance(spec, SweepSpec) and spec.shares_words:
        a = _bytes_of_sums(nest, spec)
    for copy in nest.copies:
        if copy.operand == "A":
            a = _bytes_of_a(copy, strides, spec.how)
        else:
            b = _bytes_of_b(copy, spec.how) + _raw_bytes(copy, nest, spec.how)
    packs_b = any(copy.operand == "B" for copy in nest.copies)
    if packs_b and is_packed_ahead(problem, "B", nest.space):
        batches = prod(nest.space.extent(dim) for dim in nest.space.lead)
        b = batches * _panels_ahead(nest, spec).batch_bytes
    return PanelBytes(a, b)


def _bytes_of_sums(nest: Nest, spec: SweepSpec) -> int:
    """Of all that a thread has within the loop over the reduction."""
    part = dict(nest.space.extents)
    for loop in nest.loops:
        if loop.dim == nest.space.stream:
            break
        part[loop.dim] = min(loop.step, part[loop.dim])
    sums = prod(part[dim] for dim in (*nest.space.lead, nest.space.row, nest.space.col))
    return max(LINE_BYTES, sums * size_of(spec.how.accumulator))


def _elements(spec: KernelSpec) -> Elements:
    how = spec.how
    return Elements(
        size=size_of(how.stored),
        out_size=size_of(how.accumulator),
        packed_size=size_of(how.packed),
        packed_zero=how.offset,
        word_depth=how.depth,
        word_size=size_of(how.word),
        sums_size=spec.cols * size_of(how.accumulator) if how.offset else 0,
    )


def _tap_loops(nest: Nest, strides: Strides, spec: KernelSpec) -> TapLoops:
    return TapLoops(
        lanes=spec.lanes,
        taps=nest.space.taps,
        tap_rows=strides.taps.rows,
        tap_cols=strides.taps.cols,
        depth_factor=strides.taps.depth_factor,
    )


def _moves(nest: Nest, strides: Strides) -> Moves:
    return Moves(
        a_tap_row=strides.taps.a_row,
        a_tap_col=strides.taps.a_col,
        b_tap_source=strides.taps.b_source,
        a_stream=strides.a.stream,
        b_stream=strides.b.stream,
        a_row_source=strides.a.dims[nest.space.row],
    )


def _rows_ahead(problem: Problem, strides: Strides, spec: KernelSpec) -> RowsAhead:
    if not isinstance(spec, OuterProductSpec) or not spec.prefetched:
        return RowsAhead()
    lines = lines_of_a_row(problem, spec.cols, strides)
    return RowsAhead(-(-lines // spec.prefetched), spec.prefetched * LINE_BYTES)


def _calls(problem: Problem, nest: Nest, strides: Strides, spec: KernelSpec) -> Calls:
    return Calls(
        unroll=nest.kernel.unroll,
        packed_row=strides.packed_a.row,
        c_row=strides.c[nest.space.row],
        flags_first=LOAD_C * problem.accumulates | spec.epilogue & ADD_BIAS,
        flags_later=LOAD_C,
        flags_last=spec.epilogue & RELU,
    )


def _strides(strides: Strides) -> dict[str, int]:
    operands: tuple[tuple[Literal["a", "b", "c", "bias", "ap"], dict[str, int]], ...] = (
        ("a", strides.a.dims),
        ("b", strides.b.dims),
        ("c", strides.c),
        ("bias", strides.bias),
        ("ap", strides.packed_a.dims),
    )
    return {stride(name, dim): by for name, dims in operands for dim, by in dims.items()}


def _steps(nest: Nest) -> dict[str, int]:
    steps: dict[str, int] = {}
    levels: dict[str, int] = {}
    for loop in nest.loops:
        if loop.kind != Parallel.name:
            level = levels.get(loop.dim, 0)
            steps[step(loop.dim, level)] = loop.step
            levels[loop.dim] = level + 1
    return steps


def _image_sizes(problem: Conv2d, nest: Nest, strides: Strides) -> ImageSizes:
    packed = next((c.shape for c in nest.copies if c.operand == nest.space.image), (0, 0))
    return ImageSizes(
        height=problem.h,
        width=problem.w,
        channels=problem.ci,
        conv_stride=problem.stride,
        pad=problem.pad,
        row_reach=problem.dilation * (problem.kh - 1) + 1,
        packed_cols=packed[1],
    )


def _patch_sizes(problem: Conv2d, nest: Nest, how: Arithmetic) -> PatchSizes:
    of_b = next((copy for copy in nest.copies if copy.operand == "B"), None)
    return PatchSizes(
        raw_at=_bytes_of_b(of_b, how) if of_b and _raw_bytes(of_b, nest, how) else 0,
        out_width=problem.ow,
        height=problem.h,
        width=problem.w,
        filter_rows=problem.kh,
        filter_cols=problem.kw,
        conv_stride=problem.stride,
        dilation=problem.dilation,
        pad=problem.pad,
    )


def _bytes_of_a(copy: Copy, strides: Strides, how: Arithmetic) -> int:
    if len(copy.shape) > 2:
        rows = copy.shape[0] * copy.shape[1]
    else:
        rows, depth = copy.shape
        rows = -(-depth // how.depth) if strides.a.is_transposed else rows
    return rows * strides.packed_a.row * size_of(how.packed)


def _bytes_of_b(copy: Copy, how: Arithmetic) -> int:
    panels, taps, depth, cols = copy.shape
    return panels * _panel_bytes(taps, depth, cols, how)


def _raw_bytes(copy: Copy, nest: Nest, how: Arithmetic) -> int:
    """Of one panel of patches that is gathered before its words are joined."""
    *_, depth, cols = copy.shape
    return depth * cols * size_of(how.stored) if nest.space.patches and how.depth > 1 else 0


def _panel_bytes(taps: int, depth: int, cols: int, how: Arithmetic) -> int:
    """Of one panel of B, with its column sums."""
    sums = size_of(how.accumulator) if how.offset else 0
    return cols * (taps * -(-depth // how.depth) * size_of(how.word) + sums)


def _panels_ahead(nest: Nest, spec: KernelSpec) -> PanelsAhead:
    space, chunk = nest.space, nest.kernel.depth
    panels = -(-space.extent(space.col) // spec.cols)
    chunk_bytes = panels * _panel_bytes(space.taps, chunk, spec.cols, spec.how)
    chunks = -(-space.extent(space.stream) // chunk)
    return PanelsAhead(chunk_bytes, batch_bytes=chunks * chunk_bytes)
