"""What generated drivers call: functions at addresses, and the packs of a whole block."""

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.native.vector_ir import I8, I64, VOID


@intrinsic
def call_address(_typing: Any, address: Any, *arguments: Any) -> Any:
    """Call the void function at `address` with i64 arguments."""
    tail = (
        arguments[0]
        if len(arguments) == 1 and isinstance(arguments[0], types.BaseTuple)
        else types.StarArgTuple(arguments)
    )

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        values = cgutils.unpack_tuple(builder, args[1])
        kind = ir.FunctionType(VOID, [I64] * len(values))
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), values)
        return context.get_dummy_value()

    return types.void(address, tail), codegen


@intrinsic
def fill_zero(_typing: Any, address: Any, size: Any) -> Any:
    """Set `size` bytes at `address` to zero."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], I8.as_pointer())
        cgutils.memset(builder, pointer, args[1], 0)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@njit(nogil=True)
def pack_b(
    pack_panel: int,
    to: int,
    source: int,
    cols: int,
    panel_cols: int,
    taps: int,
    tap_stride: int,
    depth: int,
    row: int,
    size: int,
) -> None:
    """to[panel][tap][depth][NR] = source[tap][depth][cols]; strides in elements of `size` bytes."""
    for first in range(0, cols, panel_cols):
        for tap in range(taps):
            call_address(pack_panel, to, source + (tap * tap_stride + first) * size, row, depth,
                         min(panel_cols, cols - first))  # fmt: skip
            to += depth * panel_cols * size


@njit(nogil=True)
def pack_image(
    copy_rows: int,
    to: int,
    image: int,
    first_row: int,
    first_col: int,
    rows: int,
    cols: int,
    height: int,
    width: int,
    channels: int,
    depth: int,
    to_pixel: int,
    size: int,
) -> None:
    """to[rows][cols][to_pixel] = image[first_row.., first_col.., :depth], zero outside the image.

    `first_row` and `first_col` count from the image's corner and are negative in the padding;
    `image` points at the first channel wanted of pixel (0, 0).
    """
    left = min(max(-first_col, 0), cols)
    inside = max(min(width - first_col, cols) - left, 0)
    for r in range(rows):
        line = to + r * cols * to_pixel * size
        y = first_row + r
        if y < 0 or y >= height or inside == 0:
            fill_zero(line, cols * to_pixel * size)
            continue
        if left > 0:
            fill_zero(line, left * to_pixel * size)
        start = line + left * to_pixel * size
        source = image + (y * width + first_col + left) * channels * size
        if depth == channels and to_pixel == depth:
            call_address(copy_rows, start, source, 0, 0, 1, inside * depth)
        else:
            call_address(copy_rows, start, source, to_pixel, channels, inside, depth)
        right = cols - left - inside
        if right > 0:
            fill_zero(start + inside * to_pixel * size, right * to_pixel * size)
