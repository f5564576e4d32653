"""Copies of tensors between layouts, and their times on this machine."""

import re
from collections.abc import Callable
from functools import cache, partial
from statistics import median
from typing import Any

import numpy as np

from tilewise.kernels.native.conversion import Conversion, converter
from tilewise.kernels.native.threads.pinning import pin, usable_processors
from tilewise.search.networks.variants import TensorLayout
from tilewise.search.timing.measure import measure

BUDGET_S = 0.04
_ELEMENT = re.compile(r"b?f(\d+)|[su]?i(\d+)")
Unsigned = type[np.unsignedinteger[Any]]
_TYPES: dict[int, Unsigned] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@cache
def conversion_us(
    shape: tuple[int, ...], dtype: str, made: TensorLayout, wanted: TensorLayout
) -> float:
    """Return microseconds of a hot copy on one thread, measured once; infinity if impossible."""
    found = conversion_of(shape, dtype, made, wanted)
    if found is None:
        return float("inf")
    conversion, kind = found
    source = np.random.default_rng(0).integers(0, 250, conversion.source_shape).astype(kind)
    target = np.zeros(conversion.target_shape, kind)
    return hot_us(partial(converter(conversion), source, target))


def conversion_of(
    shape: tuple[int, ...], dtype: str, made: TensorLayout, wanted: TensorLayout
) -> tuple[Conversion, Unsigned] | None:
    """Return the copy of a tensor and the type that its elements are moved as, if possible."""
    kind = _TYPES.get(_bytes(dtype))
    if kind is None or made.halo or made.block or wanted.block:
        return None
    halo = tuple(wanted.halo if axis in wanted.around else 0 for axis in range(len(shape)))
    return Conversion(shape, made.order, wanted.order, halo), kind


def hot_us(call: Callable[[], object], threads: int = 1) -> float:
    """Return the median microseconds of a call, warm and, with one thread, pinned."""

    def run(times: int) -> None:
        for _ in range(times):
            call()

    run(1)
    before = pin({usable_processors()[0]}) if threads == 1 else None
    try:
        samples, _ = measure(run, BUDGET_S, threads=threads)
    finally:
        if before is not None:
            pin(before)
    return median(samples.times) * 1e6


def _bytes(dtype: str) -> int:
    """Return the bytes of an element; 0 if unknown."""
    found = _ELEMENT.fullmatch(dtype)
    return 0 if found is None else max(1, int(found[1] or found[2]) // 8)
