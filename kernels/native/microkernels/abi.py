"""What a macro-kernel and the functions that it calls agree on: their names, arguments and flags.

All arguments are i64. The macro-kernel finds a function at the address that a parameter of the
function's name holds.
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tilewise.kernels.native.strides import VOLUME
from tilewise.kernels.nest import Store

CALLED_BY_ALL = ("full", "edge", "pack_a_panel", "pack_b_panel", "copy_rows")
"""What any macro-kernel may call, by the names of its parameters.

The micro-kernel for whole tiles, and that for tiles which C cuts off; the packs of one strip of a
transposed A, of one panel of B, and of rows of A.
"""

FILLING = "filling"
"""The micro-kernel that fills a panel of B; for macro-kernels that let it."""

COPY_PATCHES = "copy_patches"
"""The copy of pixels of an image's channels to rows of B; for macro-kernels that gather patches."""

PAST_CACHES = "past_caches"
"""The micro-kernel that writes past the caches; for macro-kernels whose results may be aligned."""

TRANSFORMS = ("transform_image", "transform_filter", "transform_result")
"""The transforms of a tile, of a panel of the filter, and of a tile's products."""

CONFIGURE, RELEASE = "configure", "release"
"""What gives a thread its tile registers, and what gives them back, without arguments."""

FINISH_ROWS = "finish_rows"
"""What makes rows of C of whole sums, where they have memory of their own."""

WIDEN = "widen"
"""What widens the codes of a panel of quantised weights, for matrix tiles."""

FUNCTIONS = (
    *CALLED_BY_ALL, FILLING, COPY_PATCHES, PAST_CACHES, *TRANSFORMS, CONFIGURE, RELEASE,
    FINISH_ROWS, WIDEN,
)  # fmt: skip
"""All that a macro-kernel may call."""

LOAD_C, ADD_BIAS, RELU = 1, 2, 4
"""Flags of a call: what a tile starts from besides zero, and what ends it."""

CEILING = 8
"""Not a flag of a call, but of all that a micro-kernel may do: its relu ends at 6, too."""

FROM_WORDS, TO_WORDS = 16, 32
"""Flags of a skinny GEMM's call: sums are, or shall be left, in the order of joined words."""

T = TypeVar("T")


@dataclass(frozen=True)
class Arguments(Generic[T]):
    """The arguments of a micro-kernel, in their order: as values in IR, or as printed text.

    Attributes:
        a, b, c, bias: addresses of the tile.
        c_row: elements between rows of C.
        a_tap_row, a_tap_col: words of A between rows and columns of the filter.
        b_tap: words of B between filter taps.
        tap_rows, tap_cols: rows and columns of the filter.
        depth: words of the reduction.
        flags: of `LOAD_C`, `ADD_BIAS` and `RELU`.
        rows, cols: elements of C that exist.
        extra: address of the correction that an offset A needs, or of the panel to fill.
        ahead: address of the rows of B's next block that this call prefetches.
        ahead_step: bytes between those rows.
        zero: address of A's zero point; 0 for none.
    """

    a: T
    b: T
    c: T
    bias: T
    c_row: T
    a_tap_row: T
    a_tap_col: T
    b_tap: T
    tap_rows: T
    tap_cols: T
    depth: T
    flags: T
    rows: T
    cols: T
    extra: T
    ahead: T
    ahead_step: T
    zero: T


@dataclass(frozen=True)
class VolumeArguments(Arguments[T]):
    """The arguments of a micro-kernel that loops over slices of the filter as well.

    Attributes:
        a_tap_slice: words of A between slices of the filter.
        tap_slices: slices of the filter.
    """

    a_tap_slice: T
    tap_slices: T


@dataclass(frozen=True)
class DepthwiseArguments(Generic[T]):
    """The arguments of a depthwise micro-kernel, in their order: as values in IR, or as text.

    Attributes:
        image, c: addresses of one image, and of its result.
        weights, bias: addresses of the whole filter, and of the whole bias.
        line, line_end: of the result, the first line that a call computes and the one behind the
            last.
        channel, channel_end: the same of its channels.
        image_zero, weights_zero: addresses of zero points; 0 for none.
    """

    image: T
    weights: T
    c: T
    bias: T
    line: T
    line_end: T
    channel: T
    channel_end: T
    image_zero: T
    weights_zero: T


@dataclass(frozen=True)
class SkinnyGemmArguments(Generic[T]):
    """The arguments of a skinny-GEMM micro-kernel, in their order: as values in IR, or as text.

    Attributes:
        a: address of the block's first row, where the chunk begins.
        b: address of the chunk's first row of B, at the first column.
        c, bias: addresses of the block's first row and column.
        c_row: elements between rows of C.
        depth: rows of B in the chunk.
        flags: of `LOAD_C`, `ADD_BIAS`, `RELU`, `FROM_WORDS` and `TO_WORDS`.
        rows, cols: of the block.
        wrap: bytes from a row of the block's end to where the next chunk's row begins.
        sums: address of the block's panels of sums between chunks, one for each whole group of
            columns, where register tiles share words.
    """

    a: T
    b: T
    c: T
    bias: T
    c_row: T
    depth: T
    flags: T
    rows: T
    cols: T
    wrap: T
    sums: T


def arguments_for(taps: int) -> type[Arguments[Any]]:
    """Return the arguments of a micro-kernel with so many loops over filter taps."""
    return VolumeArguments if taps == VOLUME else Arguments


def epilogue_flags(store: Store) -> int:
    """Return which of `ADD_BIAS`, `RELU` and `CEILING` a store asks of micro-kernels."""
    ends = store.epilogue
    if store.finishes_apart or not ends.is_relu:
        return ADD_BIAS * store.has_bias
    return ADD_BIAS * store.has_bias | RELU | CEILING * (ends.ceiling is not None)


def ceiling_of(epilogue: int) -> int | None:
    """Return where the relu of a micro-kernel with an epilogue ends; None for nowhere."""
    return 6 if epilogue & CEILING else None
