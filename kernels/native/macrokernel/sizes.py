"""The values of a driver's parameters, but for addresses: extents, strides, steps, scratch."""

from dataclasses import dataclass
from math import prod
from typing import Literal

from tilewise.kernels.arithmetic import Arithmetic, size_of
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.macrokernel.parameters import (
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
from tilewise.kernels.native.macrokernel.transform_sizes import (
    bytes_of_transforms,
    sizes_of_transforms,
)
from tilewise.kernels.native.microkernels.abi import ADD_BIAS, LOAD_C, RELU
from tilewise.kernels.native.microkernels.microkernel import KernelSpec
from tilewise.kernels.native.microkernels.outer_product import lines_of_a_row
from tilewise.kernels.native.microkernels.outer_product_code import OuterProductSpec
from tilewise.kernels.native.microkernels.skinny_products import SkinnyGemmSpec
from tilewise.kernels.native.strides import Strides, is_transposed, shape_of_stage
from tilewise.kernels.nest import Loop, LoopKind, Nest, Role
from tilewise.kernels.problem import Conv2d


@dataclass(frozen=True)
class PanelBytes:
    """Bytes of scratch for packed A and packed B; one line for one that is read in place.

    Sums of a sweep that lie in panels have the place of A's.
    """

    a: int
    b: int


def driver_sizes(nest: Nest, strides: Strides, spec: KernelSpec) -> dict[str, int]:
    """Return every parameter of the driver that is not an address, by name."""
    problem, k_block = nest.problem, nest.k_block
    sizes = values_of(
        Control(),
        _elements(spec),
        _tap_loops(nest, strides, spec),
        _moves(nest, strides),
        _panels_ahead(nest, spec) if nest.operand("B").is_constant else PanelsAhead(),
        _calls(nest, strides, spec),
        RegisterTile(nest.tile.rows, nest.tile.cols),
        _rows_ahead(nest, strides, spec),
    )
    if isinstance(problem, Conv2d):
        sizes |= values_of(_image_sizes(problem, nest), _patch_sizes(problem, nest, spec.how))
    if nest.algorithm:
        sizes |= sizes_of_transforms(nest, strides)
    sizes |= {extent(dim): nest.extent(dim) for dim in nest.scheduled}
    sizes[STREAMS] = k_block.streams if k_block else 1
    return sizes | _steps(nest) | _strides(strides)


def panel_bytes(nest: Nest, strides: Strides, spec: KernelSpec) -> PanelBytes:
    """Return the scratch for panels of one thread; of weights packed ahead, for all of theirs."""
    if nest.algorithm:
        return PanelBytes(*bytes_of_transforms(nest, strides))
    a = b = LINE_BYTES
    if isinstance(spec, SkinnyGemmSpec) and spec.shares_words:
        a = _bytes_of_sums(nest, spec)
    if shape := shape_of_stage(nest, "A"):
        a = _bytes_of_a(nest, shape, strides, spec.how)
    if shape := shape_of_stage(nest, "B"):
        b = _bytes_of_b(shape, spec.how) + _raw_bytes(nest, shape, spec.how)
    if (stage := nest.stage("B")) and stage.is_ahead:
        batches = prod(nest.extent(dim) for dim in nest.named(Role.LEAD))
        b = batches * _panels_ahead(nest, spec).batch_bytes
    return PanelBytes(a, b)


def _bytes_of_sums(nest: Nest, spec: SkinnyGemmSpec) -> int:
    """Of all that a thread has within the loop over the reduction."""
    within = next(
        here.blocks
        for here in nest.visit()
        if isinstance(here.node, Loop) and here.node.kind is LoopKind.K_BLOCK
    )
    sums = prod(within[dim] for dim in (*nest.named(Role.LEAD), nest.row, nest.col))
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
        taps=nest.taps,
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
        a_row_source=strides.a.dims.get(nest.row, 0),
    )


def _rows_ahead(nest: Nest, strides: Strides, spec: KernelSpec) -> RowsAhead:
    if not isinstance(spec, OuterProductSpec) or not spec.prefetched:
        return RowsAhead()
    lines = lines_of_a_row(nest.problem, spec.cols, strides)
    return RowsAhead(-(-lines // spec.prefetched), spec.prefetched * LINE_BYTES)


def _calls(nest: Nest, strides: Strides, spec: KernelSpec) -> Calls:
    return Calls(
        unroll=nest.compute.unroll,
        packed_row=strides.packed_a.row,
        c_row=strides.c.get(nest.row, 0),
        flags_first=LOAD_C * nest.store.adds_to_c | spec.epilogue & ADD_BIAS,
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
        if loop.kind is not LoopKind.PARALLEL:
            level = levels.get(loop.dim, 0)
            steps[step(loop.dim, level)] = loop.step
            levels[loop.dim] = level + 1
    return steps


def _image_sizes(problem: Conv2d, nest: Nest) -> ImageSizes:
    packed = shape_of_stage(nest, nest.image) or (0, 0)
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
    of_b = shape_of_stage(nest, "B")
    return PatchSizes(
        raw_at=_bytes_of_b(of_b, how) if of_b and _raw_bytes(nest, of_b, how) else 0,
        out_width=problem.ow,
        height=problem.h,
        width=problem.w,
        filter_rows=problem.kh,
        filter_cols=problem.kw,
        conv_stride=problem.stride,
        dilation=problem.dilation,
        pad=problem.pad,
    )


def _bytes_of_a(nest: Nest, shape: tuple[int, ...], strides: Strides, how: Arithmetic) -> int:
    *lines, depth = shape
    rows = -(-depth // how.depth) if is_transposed(nest, "A") else prod(lines)
    return rows * strides.packed_a.row * size_of(how.packed)


def _bytes_of_b(shape: tuple[int, ...], how: Arithmetic) -> int:
    panels, taps, depth, cols = shape
    return panels * _panel_bytes(taps, depth, cols, how)


def _raw_bytes(nest: Nest, shape: tuple[int, ...], how: Arithmetic) -> int:
    """Of one panel of patches that is gathered before its words are joined."""
    *_, depth, cols = shape
    joins = nest.operand("B").is_gathered and how.depth > 1
    return depth * cols * size_of(how.stored) if joins else 0


def _panel_bytes(taps: int, depth: int, cols: int, how: Arithmetic) -> int:
    """Of one panel of B, with its column sums."""
    sums = size_of(how.accumulator) if how.offset else 0
    return cols * (taps * -(-depth // how.depth) * size_of(how.word) + sums)


def _panels_ahead(nest: Nest, spec: KernelSpec) -> PanelsAhead:
    chunk, panels = nest.depth, -(-nest.extent(nest.col) // spec.cols)
    chunk_bytes = panels * _panel_bytes(nest.taps, chunk, spec.cols, spec.how)
    chunks = -(-nest.extent(nest.k) // chunk)
    return PanelsAhead(chunk_bytes, batch_bytes=chunks * chunk_bytes)
