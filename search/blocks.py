"""Wanted sizes of blocks, snapped to sizes that cut a dim into equal parts."""

from math import log

from search.parameters import WHOLE


def balanced_chunk(extent: int, wanted: int, unit: int = 1) -> int:
    """The depth near `wanted` that cuts `extent` into equal chunks, the last a little shorter.

    A chunk is whole units, the elements that are multiplied at once.
    """
    if wanted == WHOLE or wanted >= extent:
        return extent
    chunks = max(1, round(extent / wanted))
    return min(extent, -(-extent // (chunks * unit)) * unit)


def equal_block(extent: int, wanted: int, unit: int) -> int:
    """The multiple of `unit` near `wanted` that cuts the panels of `extent` into equal blocks."""
    panels = -(-extent // unit)
    if wanted == WHOLE or wanted >= extent:
        return panels * unit
    divisors = [d for d in range(1, panels + 1) if panels % d == 0]
    return unit * min(divisors, key=lambda d: abs(log(d * unit / wanted)))
