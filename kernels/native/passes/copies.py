"""Copies between layouts (`tilewise.kernels.native.conversion`) as passes over addresses."""

from typing import Any

import numpy as np
from numba import cfunc, njit

from tilewise.kernels.native.conversion import copy_rows, transpose_blocks
from tilewise.kernels.native.language.words import word
from tilewise.kernels.native.passes.memory import elements, part

UNSIGNED: dict[int, type[Any]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""What moves elements of so many bytes."""


@njit(nogil=True)
def _sides(at: int, kind: Any) -> Any:
    """Source and target, whole, and a thread's offsets in each; parameters as of `rows_pass`."""
    first, end = word(at, 2), word(at, 3)
    return (
        elements(word(at, 0), word(at, 7), kind),
        elements(word(at, 1), word(at, 8), kind),
        elements(word(at, 4), end, np.int64)[first:],
        elements(word(at, 5), end, np.int64)[first:],
    )


def rows_pass(size: int) -> Any:
    """Rows that both sides have: source, target, first, end, offsets of each, length.

    Behind them: elements of the source and of the target.
    """
    kind = UNSIGNED[size]

    @cfunc("void(int64)")
    def run(at: int) -> None:
        source, target, froms, tos = _sides(at, kind)
        copy_rows(source, target, froms, tos, word(at, 6))

    return run


def blocks_pass(size: int) -> Any:
    """Transposed blocks: as rows, and behind them columns, the target's and the source's steps."""
    kind = UNSIGNED[size]

    @cfunc("void(int64)")
    def run(at: int) -> None:
        source, target, froms, tos = _sides(at, kind)
        transpose_blocks(
            source, target, froms, tos, word(at, 6), word(at, 9), word(at, 10), word(at, 11)
        )

    return run


def fill_pass() -> Any:
    """One f32 everywhere: nothing, target, first, end, the number as f64."""

    @cfunc("void(int64)")
    def run(at: int) -> None:
        number = np.float32(elements(at, 5, np.float64)[4])
        target = part(at, 1, np.float32)
        for i in range(len(target)):
            target[i] = number

    return run
