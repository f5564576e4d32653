"""The parameters of drivers: their names, their order, and what each is.

A driver takes the address of its parameters, which are i64s: those of `fixed_parameters`, then
extents, bounds, steps and strides as its loops ask for them. The fields of the records below are
the names; whoever prints a driver, fills its parameters or exports it takes them from here.
"""

from dataclasses import dataclass, fields
from typing import Generic, Literal, TypeVar

from tilewise.kernels.native.microkernels.abi import (
    CALLED_BY_ALL,
    COPY_PATCHES,
    FILLING,
    PAST_CACHES,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Addresses(Generic[T]):
    """What a call is bound to: integers, or their text.

    Attributes:
        a, b, c, bias: the operands, by their roles; 0 for one that there is not.
        a_panels, b_panels: memory for packed A and packed B.
    """

    a: T
    b: T
    c: T
    bias: T
    a_panels: T
    b_panels: T


@dataclass(frozen=True)
class Control:
    """What a caller asks for, besides.

    Attributes:
        count: whether micro-kernel calls and packs are counted; they are added to it.
        repeat: how often C is computed.
    """

    count: int = 0
    repeat: int = 1


@dataclass(frozen=True)
class Elements:
    """Sizes of elements and words.

    Attributes:
        size: bytes of an element of A and B as it is stored.
        out_size: of an element of C.
        packed_size: of a packed element.
        packed_zero: the byte of a packed zero.
        word_depth: elements of a word.
        word_size: bytes of a word.
        sums_size: bytes of the column sums behind a panel of B.
    """

    size: int
    out_size: int
    packed_size: int
    packed_zero: int
    word_depth: int
    word_size: int
    sums_size: int


@dataclass(frozen=True)
class TapLoops:
    """The micro-kernel's vectors, and its loops over filter taps.

    Attributes:
        lanes: elements of a vector.
        taps: filter taps that a panel of B holds.
        tap_rows, tap_cols: filter rows and columns that a call loops over.
        depth_factor: filter columns that are a part of the reduction.
    """

    lanes: int
    taps: int
    tap_rows: int
    tap_cols: int
    depth_factor: int


@dataclass(frozen=True)
class Moves:
    """What steps along the reduction and the filter move A and B by.

    Attributes:
        a_tap_row, a_tap_col: a filter row or column; words of A.
        b_tap_source: a filter tap; elements of B in place.
        a_stream, b_stream: a step of the reduction; elements in place.
        a_row_source: a row of A in place, in elements.
    """

    a_tap_row: int
    a_tap_col: int
    b_tap_source: int
    a_stream: int
    b_stream: int
    a_row_source: int


@dataclass(frozen=True)
class PanelsAhead:
    """Bytes of weights that are packed before the driver runs: of a chunk, of a batch."""

    chunk_bytes: int = 0
    batch_bytes: int = 0


@dataclass(frozen=True)
class Calls:
    """What else a call of the micro-kernel needs.

    Attributes:
        unroll: steps of the reduction in an iteration.
        packed_row: packed elements between rows of A's panels.
        c_row: elements between rows of C.
        flags_first, flags_later, flags_last: of the calls for the first chunk of the reduction,
            for any later one, and for the last besides.
    """

    unroll: int
    packed_row: int
    c_row: int
    flags_first: int
    flags_later: int
    flags_last: int


@dataclass(frozen=True)
class ImageSizes:
    """An image that is packed with its padding.

    Attributes:
        height, width, channels: of the image, or of a block of its channels.
        conv_stride, pad: of the convolution.
        row_reach: image rows that one output row reads.
        packed_cols: pixels of a packed line.
    """

    height: int
    width: int
    channels: int
    conv_stride: int
    pad: int
    row_reach: int
    packed_cols: int


@dataclass(frozen=True)
class PatchSizes:
    """An image whose patches are gathered to panels of B.

    Attributes:
        raw_at: bytes from the panels to the memory of a gathered, not yet packed one.
        out_width: columns of the output.
        height, width: of the image.
        filter_rows, filter_cols: of the filter.
        conv_stride, dilation, pad: of the convolution.
    """

    raw_at: int
    out_width: int
    height: int
    width: int
    filter_rows: int
    filter_cols: int
    conv_stride: int
    dilation: int
    pad: int


@dataclass(frozen=True)
class TransformSizes:
    """Tiles whose products are of transformed operands.

    Attributes:
        tile_height, tile_width: pixels of a tile of the output.
        lines_down, pixels_across: pixels of the image from a tile to the next.
        tiles_down, tiles_across: tiles of an image.
        out_height, out_width: of the output.
        image_size, image_line, image_pixel, image_channel: elements from an image to the next, and
            from a line, pixel or channel of one.
        result_size, result_line, result_pixel, result_channel: the same of the output.
    """

    tile_height: int
    tile_width: int
    lines_down: int
    pixels_across: int
    tiles_down: int
    tiles_across: int
    out_height: int
    out_width: int
    image_size: int
    image_line: int
    image_pixel: int
    image_channel: int
    result_size: int
    result_line: int
    result_pixel: int
    result_channel: int


@dataclass(frozen=True)
class StridedRows:
    """Rows of A that are pixels which a stride leaves.

    Attributes:
        rows_across, rows_down: of an image.
        row_pixel, row_line: elements from such a pixel to the next, and from a line of them.
    """

    rows_across: int
    rows_down: int
    row_pixel: int
    row_line: int


@dataclass(frozen=True)
class Transformed:
    """Where transformed operands and their products lie.

    Attributes:
        image_point, filter_point, product_point: elements between points of the transformed
            image and filter and of their products.
        filter_panel: elements of a panel of the transformed filter.
        products_at: bytes from the transformed image to the products.
        turned_at: bytes from the transformed filter to the memory of a transposed panel.
    """

    image_point: int
    filter_point: int
    product_point: int
    filter_panel: int
    products_at: int
    turned_at: int


STREAMS = "streams"
"""Parts of the reduction that a sweep's chunk has its rows from; a parameter where it is asked for.
"""

TRANSFORMED = "transformed"
"""Where blocks of C that were transformed are counted, with the other counts."""


@dataclass(frozen=True)
class Threads:
    """What threads meet at: the address of a barrier, and how many they are."""

    barrier: int
    parts: int


@dataclass(frozen=True)
class RegisterTile:
    """A whole tile of C; a parameter where it is first asked for."""

    register_rows: int
    register_cols: int


@dataclass(frozen=True)
class RowsAhead:
    """What an iteration fetches of a row of B's next block; asked for where it is needed.

    Attributes:
        fetch_parts: iterations that a row takes, in different calls.
        fetch_bytes: of a row in each.
    """

    fetch_parts: int = 1
    fetch_bytes: int = 0


def names_of(record: type) -> tuple[str, ...]:
    """The names of a record's parameters, in their order."""
    return tuple(field.name for field in fields(record))


def values_of(*records: object) -> dict[str, int]:
    """The parameters of records, by name."""
    return {name: value for record in records for name, value in vars(record).items()}


COUNT, REPEAT = names_of(Control)
BARRIER, PARTS = names_of(Threads)

_FIXED = (
    *names_of(Addresses), *CALLED_BY_ALL, *names_of(Control), *names_of(Elements),
    *names_of(TapLoops), *names_of(Moves), *names_of(PanelsAhead), *names_of(Calls),
)  # fmt: skip


def fixed_parameters(
    *, packs_image: bool, gathers: bool, fills: bool, is_parallel: bool, writes_past_caches: bool
) -> tuple[str, ...]:
    """The parameters that a driver has whatever its loops are, in their order.

    Args:
        packs_image: whether it packs blocks of an image.
        gathers: whether it gathers patches.
        fills: whether a micro-kernel packs panels in passing.
        is_parallel: whether several threads run it.
        writes_past_caches: whether a micro-kernel writes past the caches.
    """
    return (
        *_FIXED,
        *(names_of(ImageSizes) if packs_image else ()),
        *((COPY_PATCHES, *names_of(PatchSizes)) if gathers else ()),
        *((FILLING,) if fills else ()),
        *(names_of(Threads) if is_parallel else ()),
        *((PAST_CACHES,) if writes_past_caches else ()),
    )


def extent(dim: str) -> str:
    """How long a dim is."""
    return f"{dim}_extent"


def bounds(dim: str) -> tuple[str, str]:
    """Where a thread's part of a dim begins and ends."""
    return f"{dim}_first", f"{dim}_end"


def step(dim: str, level: int) -> str:
    """The step of a loop over blocks of a dim, of which the outermost has level 0."""
    return f"{dim}_step{level}"


def stride(operand: Literal["a", "b", "c", "bias", "ap"], dim: str) -> str:
    """What one step along a dim moves an operand by; `ap` is packed A."""
    return f"{operand}_{dim}"
