"""The sizes of a macro-kernel: every parameter that is no address, by name; and its scratch."""

from collections import Counter
from dataclasses import dataclass
from math import prod

from tilewise.kernels.arithmetic import Arithmetic, WidenedWeights, size_of
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.macrokernel.parameters import (
    COUNTERS,
    REPEAT,
    STREAMS,
    Moved,
    extent,
    step,
    stride,
)
from tilewise.kernels.native.microkernels.abi import ADD_BIAS, LOAD_C, RELU
from tilewise.kernels.native.microkernels.microkernel import KernelSpec
from tilewise.kernels.native.microkernels.outer_product import lines_of_a_row
from tilewise.kernels.native.microkernels.outer_product_code import OuterProductSpec
from tilewise.kernels.native.microkernels.skinny_products import SkinnyGemmSpec
from tilewise.kernels.native.strides import Strides, is_strassen, is_transposed, shape_of_stage
from tilewise.kernels.nest import Loop, LoopKind, Nest, Role, nest_of
from tilewise.kernels.problem import Convolution
from tilewise.kernels.steps.algorithm import POINT
from tilewise.kernels.steps.strassen import matrix_of
from tilewise.kernels.steps.winograd import WinogradTiles, tiles_of

Sizes = dict[str, int]


def macro_kernel_sizes(nest: Nest, strides: Strides, spec: KernelSpec) -> Sizes:
    """Return every parameter of the macro-kernel that is no address, by name."""
    how, taps, k_block = spec.how, strides.taps, nest.k_block
    adds_first = nest.store.adds_to_c and not nest.store.finishes_apart
    sizes = {
        **dict.fromkeys(COUNTERS.values(), 0),
        REPEAT: 1,
        # Bytes of an element of A and B as it is stored, of a sum, of C, and of a packed one.
        "size": size_of(how.stored),
        "out_size": size_of(how.accumulator),
        "c_size": nest.problem.result.bytes,
        "packed_size": size_of(how.packed),
        "packed_zero": how.offset,  # the byte of a packed zero
        # Elements of a word, its bytes, and the bytes of the column sums after a panel of B.
        "word_depth": how.depth,
        "word_size": how.word_bytes,
        "sums_size": spec.cols * size_of(how.accumulator) if how.corrects else 0,
        # The micro-kernel: elements of a vector, a whole tile, steps between fetches of rows of B.
        "lanes": spec.lanes,
        "register_rows": nest.tile.rows,
        "register_cols": nest.tile.cols,
        "unroll": 1 if how.instruction.words > 1 else nest.compute.unroll,
        # Filter taps: those of a panel of B, what a call loops over, and the
        # columns that are a part of the reduction.
        "taps": nest.taps,
        "tap_slices": taps.slices,
        "tap_rows": taps.rows,
        "tap_cols": taps.cols,
        "depth_factor": taps.depth_factor,
        # What a filter slice, row or column moves A by, in words; a tap B in place, in elements.
        "a_tap_slice": taps.a_slice,
        "a_tap_row": taps.a_row,
        "a_tap_col": taps.a_col,
        "b_tap_source": taps.b_source,
        # Elements between steps of the reduction and rows of A in place, rows of its panels, and
        # rows of C.
        "a_stream": strides.a.stream,
        "b_stream": strides.b.stream,
        "a_row_source": strides.a.dims.get(nest.row, 0),
        "packed_row": strides.packed_a.row,
        "c_row": strides.c.get(nest.row, 0),
        # Flags of the calls for the first chunk of the reduction, for later ones, and for the last.
        "flags_first": LOAD_C * adds_first | spec.epilogue & ADD_BIAS,
        "flags_later": LOAD_C,
        "flags_last": spec.epilogue & RELU,
        STREAMS: k_block.streams if k_block else 1,
    }
    if nest.store.finishes_apart:
        sizes |= _sizes_of_sums(nest, strides, spec)
    sizes |= _panels_ahead(nest, spec) | _rows_ahead(nest, strides, spec)
    if isinstance(how, WidenedWeights):  # bytes of A's panels, and of a block's codes in one of B
        sizes["widened_at"] = _bytes_of_tiles_of_a(nest, strides, how)
        sizes["codes_size"] = how.codes_bytes * spec.cols
    if isinstance(nest.problem, Convolution):
        sizes |= _sizes_of_image(nest.problem, nest, how)
    if nest.algorithm:
        sizes |= _sizes_of_transforms(nest, strides)
    sizes |= {extent(dim): nest.extent(dim) for dim in nest.scheduled}
    return sizes | _steps(nest) | _strides(strides)


def _panels_ahead(nest: Nest, spec: KernelSpec) -> Sizes:
    """Return the bytes of weights that are packed before: of a chunk, and of a batch."""
    if not nest.operand("B").is_constant:
        return {"chunk_bytes": 0, "batch_bytes": 0}
    panels = -(-nest.extent(nest.col) // spec.cols)
    chunk_bytes = panels * _bytes_of_panel(nest.taps, nest.depth, spec.cols, spec.how)
    chunks = -(-nest.extent(nest.k) // nest.depth)
    return {"chunk_bytes": chunk_bytes, "batch_bytes": chunks * chunk_bytes}


def _rows_ahead(nest: Nest, strides: Strides, spec: KernelSpec) -> Sizes:
    """Return the iterations that fetch a row of B's next block, and the bytes that each does."""
    if not isinstance(spec, OuterProductSpec) or not spec.prefetched:
        return {"fetch_parts": 1, "fetch_bytes": 0}
    lines = lines_of_a_row(nest.problem, spec.cols, strides)
    parts = -(-lines // spec.prefetched)
    return {"fetch_parts": parts, "fetch_bytes": spec.prefetched * LINE_BYTES}


def _sizes_of_sums(nest: Nest, strides: Strides, spec: KernelSpec) -> Sizes:
    """Return what sums apart from C move by; those of one tile or image do not move."""
    if nest.group:
        row = nest.extent("co") if nest.image == "A" else nest.extent("oh") * nest.extent("ow")
        return {stride("sums", "n"): 0, "c_row": row, "sums_row": row}
    moves = not _has_sums_of_a_tile(nest)
    return {stride("sums", dim): by * moves for dim, by in strides.c.items()} | {
        "sums_row": strides.c.get(nest.row, 0) if moves else spec.cols
    }


def _has_sums_of_a_tile(nest: Nest) -> bool:
    """Whether C is made of each tile as soon as it is computed."""
    return not nest.is_macro and nest.depth == nest.extent(nest.k)


def _sizes_of_image(problem: Convolution, nest: Nest, how: Arithmetic) -> Sizes:
    packed, of_b = shape_of_stage(nest, nest.image) or (0, 0), shape_of_stage(nest, "B")
    return {
        "height": problem.h,
        "width": problem.w,
        "channels": problem.ci,
        "out_height": problem.oh,
        "out_width": problem.ow,
        "filter_rows": problem.kh,
        "filter_cols": problem.kw,
        "stride_down": problem.strides[-2],
        "stride_across": problem.strides[-1],
        "dilation_down": problem.dilations[-2],
        "dilation_across": problem.dilations[-1],
        "pad_top": problem.pads.top,
        "pad_left": problem.pads.left,
        # Of volumes; an image is one slice.
        "slices": prod(problem.image[:-2]),
        "filter_slices": prod(problem.window[:-2]),
        "stride_slices": prod(problem.strides[:-2]),
        "dilation_slices": prod(problem.dilations[:-2]),
        "pad_front": sum(problem.pads.low[:-2]),
        "slice_reach": prod(problem.reaches[:-2]),
        "packed_slice": prod(packed[-3:-1]),  # pixels of a packed slice
        "row_reach": problem.reaches[-2],  # image rows for one of the output
        "packed_cols": packed[-2],  # pixels of a packed line
        # Bytes from the panels to the memory of one that is gathered but not packed yet.
        "raw_at": _bytes_of_b(of_b, how) if of_b and _raw_bytes(nest, of_b, how) else 0,
    }


def _strides(strides: Strides) -> Sizes:
    operands: tuple[tuple[Moved, Sizes], ...] = (
        ("a", strides.a.dims),
        ("b", strides.b.dims),
        ("c", strides.c),
        ("bias", strides.bias),
        ("ap", strides.packed_a.dims),
    )
    return {stride(name, dim): by for name, dims in operands for dim, by in dims.items()}


def _steps(nest: Nest) -> Sizes:
    steps, levels = Sizes(), Counter[str]()
    for loop in nest.loops:
        if loop.kind is not LoopKind.PARALLEL:
            steps[step(loop.dim, levels[loop.dim])] = loop.step
            levels[loop.dim] += 1
    return steps


# Scratch ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PanelBytes:
    """Bytes of scratch for packed A and packed B; one line for one that is read in place.

    Sums of a skinny GEMM that are in panels have the place of A's.

    Attributes:
        a, b: of a thread's panels; of weights packed ahead for all threads.
        c: of sums that C is made of in the end.
        shares_c: whether all threads have their sums in the same memory.
    """

    a: int
    b: int
    c: int = 0
    shares_c: bool = False


def panel_bytes(nest: Nest, strides: Strides, spec: KernelSpec) -> PanelBytes:
    """Return the scratch of one thread; that of weights packed ahead is for all threads."""
    if nest.algorithm:
        return _bytes_of_transforms(nest, strides)
    a = b = LINE_BYTES
    if isinstance(spec, SkinnyGemmSpec) and spec.shares_words:
        a = _bytes_of_sums(nest, spec)
    if shape := shape_of_stage(nest, "A"):
        a = _bytes_of_a(nest, shape, strides, spec.how)
        if isinstance(spec.how, WidenedWeights):
            widened = spec.how.widened_bytes(nest.depth, spec.cols)
            a = _bytes_of_tiles_of_a(nest, strides, spec.how) + widened
    if shape := shape_of_stage(nest, "B"):
        b = _bytes_of_b(shape, spec.how) + _raw_bytes(nest, shape, spec.how)
    if (stage := nest.stage("B")) and stage.is_ahead:
        batches = prod(nest.extent(dim) for dim in nest.named(Role.LEAD))
        b = batches * _panels_ahead(nest, spec)["batch_bytes"]
    if not nest.store.finishes_apart:
        return PanelBytes(a, b)
    shape, size = nest.problem.operand_shapes["C"], size_of(spec.how.accumulator)
    if nest.group:
        return PanelBytes(a, b, prod(shape[1:]) * size)
    if _has_sums_of_a_tile(nest):
        return PanelBytes(a, b, nest.tile.rows * spec.cols * size)
    return PanelBytes(a, b, prod(shape) * size, shares_c=True)


def _bytes_of_sums(nest: Nest, spec: SkinnyGemmSpec) -> int:
    """Return the bytes of the sums that a thread has within the loop over the reduction."""
    within = next(
        here.blocks
        for here in nest.visit()
        if isinstance(here.node, Loop) and here.node.kind is LoopKind.K_BLOCK
    )
    sums = prod(within[dim] for dim in (*nest.named(Role.LEAD), nest.row, nest.col))
    return max(LINE_BYTES, sums * size_of(spec.how.accumulator))


def _bytes_of_a(nest: Nest, shape: tuple[int, ...], strides: Strides, how: Arithmetic) -> int:
    *lines, depth = shape
    rows = -(-depth // how.depth) if is_transposed(nest, "A") else prod(lines)
    return rows * strides.packed_a.row * size_of(how.packed)


def _bytes_of_tiles_of_a(nest: Nest, strides: Strides, how: Arithmetic) -> int:
    """Return the bytes of packed rows of A, with those that whole register tiles read past them."""
    rows, depth = shape_of_stage(nest, "A") or (0, 0)
    tiles = -(-rows // nest.tile.rows)
    return _bytes_of_a(nest, (tiles * nest.tile.rows, depth), strides, how)


def _bytes_of_b(shape: tuple[int, ...], how: Arithmetic) -> int:
    panels, taps, depth, cols = shape
    return panels * _bytes_of_panel(taps, depth, cols, how)


def _raw_bytes(nest: Nest, shape: tuple[int, ...], how: Arithmetic) -> int:
    """Return the bytes of one panel of patches that is gathered before its words are joined."""
    *_, depth, cols = shape
    joins = nest.operand("B").is_gathered and how.depth > 1
    return depth * cols * size_of(how.stored) if joins else 0


def _bytes_of_panel(taps: int, depth: int, cols: int, how: Arithmetic) -> int:
    """Return the bytes of one panel of B, with its column sums."""
    sums = size_of(how.accumulator) if how.corrects else 0
    return cols * (taps * -(-depth // how.depth) * how.word_bytes + sums)


# Transformed operands (Winograd, Strassen) --------------------------------------------------


def _sizes_of_transforms(nest: Nest, strides: Strides) -> Sizes:
    assert nest.algorithm is not None
    point, tile = strides.b.dims[POINT], nest.algorithm.tile
    sizes = {
        # Elements between points of the transformed image and filter and of their products.
        "image_point": strides.packed_a.dims[POINT],
        "filter_point": point,
        "product_point": strides.c[POINT],
        "filter_panel": nest.extent(POINT) * point,  # of a panel of the transformed filter
        # Bytes from the transformed image to the products, and from the transformed filter to the
        # memory of a transposed panel.
        "products_at": _bytes_of_tiles(nest, strides)[0],
        "transposed_at": _panels_of_filter(nest) * _bytes_of_filter_panel(nest, strides),
    }
    if is_strassen(nest):
        return sizes | _sizes_of_groups(nest, tile)
    assert isinstance(nest.algorithm, WinogradTiles)
    problem = nest.algorithm.problem
    image, result = (problem.h, problem.w, problem.ci), (problem.oh, problem.ow, problem.co)
    sizes |= _sizes_of_tiles(tile, problem.strides[0], image, result, problem.has_channels_first)
    down, across = tiles_of(problem, tile)
    return sizes | {"tiles_down": down, "tiles_across": across}


def _sizes_of_tiles(
    tile: tuple[int, int],
    step: int,
    image: tuple[int, int, int],
    result: tuple[int, int, int],
    planes: bool,
) -> Sizes:
    """Return the sizes of tiles, and what an image, line, pixel or channel moves by, in elements.

    Args:
        tile: pixels of a tile of the result, down and across.
        step: pixels of the image for each of them.
        image: lines, pixels of a line, and channels.
        result: the same.
        planes: whether each channel is a plane of its own.
    """
    sizes = {
        "tile_height": tile[0],
        "tile_width": tile[1],
        "lines_down": tile[0] * step,  # pixels of the image from a tile to the next
        "pixels_across": tile[1] * step,
        "out_height": result[0],
        "out_width": result[1],
    }
    for name, (height, width, channels) in (("image", image), ("result", result)):
        sizes[f"{name}_size"] = height * width * channels
        sizes[f"{name}_line"] = width if planes else width * channels
        sizes[f"{name}_pixel"] = 1 if planes else channels
        sizes[f"{name}_channel"] = height * width if planes else 1
    return sizes


def _sizes_of_groups(nest: Nest, tile: tuple[int, int]) -> Sizes:
    """Return the sizes of groups of rows, as tiles of an image with one column of tiles.

    Its pixels are parts of the reduction, and those of the result parts of the columns.
    """
    problem, width = nest.problem, tile[1]
    rows, cols, depth = matrix_of(problem)
    image, result = (rows, width, depth // width), (rows, width, cols // width)
    sizes = _sizes_of_tiles(tile, 1, image, result, planes=False) | {
        "image_size": prod(problem.operand_shapes["A"][-3:]),
        "tiles_down": nest.extent(nest.row),
        "tiles_across": 1,
        "height": rows,
        "width": width,
        "channels": depth // width,
        "pad_top": 0,
        "pad_left": 0,
    }
    if max(problem.strides) > 1:  # rows are the pixels that the stride leaves
        direct = nest_of(problem)
        a = direct.operand("A")
        sizes |= {"rows_across": direct.extent("ow"), "rows_down": direct.extent("oh")}
        sizes |= {"row_pixel": a.stride("ow") or 0, "row_line": a.stride("oh") or 0}
    return sizes


def _bytes_of_transforms(nest: Nest, strides: Strides) -> PanelBytes:
    """Return the bytes of tiles and products of a block, and those of panels of B."""
    transposed = 0
    if strides.b.is_transposed:
        taps = strides.taps.rows * strides.taps.cols
        if nest.algorithm and is_strassen(nest):
            taps = prod(nest.algorithm.tile)
        transposed = taps * nest.depth * nest.tile.cols * nest.problem.element.bytes
    panels = _panels_of_filter(nest) * _bytes_of_filter_panel(nest, strides)
    return PanelBytes(sum(_bytes_of_tiles(nest, strides)), panels + transposed)


def _bytes_of_tiles(nest: Nest, strides: Strides) -> tuple[int, int]:
    """Return the bytes of a block of transformed tiles, and of the products for a panel."""
    size = nest.extent(POINT) * nest.problem.element.bytes
    return strides.packed_a.dims[POINT] * size, strides.c[POINT] * size


def _panels_of_filter(nest: Nest) -> int:
    """Return how many are in memory together: those of a block, or all that are made ahead."""
    if nest.operand("B").is_constant:
        return -(-nest.extent(nest.col) // nest.tile.cols)
    return (shape_of_stage(nest, "B") or (0,))[0]


def _bytes_of_filter_panel(nest: Nest, strides: Strides) -> int:
    return nest.extent(POINT) * strides.b.dims[POINT] * nest.problem.element.bytes
