"""The transforms of a whole block of tiles, which generated drivers call.

In the language of drivers (`tilewise.kernels.native.language.to_ir`): every value is an i64. Tiles
are counted through all images, row by row; strides are in elements of `size` bytes.
"""

from numba import njit

from tilewise.kernels.native.language.words import call_address


@njit(nogil=True)
def transform_tiles(
    transform_image: int,
    to: int,
    to_tile: int,
    to_point: int,
    first: int,
    end: int,
    image: int,
    of_image: int,
    line: int,
    pixel: int,
    channel: int,
    lines_down: int,
    pixels_across: int,
    tiles_down: int,
    tiles_across: int,
    height: int,
    width: int,
    channels: int,
    pad: int,
    size: int,
) -> None:
    """to[point][tile][channels] = the transformed image under each tile from `first` to `end`.

    `of_image`, `line`, `pixel` and `channel` are what one of each moves the image by. A tile begins
    `lines_down` below the one above it, and `pixels_across` behind the one before it.
    """
    for tile in range(first, end):
        row = tile // tiles_across
        y = row % tiles_down * lines_down - pad
        x = tile % tiles_across * pixels_across - pad
        source = image + (row // tiles_down * of_image + y * line + x * pixel) * size
        call_address(transform_image, to, to_point, source, line, pixel, channel, channels,
                     -y, height - y, -x, width - x)  # fmt: skip
        to += to_tile * size


@njit(nogil=True)
def transform_strided_rows(
    transform_image: int,
    to: int,
    to_group: int,
    to_point: int,
    first: int,
    end: int,
    image: int,
    of_image: int,
    line: int,
    pixel: int,
    part: int,
    rows_of_group: int,
    rows_down: int,
    rows_across: int,
    rows: int,
    parts: int,
    depth: int,
    size: int,
) -> None:
    """to[point][group][depth] = the sums of each group of rows from `first` to `end`.

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
        beside = here // rows_down * of_image + here % rows_down * line + row % rows_across * pixel
        call_address(transform_image, to, to_point, image + at * size, beside - at, part, 1, depth,
                     0, rows - row + 1, 0, parts)  # fmt: skip
        to += to_group * size


@njit(nogil=True)
def transform_products(
    transform_result: int,
    result: int,
    of_image: int,
    line: int,
    pixel: int,
    channel: int,
    bias: int,
    cols: int,
    source: int,
    source_tile: int,
    source_point: int,
    first: int,
    end: int,
    tile_height: int,
    tile_width: int,
    tiles_down: int,
    tiles_across: int,
    out_height: int,
    out_width: int,
    size: int,
) -> None:
    """The tiles of `result` from `first` to `end`, `cols` channels of them, from products.

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
    transform_filter: int,
    to: int,
    to_panel: int,
    to_point: int,
    panel_cols: int,
    source: int,
    line: int,
    tap: int,
    row: int,
    cols: int,
    depth: int,
    size: int,
) -> None:
    """to[panel][point][depth][NR] = the transformed filter[lines][taps of one][depth][cols]."""
    for first in range(0, cols, panel_cols):
        call_address(transform_filter, to, to_point, panel_cols, source + first * size, line, tap,
                     row, min(panel_cols, cols - first), depth)  # fmt: skip
        to += to_panel * size


@njit(nogil=True)
def transform_turned_weights(
    transform_filter: int,
    pack_panel: int,
    to: int,
    to_panel: int,
    to_point: int,
    panel_cols: int,
    turned: int,
    source: int,
    filter_rows: int,
    filter_cols: int,
    cols: int,
    depth: int,
    size: int,
) -> None:
    """The same of filter[cols][depth][taps], whose panels are transposed to `turned` first."""
    taps = filter_rows * filter_cols
    for first in range(0, cols, panel_cols):
        left = min(panel_cols, cols - first)
        call_address(pack_panel, turned, panel_cols, source + first * depth * taps * size,
                     depth * taps, depth * taps, left, 0)  # fmt: skip
        call_address(transform_filter, to, to_point, panel_cols, turned, filter_cols * panel_cols,
                     panel_cols, taps * panel_cols, panel_cols, depth)  # fmt: skip
        to += to_panel * size


@njit(nogil=True)
def transform_turned_quadrants(
    transform_filter: int,
    pack_panel: int,
    to: int,
    to_panel: int,
    to_point: int,
    panel_cols: int,
    turned: int,
    source: int,
    parts: int,
    part: int,
    cols: int,
    depth: int,
    size: int,
) -> None:
    """to[panel][point][depth][NR] = sums of blocks of B, stored [parts * part][parts * depth].

    `cols` of the first part's columns are transposed to `turned`, panel by panel, and behind each
    panel those of the other parts.
    """
    row = parts * depth
    for first in range(0, cols, panel_cols):
        left = min(panel_cols, cols - first)
        for number in range(0, parts):
            at = source + (number * part + first) * row * size
            call_address(pack_panel, turned + number * row * panel_cols * size, panel_cols, at, row,
                         row, left, 0)  # fmt: skip
        call_address(transform_filter, to, to_point, panel_cols, turned, depth * panel_cols,
                     row * panel_cols, panel_cols, panel_cols, depth)  # fmt: skip
        to += to_panel * size
