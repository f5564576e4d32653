"""Copies that give a tensor another layout: another order of its axes, zeros around it.

Rows that both layouts have are copied; otherwise square blocks are transposed, and no cache line is
loaded or stored twice in a block.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]
BLOCK = 16  # elements: a cache line of four bytes each


@dataclass(frozen=True)
class Conversion:
    """A tensor that is stored in one layout and wanted in another.

    Attributes:
        sizes: of its axes.
        source: the order in which its axes are stored, outermost first.
        target: the order wanted.
        halo: elements that the target has before and after the tensor along each axis; the owner of
            the buffer zeroes them once, and no copy writes there.
    """

    sizes: tuple[int, ...]
    source: tuple[int, ...]
    target: tuple[int, ...]
    halo: tuple[int, ...]

    @property
    def source_shape(self) -> tuple[int, ...]:
        """Return the shape of the tensor as it is stored."""
        return tuple(self.sizes[axis] for axis in self.source)

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Return the shape of the buffer that is written, with its halo."""
        return tuple(self.sizes[axis] + 2 * self.halo[axis] for axis in self.target)


@dataclass(frozen=True)
class Moves:
    """A copy as offsets.

    Attributes:
        froms, tos: the start of each row or block, in elements.
        lengths: of a row; of a block along the source's row and along the target's.
        steps: of a block, elements between the target's rows and between the source's; None where
            rows are copied.
    """

    froms: Array
    tos: Array
    lengths: tuple[int, int]
    steps: tuple[int, int] | None


def moves_of(conversion: Conversion) -> Moves:
    """Return the offsets of a copy."""
    read = _steps(conversion.source, conversion.source_shape)
    written = _steps(conversion.target, conversion.target_shape)
    begin = sum(conversion.halo[axis] * step for axis, step in written.items())
    row, column = conversion.source[-1], conversion.target[-1]
    outer = [axis for axis in conversion.target if axis not in (row, column)]
    froms = _offsets(conversion, outer, read, 0)
    tos = _offsets(conversion, outer, written, begin)
    lengths = conversion.sizes[row], conversion.sizes[column]
    return Moves(froms, tos, lengths, None if row == column else (written[row], read[column]))


def converter(conversion: Conversion) -> Callable[[Array, Array], None]:
    """Return the copy `f(source, target)` of contiguous arrays of one unsigned type."""
    moves = moves_of(conversion)

    def run(source: Array, target: Array) -> None:
        flat = source.reshape(-1), target.reshape(-1)
        if moves.steps is None:
            copy_rows(*flat, moves.froms, moves.tos, moves.lengths[0])
        else:
            transpose_blocks(*flat, moves.froms, moves.tos, *moves.lengths, *moves.steps)

    return run


def _steps(order: tuple[int, ...], shape: tuple[int, ...]) -> dict[int, int]:
    """Return the elements from one index of each axis to the next."""
    steps, step = {}, 1
    for axis, size in zip(reversed(order), reversed(shape), strict=True):
        steps[axis] = step
        step *= size
    return steps


def _offsets(conversion: Conversion, outer: list[int], steps: dict[int, int], begin: int) -> Array:
    """Return the start of each row or block, for all indices of the outer axes."""
    parts = (np.arange(conversion.sizes[axis], dtype=np.int64) * steps[axis] for axis in outer)
    return reduce(lambda a, b: np.add.outer(a, b).reshape(-1), parts, np.array([begin]))


@njit(nogil=True)
def copy_rows(source: Array, target: Array, froms: Array, tos: Array, length: int) -> None:
    """Copy source[from + i] to target[to + i], for each pair of offsets."""
    for row in range(len(froms)):
        begin, end = froms[row], tos[row]
        for i in range(length):
            target[end + i] = source[begin + i]


@njit(nogil=True)
def transpose_blocks(
    source: Array, target: Array, froms: Array, tos: Array,
    rows: int, columns: int, target_step: int, source_step: int,
) -> None:  # fmt: skip
    """Copy source[i + source_step * j] to target[target_step * i + j], for each pair of offsets."""
    for one in range(len(froms)):
        begin, end = froms[one], tos[one]
        for i0 in range(0, rows, BLOCK):
            for j0 in range(0, columns, BLOCK):
                for i in range(i0, min(rows, i0 + BLOCK)):
                    for j in range(j0, min(columns, j0 + BLOCK)):
                        target[end + target_step * i + j] = source[begin + i + source_step * j]
