"""Sizes of blocks that cut a dim in equal parts, near a size that is wanted."""

import functools
from math import log


@functools.lru_cache(maxsize=4096)
def equal_block(extent: int, wanted: int, unit: int) -> int:
    """Return the multiple of `unit` near `wanted` that cuts the panels of `extent` in equal blocks.

    Args:
        extent: of a dim.
        wanted: size of a block; 0 for the whole.
        unit: of the dim, such as the columns of a register tile.
    """
    panels = -(-extent // unit)
    if wanted == 0 or wanted >= extent:
        return panels * unit
    return unit * min(_divisors(panels), key=lambda d: abs(log(d * unit / wanted)))


@functools.lru_cache(maxsize=1024)
def _divisors(number: int) -> tuple[int, ...]:
    return tuple(d for d in range(1, number + 1) if number % d == 0)


def balanced_depth(extent: int, wanted: int, unit: int = 1) -> int:
    """Return the depth near `wanted` that cuts `extent` in equal k-blocks, the last one shorter.

    Args:
        extent: of the reduction.
        wanted: elements; 0 for the whole.
        unit: elements that an instruction multiplies at once; a k-block is whole units.
    """
    if wanted == 0 or wanted >= extent:
        return extent
    count = max(1, round(extent / wanted))
    return min(extent, -(-extent // (count * unit)) * unit)


def part_size(extent: int, parts: int, unit: int) -> int:
    """Return the largest part of `extent` divided in `parts`, in whole units."""
    tiles = -(-extent // unit)
    return -(-tiles // parts) * unit
