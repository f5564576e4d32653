"""The values of a driver's parameters, but for addresses: extents, strides, steps, scratch."""

from dataclasses import dataclass
from math import prod
from typing import Literal

from kernels.arithmetic import Arithmetic, size_of
from kernels.channel_blocks import PLAIN
from kernels.loopnest import Copy, Nest
from kernels.native.blocks import BlockSizes
from kernels.native.driver.parameters import (
    STREAMS,
    TRANSFORMED,
    Calls,
    Control,
    Elements,
    ImageSizes,
    Moves,
    PanelsAhead,
    PatchSizes,
    RegisterTile,
    TapLoops,
    Transformed,
    TransformSizes,
    extent,
    step,
    stride,
    values_of,
)
from kernels.native.ir.dot_products import OFFSET
from kernels.native.ir.vectors import LINE_BYTES
from kernels.native.microkernels.abi import ADD_BIAS, LOAD_C, RELU
from kernels.native.microkernels.specs import KernelSpec
from kernels.native.microkernels.sweep.spec import SweepSpec
from kernels.native.strides import Strides
from kernels.problem import Conv2d, Problem
from kernels.problem.iteration import is_packed_ahead
from kernels.schedule import Parallel
from kernels.schedule.strassen import matrix_of
from kernels.schedule.winograd import POINT, taps_of, tiles_of


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
    )
    if isinstance(problem, Conv2d):
        sizes |= values_of(
            _image_sizes(problem, nest, strides), _patch_sizes(problem, nest, spec.how)
        )
    if isinstance(problem, Conv2d) and strides.blocks != PLAIN:
        sizes |= values_of(BlockSizes.of(problem, strides.blocks, spec.how))
    if POINT in nest.space.dims:
        sizes |= values_of(_transformed(problem, nest, strides)) | {TRANSFORMED: 0}
        if taps_of(problem) == (1, 1):
            sizes |= _groups_of_rows(problem, nest)
        else:
            assert isinstance(problem, Conv2d)
            sizes |= values_of(_tiles_of_pixels(problem, nest, strides))
    sizes |= {extent(dim): length for dim, length in nest.space.extents}
    sizes[STREAMS] = nest.kernel.streams
    return sizes | _steps(nest) | _strides(strides)


def panel_bytes(problem: Problem, nest: Nest, strides: Strides, spec: KernelSpec) -> PanelBytes:
    """Scratch for the panels of one thread; weights that are packed ahead lie in all of theirs."""
    if POINT in nest.space.dims:
        return _transformed_bytes(problem, nest, strides)
    a = b = LINE_BYTES
    if isinstance(spec, SweepSpec) and spec.shares_words:
        a = _bytes_of_sums(nest, spec)
    for copy in nest.copies:
        if copy.operand == "A":
            a = _bytes_of_a(copy, strides, spec.how)
        else:
            b = _bytes_of_b(copy, spec.how) + _raw_bytes(copy, nest, spec.how)
    if is_packed_ahead(problem, "B", nest.space):
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


def _transformed(problem: Problem, nest: Nest, strides: Strides) -> Transformed:
    bytes_of_image, _ = _bytes_of_tiles(problem, nest, strides)
    panels, point = _panels_of_filter(problem, nest), strides.b.dims[POINT]
    return Transformed(
        image_point=strides.packed_a.dims[POINT],
        filter_point=point,
        product_point=strides.c[POINT],
        filter_panel=nest.space.extent(POINT) * point,
        products_at=bytes_of_image,
        turned_at=panels * _bytes_of_filter_panel(problem, nest, strides),
    )


def _tiles_of_pixels(problem: Conv2d, nest: Nest, strides: Strides) -> TransformSizes:
    height, width = nest.space.tile
    down, across = tiles_of(problem, nest.space.tile)
    planes = problem.has_channels_first
    ci, co = strides.blocks.a or problem.ci, strides.blocks.c or problem.co
    return TransformSizes(
        tile_height=height,
        tile_width=width,
        lines_down=height * problem.stride,
        pixels_across=width * problem.stride,
        tiles_down=down,
        tiles_across=across,
        out_height=problem.oh,
        out_width=problem.ow,
        image_size=problem.h * problem.w * problem.ci,
        image_line=problem.w * (1 if planes else ci),
        image_pixel=1 if planes else ci,
        image_channel=problem.h * problem.w if planes else 1,
        result_size=problem.oh * problem.ow * problem.co,
        result_line=problem.ow * (1 if planes else co),
        result_pixel=1 if planes else co,
        result_channel=problem.oh * problem.ow if planes else 1,
    )


def _groups_of_rows(problem: Problem, nest: Nest) -> dict[str, int]:
    """An image whose pixels are parts of the reduction, and of the columns."""
    rows, cols, depth = matrix_of(problem)
    height, width = nest.space.tile
    tiles = TransformSizes(
        tile_height=height,
        tile_width=width,
        lines_down=height,
        pixels_across=width,
        tiles_down=nest.space.extent(nest.space.row),
        tiles_across=1,
        out_height=rows,
        out_width=width,
        image_size=rows * depth,
        image_line=depth,
        image_pixel=depth // width,
        image_channel=1,
        result_size=rows * cols,
        result_line=cols,
        result_pixel=cols // width,
        result_channel=1,
    )
    image = ImageSizes(
        height=rows,
        width=width,
        channels=depth // width,
        conv_stride=1,
        pad=0,
        row_reach=1,
        packed_cols=0,
    )
    return values_of(tiles, image)


def _bytes_of_tiles(problem: Problem, nest: Nest, strides: Strides) -> tuple[int, int]:
    """Of a block of transformed tiles, and of the products for a panel of the filter."""
    size = nest.space.extent(POINT) * problem.element.bytes
    return strides.packed_a.dims[POINT] * size, strides.c[POINT] * size


def _transformed_bytes(problem: Problem, nest: Nest, strides: Strides) -> PanelBytes:
    """Tiles and products of a block; panels of the filter, and of one that is transposed first."""
    panels, panel = _panels_of_filter(problem, nest), _bytes_of_filter_panel(problem, nest, strides)
    turned = 0
    if strides.b.is_transposed:
        taps = strides.taps.rows * strides.taps.cols
        if taps_of(problem) == (1, 1):
            taps = prod(nest.space.tile)
        turned = taps * nest.kernel.depth * nest.kernel.cols
    return PanelBytes(
        sum(_bytes_of_tiles(problem, nest, strides)),
        panels * panel + turned * problem.element.bytes,
    )


def _panels_of_filter(problem: Problem, nest: Nest) -> int:
    """How many lie in memory together: those of a block, or all where they are made ahead."""
    if is_packed_ahead(problem, "B", nest.space):
        return -(-nest.space.extent(nest.space.col) // nest.kernel.cols)
    return next(copy.shape[0] for copy in nest.copies if copy.operand == "B")


def _bytes_of_filter_panel(problem: Problem, nest: Nest, strides: Strides) -> int:
    return nest.space.extent(POINT) * strides.b.dims[POINT] * problem.element.bytes


def _elements(spec: KernelSpec) -> Elements:
    how = spec.how
    return Elements(
        size=size_of(how.stored),
        out_size=size_of(how.accumulator),
        packed_size=size_of(how.packed),
        packed_zero=OFFSET if how.offset else 0,
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
        channels=strides.blocks.a or problem.ci,
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
