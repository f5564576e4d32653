"""The packs of a whole block, which generated drivers call.

In the language of drivers (`tilewise.kernels.native.language.to_ir`): every value is an i64.
"""

from numba import njit

from tilewise.kernels.native.language.words import call_address, fill


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
    col: int,
    size: int,
    word_depth: int,
    word_size: int,
    sums_size: int,
) -> None:
    """to[panel][tap][words][NR] = source[tap][depth][cols], and column sums behind each panel.

    `row` and `col` are what one row and one column move the source by, in elements of
    `size` bytes (for a transposed B `row` is the step between its stored rows);
    `sums_size` is the bytes of a panel's column sums, 0 where there are none.
    """
    words = (depth + word_depth - 1) // word_depth
    panel_bytes = taps * words * panel_cols * word_size
    for first in range(0, cols, panel_cols):
        sums = to + panel_bytes
        fill(sums, sums_size, 0)
        for tap in range(taps):
            at = source + (tap * tap_stride + first * col) * size
            call_address(pack_panel, to, panel_cols, at, row, depth,
                         min(panel_cols, cols - first), sums)  # fmt: skip
            to += words * panel_cols * word_size
        to = sums + sums_size


@njit(nogil=True)
def pack_transposed_a(
    pack_panel: int,
    lanes: int,
    to: int,
    to_row: int,
    source: int,
    source_row: int,
    rows: int,
    depth: int,
    size: int,
    word_size: int,
) -> None:
    """to[words][rows] = source[depth][rows], in strips of `lanes` rows of A."""
    for first in range(0, rows, lanes):
        call_address(pack_panel, to + first * word_size, to_row, source + first * size, source_row,
                     depth, min(lanes, rows - first), 0)  # fmt: skip


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
    to_size: int,
    zero: int,
) -> None:
    """to[rows][cols][to_pixel] = image[first_row.., first_col.., :depth], zero outside the image.

    `first_row` and `first_col` count from the image's corner and are negative in the padding;
    `image` points at the first channel wanted of pixel (0, 0); `zero` is the byte of a
    packed zero.
    """
    left = min(max(-first_col, 0), cols)
    inside = max(min(width - first_col, cols) - left, 0)
    pixel_bytes = to_pixel * to_size
    for r in range(rows):
        line = to + r * cols * pixel_bytes
        y = first_row + r
        if y < 0 or y >= height or inside == 0:
            fill(line, cols * pixel_bytes, zero)
            continue
        if left > 0:
            fill(line, left * pixel_bytes, zero)
        start = line + left * pixel_bytes
        source = image + (y * width + first_col + left) * channels * size
        if depth == channels and to_pixel == depth:
            call_address(copy_rows, start, 0, source, 0, 1, inside * depth)
        else:
            call_address(copy_rows, start, to_pixel, source, channels, inside, depth)
        right = cols - left - inside
        if right > 0:
            fill(start + inside * pixel_bytes, right * pixel_bytes, zero)


@njit(nogil=True)
def gather_panel(
    copy_patches: int,
    to: int,
    lane_size: int,
    panel_cols: int,
    image: int,
    pixel: int,
    pixels: int,
    start: int,
    depth: int,
    out_width: int,
    height: int,
    width: int,
    filter_rows: int,
    filter_cols: int,
    stride: int,
    dilation: int,
    pad: int,
    size: int,
) -> None:
    """to[depth][NR] = the patches of `pixels` outputs from `pixel` on, zero in the padding.

    Rows are those from `start` of the reduction (channel, filter row, filter column);
    `image` points at the first channel. One call copies what one filter tap reads along one
    output row, for all channels: neighbours in the image, with a zero where it ends.
    """
    taps = filter_rows * filter_cols
    for tap in range(taps):
        first = (start - tap + taps - 1) // taps
        channels = (start + depth - tap + taps - 1) // taps - first
        if channels <= 0:
            continue
        row = to + (first * taps + tap - start) * panel_cols * lane_size
        down = tap // filter_cols * dilation - pad
        across = tap % filter_cols * dilation - pad
        y, x = pixel // out_width, pixel % out_width
        lane = 0
        while lane < panel_cols:
            run = min(out_width - x, pixels - lane)
            # The last run goes on to the end of the panel, with zeros.
            length = run if lane + run < pixels else panel_cols - lane
            source_y, source_x = y * stride + down, x * stride + across
            left, right = 0, run
            if source_x < 0:
                left = (stride - 1 - source_x) // stride
            if source_x + (run - 1) * stride >= width:
                right = max(0, (width - source_x + stride - 1) // stride)
            if source_y < 0 or source_y >= height:
                right = 0
            source = image + ((first * height + source_y) * width + source_x) * size
            call_address(copy_patches, row + lane * lane_size, taps * panel_cols, source,
                         height * width, channels, length, left, right)  # fmt: skip
            lane += length
            x = 0
            y += 1


@njit(nogil=True)
def pack_patches(
    copy_patches: int,
    pack_panel: int,
    to: int,
    raw: int,
    image: int,
    pixel: int,
    pixels: int,
    panel_cols: int,
    start: int,
    depth: int,
    out_width: int,
    height: int,
    width: int,
    filter_rows: int,
    filter_cols: int,
    stride: int,
    dilation: int,
    pad: int,
    size: int,
    word_depth: int,
    word_size: int,
    sums_size: int,
) -> None:
    """to[panel][words][NR] = patches of an nchw image, and column sums behind each panel.

    Words of several rows take two passes, the first to `raw`, which holds one panel.
    """
    words = (depth + word_depth - 1) // word_depth
    for done in range(0, pixels, panel_cols):
        joins = word_depth > 1
        gather_panel(copy_patches, raw if joins else to, size if joins else word_size, panel_cols,
                     image, pixel + done, min(panel_cols, pixels - done), start, depth, out_width,
                     height, width, filter_rows, filter_cols, stride, dilation, pad,
                     size)  # fmt: skip
        sums = to + words * panel_cols * word_size
        if joins:
            fill(sums, sums_size, 0)
            call_address(pack_panel, to, panel_cols, raw, panel_cols, depth, panel_cols, sums)
        to = sums + sums_size
