"""How long a conversion takes, by running it on this machine."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from tilewise.kernels.native.conversion import Array, Conversion, converter
from tilewise.kernels.native.threads.pinning import pin, usable_processors
from tilewise.search.networks.layouts import Layout
from tilewise.search.timing.measure import measure

BUDGET_S = 0.04
_ELEMENT = re.compile(r"b?f(\d+)|[su]?i(\d+)")
Unsigned = type[np.unsignedinteger[Any]]
_TYPES: dict[int, Unsigned] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class CopyTimes:
    """Times of copies on this machine, each measured when it is asked for first."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, ...], str, Layout, Layout], float] = {}

    def of(self, shape: tuple[int, ...], dtype: str, made: Layout, wanted: Layout) -> float:
        """As `conversion_us`."""
        copy = shape, dtype, made, wanted
        if copy not in self._known:
            self._known[copy] = conversion_us(*copy)
        return self._known[copy]


def conversion_us(shape: tuple[int, ...], dtype: str, made: Layout, wanted: Layout) -> float:
    """Microseconds of a copy on one thread, hot; infinity where there is none for such elements.

    Args:
        shape: of the tensor.
        dtype: of its elements, as MLIR writes it.
        made: the layout that is read, without a halo.
        wanted: another one.
    """
    found = conversion_of(shape, dtype, made, wanted)
    if found is None:
        return float("inf")
    conversion, kind = found
    source = np.random.default_rng(0).integers(0, 250, conversion.source_shape).astype(kind)
    return _time_us(converter(conversion), source, np.zeros(conversion.target_shape, kind))


def conversion_of(
    shape: tuple[int, ...], dtype: str, made: Layout, wanted: Layout
) -> tuple[Conversion, Unsigned] | None:
    """The copy of a tensor, and the type in which its elements are moved; None if there is none."""
    kind = _TYPES.get(_bytes(dtype))
    if kind is None or made.halo:
        return None
    halo = tuple(wanted.halo if axis in wanted.around else 0 for axis in range(len(shape)))
    conversion = _in_parts(shape, made, wanted, halo)
    return None if conversion is None else (conversion, kind)


def _in_parts(
    shape: tuple[int, ...], made: Layout, wanted: Layout, halo: tuple[int, ...]
) -> Conversion | None:
    """The copy, with an axis that is cut in blocks as several; None where blocks cut others.

    Of blocks of 32 and of 64 the axis has three: blocks of 64, halves of one, and their elements.
    """
    cut = [one for one in (made, wanted) if one.block]
    axes = {one.order[-1] for one in cut}
    if not cut:
        return Conversion(shape, made.order, wanted.order, halo)
    if len(axes) > 1:
        return None
    (axis,) = axes
    blocks = sorted({one.block for one in cut}, reverse=True)
    lengths = [shape[axis], *blocks]
    if any(more % less for more, less in pairwise(lengths)):
        return None
    sizes = [*(more // less for more, less in pairwise(lengths)), lengths[-1]]
    parts = (axis, *range(len(shape), len(shape) + len(blocks)))
    return Conversion(
        (*shape[:axis], sizes[0], *shape[axis + 1 :], *sizes[1:]),
        _order(made, axis, parts, blocks),
        _order(wanted, axis, parts, blocks),
        (*halo, *(0 for _ in blocks)),
    )


def _order(
    layout: Layout, axis: int, parts: tuple[int, ...], blocks: Sequence[int]
) -> tuple[int, ...]:
    """The order of a layout in terms of the parts of an axis, of which the last are in a block."""
    if not layout.block:
        within = len(parts)
        order = layout.order
    else:
        within = blocks.index(layout.block) + 1
        order = layout.order[:-1]
    outside = [part for one in order for part in (parts[:within] if one == axis else (one,))]
    return (*outside, *parts[within:])


def _time_us(copy: Callable[[Array, Array], None], source: Array, target: Array) -> float:
    def run(times: int) -> None:
        for _ in range(times):
            copy(source, target)

    copy(source, target)  # compiles
    before = pin({usable_processors()[0]})
    try:
        samples, _ = measure(run, BUDGET_S)
    finally:
        if before is not None:
            pin(before)
    return median(samples.times) * 1e6


def _bytes(dtype: str) -> int:
    """Of an element; 0 where that is not known."""
    found = _ELEMENT.fullmatch(dtype)
    return 0 if found is None else max(1, int(found[1] or found[2]) // 8)
