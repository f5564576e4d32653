"""The functions that macro-kernels call: packs and transforms of a whole block, and the barrier;
and those of the threads that run them.

They are in the language of macro-kernels (`tilewise.kernels.native.language.compiler`), and Numba
compiles them as well: every value is an i64. Sizes are in elements unless a name says bytes.
"""

from typing import Any

from numba import njit

from tilewise.kernels.native.language.intrinsics import (
    add_shared,
    call_address,
    fill,
    offer_core,
    pause,
    read_shared,
    word,
    write_shared,
)
from tilewise.kernels.native.language.shared_words import (
    ARRIVED,
    BARRIER_SPINS,
    FUNCTION,
    GENERATION,
    PARTS,
    PHASE,
)


@njit(nogil=True)
def pack_b(
    pack_panel: int, to: int, source: int, cols: int, panel_cols: int, taps: int, tap_stride: int,
    depth: int, rows: int, row: int, col: int, size: int, word_depth: int, word_size: int,
    sums_size: int, zero: int,
) -> None:  # fmt: skip
    """Pack to[panel][tap][words][NR] = source[tap][depth][cols], column sums after each panel.

    `rows` of the source go to all panels before the next ones. `row` and `col` are what one row
    and one column move the source by, in elements of `size` bytes (for a transposed B `row` is the
    step between its stored rows); `sums_size` is the bytes of a panel's column sums, 0 for none;
    `zero` is the address of the zero point.
    """
    tap_bytes = (depth + word_depth - 1) // word_depth * panel_cols * word_size
    panel_bytes = taps * tap_bytes + sums_size
    for first in range(0, cols, panel_cols):
        fill(to + (first // panel_cols + 1) * panel_bytes - sums_size, sums_size, 0)
    for tap in range(taps):
        for start in range(0, depth, rows):
            before = tap * tap_bytes + start // word_depth * panel_cols * word_size
            for first in range(0, cols, panel_cols):
                at = source + (tap * tap_stride + start * row + first * col) * size
                panel = to + first // panel_cols * panel_bytes
                call_address(pack_panel, panel + before, panel_cols, at, row,
                             min(rows, depth - start), min(panel_cols, cols - first),
                             panel + panel_bytes - sums_size, zero)  # fmt: skip


@njit(nogil=True)
def pack_transposed_a(
    pack_panel: int, lanes: int, to: int, to_row: int, source: int, source_row: int, rows: int,
    depth: int, size: int, word_size: int, zero: int,
) -> None:  # fmt: skip
    """Pack to[words][rows] = source[depth][rows], in strips of `lanes` rows of A."""
    for first in range(0, rows, lanes):
        call_address(pack_panel, to + first * word_size, to_row, source + first * size, source_row,
                     depth, min(lanes, rows - first), 0, zero)  # fmt: skip


@njit(nogil=True)
def first_byte(address: int) -> Any:
    """Return the lowest byte of the i32 at an address, from the whole word that holds it."""
    if address % 8 == 4:
        return word(address - 4, 0) // 4294967296 % 256
    return word(address, 0) % 256


@njit(nogil=True)
def pack_image(
    copy_rows: int, to: int, image: int, first_row: int, first_col: int, rows: int, cols: int,
    height: int, width: int, channels: int, depth: int, to_pixel: int, size: int, to_size: int,
    packed_zero: int, zero: int,
) -> None:  # fmt: skip
    """Pack to[rows][cols][to_pixel] = image[first_row.., first_col.., :depth], zero outside it.

    `first_row` and `first_col` count from the image's corner and are negative in the padding;
    `image` points at the first channel wanted of pixel (0, 0); `packed_zero` is the
    byte of a packed zero, `zero` the address of the zero point.
    """
    left = min(max(-first_col, 0), cols)
    inside = max(min(width - first_col, cols) - left, 0)
    pixel_bytes = to_pixel * to_size
    for r in range(rows):
        line = to + r * cols * pixel_bytes
        y = first_row + r
        if y < 0 or y >= height or inside == 0:
            fill(line, cols * pixel_bytes, packed_zero)
            continue
        if left > 0:
            fill(line, left * pixel_bytes, packed_zero)
        start = line + left * pixel_bytes
        source = image + (y * width + first_col + left) * channels * size
        if depth == channels and to_pixel == depth:
            call_address(copy_rows, start, 0, source, 0, 1, inside * depth, zero)
        else:
            call_address(copy_rows, start, to_pixel, source, channels, inside, depth, zero)
        right = cols - left - inside
        if right > 0:
            fill(start + inside * pixel_bytes, right * pixel_bytes, packed_zero)


@njit(nogil=True)
def gather_panel(
    copy_patches: int, to: int, lane_size: int, panel_cols: int, image: int, pixel: int,
    pixels: int, start: int, depth: int, out_height: int, out_width: int, slices: int, height: int,
    width: int, filter_slices: int, filter_rows: int, filter_cols: int, stride_slices: int,
    stride_down: int, stride_across: int, dilation_slices: int, dilation_down: int,
    dilation_across: int, pad_front: int, pad_top: int, pad_left: int, size: int, zero: int,
) -> None:  # fmt: skip
    """Gather to[depth][NR] = the patches of `pixels` outputs from `pixel` on, zero in the padding.

    Rows are those from `start` of the reduction (channel, filter slice, row, column);
    `image`, of one slice unless it is a volume, points at the first channel. One call copies what
    one filter tap reads along one output row, for all channels: neighbours in the image, with a
    zero where it ends.
    """
    taps_of_slice = filter_rows * filter_cols
    taps = filter_slices * taps_of_slice
    for tap in range(taps):
        first = (start - tap + taps - 1) // taps
        channels = (start + depth - tap + taps - 1) // taps - first
        if channels <= 0:
            continue
        row = to + (first * taps + tap - start) * panel_cols * lane_size
        along = tap // taps_of_slice * dilation_slices - pad_front
        down = tap % taps_of_slice // filter_cols * dilation_down - pad_top
        across = tap % filter_cols * dilation_across - pad_left
        y, x = pixel // out_width, pixel % out_width
        lane = 0
        while lane < panel_cols:
            run = min(out_width - x, pixels - lane)
            # The last run goes on to the end of the panel, with zeros.
            length = run if lane + run < pixels else panel_cols - lane
            source_z = y // out_height * stride_slices + along
            source_y, source_x = y % out_height * stride_down + down, x * stride_across + across
            left, right = 0, run
            if source_x < 0:
                left = (stride_across - 1 - source_x) // stride_across
            if source_x + (run - 1) * stride_across >= width:
                right = max(0, (width - source_x + stride_across - 1) // stride_across)
            if source_z < 0 or source_z >= slices or source_y < 0 or source_y >= height:
                right = 0
            line = (first * slices + source_z) * height + source_y
            source = image + (line * width + source_x) * size
            call_address(copy_patches, row + lane * lane_size, taps * panel_cols, source,
                         slices * height * width, channels, length, left, right, zero)  # fmt: skip
            lane += length
            x = 0
            y += 1


@njit(nogil=True)
def pack_patches(
    copy_patches: int, pack_panel: int, to: int, raw: int, image: int, pixel: int, pixels: int,
    panel_cols: int, start: int, depth: int, out_height: int, out_width: int, slices: int,
    height: int, width: int, filter_slices: int, filter_rows: int, filter_cols: int,
    stride_slices: int, stride_down: int, stride_across: int, dilation_slices: int,
    dilation_down: int, dilation_across: int, pad_front: int, pad_top: int, pad_left: int,
    size: int, word_depth: int, word_size: int, sums_size: int, zero: int,
) -> None:  # fmt: skip
    """Pack to[panel][words][NR] = patches of an nchw image, column sums after each panel.

    Words of several rows take two passes, the first to `raw`, which holds one panel.
    """
    words = (depth + word_depth - 1) // word_depth
    for done in range(0, pixels, panel_cols):
        joins = word_depth > 1
        gather_panel(copy_patches, raw if joins else to, size if joins else word_size, panel_cols,
                     image, pixel + done, min(panel_cols, pixels - done), start, depth, out_height,
                     out_width, slices, height, width, filter_slices, filter_rows, filter_cols,
                     stride_slices, stride_down, stride_across, dilation_slices, dilation_down,
                     dilation_across, pad_front, pad_top, pad_left, size, zero)  # fmt: skip
        sums = to + words * panel_cols * word_size
        if joins:
            fill(sums, sums_size, 0)
            call_address(pack_panel, to, panel_cols, raw, panel_cols, depth, panel_cols, sums,
                         zero)  # fmt: skip
        to = sums + sums_size


@njit(nogil=True)
def transform_tiles(
    transform_image: int, to: int, to_tile: int, to_point: int, first: int, end: int, image: int,
    of_image: int, line: int, pixel: int, channel: int, lines_down: int, pixels_across: int,
    tiles_down: int, tiles_across: int, height: int, width: int, channels: int, pad_top: int,
    pad_left: int, size: int,
) -> None:  # fmt: skip
    """Transform the image under each tile from `first` to `end`, to[point][tile][channels].

    `of_image`, `line`, `pixel` and `channel` are what one of each moves the image by. A tile begins
    `lines_down` below the one above it, and `pixels_across` after the one before it.
    """
    for tile in range(first, end):
        row = tile // tiles_across
        y = row % tiles_down * lines_down - pad_top
        x = tile % tiles_across * pixels_across - pad_left
        source = image + (row // tiles_down * of_image + y * line + x * pixel) * size
        call_address(transform_image, to, to_point, source, line, pixel, channel, channels,
                     -y, height - y, -x, width - x)  # fmt: skip
        to += to_tile * size


@njit(nogil=True)
def transform_strided_rows(
    transform_image: int, to: int, to_group: int, to_point: int, first: int, end: int, image: int,
    of_image: int, line: int, pixel: int, part: int, rows_of_group: int, rows_down: int,
    rows_across: int, rows: int, parts: int, depth: int, size: int,
) -> None:  # fmt: skip
    """Sum each group of rows from `first` to `end`, to[point][group][depth].

    A row is a pixel; `of_image`, `line` and `pixel` are what one of each moves the image by. The
    rows of a group are as far apart as its first two, and have `parts` parts of `depth` elements,
    `part` apart.
    """
    for group in range(first, end):
        row = group * rows_of_group
        here = row // rows_across
        at = here // rows_down * of_image + here % rows_down * line + row % rows_across * pixel
        row += 1
        here = row // rows_across
        after = here // rows_down * of_image + here % rows_down * line + row % rows_across * pixel
        call_address(transform_image, to, to_point, image + at * size, after - at, part, 1, depth,
                     0, rows - row + 1, 0, parts)  # fmt: skip
        to += to_group * size


@njit(nogil=True)
def transform_products(
    transform_result: int, result: int, of_image: int, line: int, pixel: int, channel: int,
    bias: int, cols: int, source: int, source_tile: int, source_point: int, first: int, end: int,
    tile_height: int, tile_width: int, tiles_down: int, tiles_across: int, out_height: int,
    out_width: int, size: int,
) -> None:  # fmt: skip
    """Transform products to the tiles of `result` from `first` to `end`, `cols` channels of them.

    `result` and `bias` point at the first of those channels; `of_image`, `line`, `pixel` and
    `channel` are what one of each moves the result by.
    """
    for tile in range(first, end):
        row = tile // tiles_across
        y = row % tiles_down * tile_height
        x = tile % tiles_across * tile_width
        to = result + (row // tiles_down * of_image + y * line + x * pixel) * size
        call_address(transform_result, to, line, pixel, channel, cols, source, source_point, bias,
                     out_height - y, out_width - x)  # fmt: skip
        source += source_tile * size


@njit(nogil=True)
def transform_weights(
    transform_filter: int, to: int, to_panel: int, to_point: int, panel_cols: int, source: int,
    line: int, tap: int, row: int, cols: int, depth: int, size: int,
) -> None:  # fmt: skip
    """Transform filter[lines][taps of one][depth][cols] to[panel][point][depth][NR]."""
    for first in range(0, cols, panel_cols):
        call_address(transform_filter, to, to_point, panel_cols, source + first * size, line, tap,
                     row, min(panel_cols, cols - first), depth)  # fmt: skip
        to += to_panel * size


@njit(nogil=True)
def transform_transposed_weights(
    transform_filter: int, pack_panel: int, to: int, to_panel: int, to_point: int, panel_cols: int,
    panel: int, source: int, parts: int, part: int, stored_row: int, line: int, tap: int, row: int,
    cols: int, depth: int, size: int,
) -> None:  # fmt: skip
    """Transform a B that is stored [parts * part][stored_row], as `transform_weights` does.

    `cols` of the first part's columns are transposed to `panel`, a panel at a time, and after each
    panel those of the other parts. `line`, `tap` and `row` are in columns of what is transposed.
    """
    for first in range(0, cols, panel_cols):
        left = min(panel_cols, cols - first)
        for number in range(0, parts):
            at = source + (number * part + first) * stored_row * size
            call_address(pack_panel, panel + number * stored_row * panel_cols * size, panel_cols,
                         at, stored_row, stored_row, left, 0, 0)  # fmt: skip
        call_address(transform_filter, to, to_point, panel_cols, panel, line * panel_cols,
                     tap * panel_cols, row * panel_cols, panel_cols, depth)  # fmt: skip
        to += to_panel * size


@njit(nogil=True)
def wait_for_all(barrier: int, parts: int) -> None:
    """Return once `parts` threads have called this with the same barrier.

    A sense-reversing barrier (Mellor-Crummey and Scott, Algorithms for Scalable Synchronization on
    Shared-Memory Multiprocessors, ACM TOCS 9(1), 1991): the last to arrive changes the phase,
    which all others watch.
    """
    phase = read_shared(barrier, PHASE)
    if add_shared(barrier, ARRIVED, 1) + 1 == parts:
        write_shared(barrier, ARRIVED, 0)
        write_shared(barrier, PHASE, phase + 1)
        return
    spins = 0
    while read_shared(barrier, PHASE) == phase:
        pause()
        spins += 1
        if spins > BARRIER_SPINS:
            offer_core()


@njit("int64(int64, int64, int64, int64)", nogil=True)
def serve(board: int, helper: int, seen: int, spins: int) -> int:
    """Run what is put on the board until `spins` looks find nothing new; return the last seen."""
    left = spins
    while left > 0:
        now = read_shared(board, GENERATION)
        if now == seen:
            pause()
            left -= 1
            continue
        seen = now
        left = spins
        call_address(word(board, FUNCTION), word(board, PARTS + helper))
    return seen


@njit("void(int64, int64)", nogil=True)
def publish(board: int, generation: int) -> None:
    """Make the work on the board visible to the other threads, by its generation."""
    write_shared(board, GENERATION, generation)
