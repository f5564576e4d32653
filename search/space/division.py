"""Sizes that cut a dim into equal parts."""

import functools
from math import log

from tilewise.search.space.points import WHOLE


def balanced_chunk(extent: int, wanted: int, unit: int = 1) -> int:
    """The depth near `wanted` that cuts `extent` into equal chunks, the last a little shorter.

    A chunk is whole units, the elements that are multiplied at once.
    """
    if wanted == WHOLE or wanted >= extent:
        return extent
    chunks = max(1, round(extent / wanted))
    return min(extent, -(-extent // (chunks * unit)) * unit)


@functools.lru_cache(maxsize=4096)
def equal_block(extent: int, wanted: int, unit: int) -> int:
    """The multiple of `unit` near `wanted` that cuts the panels of `extent` into equal blocks."""
    panels = -(-extent // unit)
    if wanted == WHOLE or wanted >= extent:
        return panels * unit
    return unit * min(_divisors(panels), key=lambda d: abs(log(d * unit / wanted)))


@functools.lru_cache(maxsize=1024)
def _divisors(number: int) -> tuple[int, ...]:
    return tuple(d for d in range(1, number + 1) if number % d == 0)
