"""What strides are: of operands in place and packed, of words, of taps."""

from dataclasses import dataclass

Dims = dict[str, int]
"""What one step along each dim moves an operand by, in its elements."""


@dataclass(frozen=True)
class Operand:
    """A factor in place, in stored elements.

    Attributes:
        dims: what one step along each row or column dim (or batch) moves it by.
        stream: what one step of the reduction moves it by.
        is_transposed: whether the reduction is not the contiguous dim of A, or is that of B.
    """

    dims: Dims
    stream: int
    is_transposed: bool = False


@dataclass(frozen=True)
class PackedRows:
    """A in panels, in packed elements.

    Attributes:
        dims: what one step along m, oh, ow moves it by.
        row: between rows (pixels); between steps of the reduction if A is transposed.
    """

    dims: Dims
    row: int


@dataclass(frozen=True)
class Words:
    """Constant strides of the micro-kernel, in words; they fold into addresses.

    Attributes:
        a_row: between rows of A.
        a_step: of A between steps of the reduction.
        b_row: of B between steps of the reduction.
        filled_row: `b_row` in place, where the micro-kernel packs a panel in passing; else 0.
    """

    a_row: int
    a_step: int
    b_row: int
    filled_row: int = 0


@dataclass(frozen=True)
class Taps:
    """The micro-kernel's loops over filter taps.

    Attributes:
        rows, cols: how many there are.
        depth_factor: 1, or kw where (kw, ci) are contiguous and fold into one reduction.
        a_row, a_col: what one filter row or column moves the image by, in words.
        b_source: what one tap moves B by in place, in stored elements.
    """

    rows: int = 1
    cols: int = 1
    depth_factor: int = 1
    a_row: int = 0
    a_col: int = 0
    b_source: int = 0


@dataclass(frozen=True)
class Strides:
    """All strides of a schedule: of operands in place, of packed A, of the micro-kernel."""

    a: Operand
    b: Operand
    c: Dims
    bias: Dims
    packed_a: PackedRows
    words: Words
    taps: Taps = Taps()
