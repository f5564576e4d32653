"""Strides in cache lines."""

from tilewise.kernels.native.ir.vectors import LINE_BYTES


def odd_lines(elements: int, size: int) -> int:
    """The least stride of an odd number of cache lines that holds `elements`.

    Rows a power of two apart share a cache set; an odd number of lines visits them all.
    """
    lines = -(-elements * size // LINE_BYTES)
    return (lines | 1) * LINE_BYTES // size
