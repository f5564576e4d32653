"""The parameters of a driver that are no addresses: extents, strides, steps, scratch."""

from math import prod

from kernels.arithmetic import Arithmetic, size_of
from kernels.loopnest import Nest
from kernels.native.ir.dot_products import OFFSET
from kernels.native.ir.vectors import LINE_BYTES
from kernels.native.microkernels.abi import ADD_BIAS, LOAD_C, RELU
from kernels.native.microkernels.specs import KernelSpec
from kernels.native.strides import Strides
from kernels.problem import Conv2d, Problem
from kernels.problem.iteration import is_packed_ahead
from kernels.schedule import Parallel


def driver_sizes(
    problem: Problem, nest: Nest, strides: Strides, spec: KernelSpec
) -> dict[str, int]:
    """Every parameter of the driver that is not an address."""
    space, how = nest.space, spec.how
    row = space.row
    is_added = problem.accumulates
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
        "tap_rows": strides.taps.rows,
        "tap_cols": strides.taps.cols,
        "depth_factor": strides.taps.depth_factor,
        "a_tap_row": strides.taps.a_row,
        "a_tap_col": strides.taps.a_col,
        "b_tap_source": strides.taps.b_source,
        "a_stream": strides.a.stream,
        "b_stream": strides.b.stream,
        "a_row_source": strides.a.dims[row],
        "packed_row": strides.packed_a.row,
        "c_row": strides.c[row],
        "register_rows": nest.kernel.rows,
        "register_cols": nest.kernel.cols,
        "unroll": nest.kernel.unroll,
        "count": 0,
        "repeat": 1,
        "flags_first": LOAD_C * is_added | spec.epilogue & ADD_BIAS,
        "flags_later": LOAD_C,
        "flags_last": spec.epilogue & RELU,
        **{f"{dim}_extent": extent for dim, extent in space.extents},
        **{f"a_{dim}": stride for dim, stride in strides.a.dims.items()},
        **{f"b_{dim}": stride for dim, stride in strides.b.dims.items()},
        **{f"c_{dim}": stride for dim, stride in strides.c.items()},
        **{f"bias_{dim}": stride for dim, stride in strides.bias.items()},
        **{f"ap_{dim}": stride for dim, stride in strides.packed_a.dims.items()},
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


def _scratch(nest: Nest, strides: Strides, how: Arithmetic) -> dict[str, int]:
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
            steps = -(-depth // how.depth) if strides.a.is_transposed else rows
            scratch["scratch_a"] = steps * strides.packed_a.row * size_of(how.packed)
        else:
            pixels = copy.shape[0] * copy.shape[1]
            scratch["scratch_a"] = pixels * strides.packed_a.row * size_of(how.packed)
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
