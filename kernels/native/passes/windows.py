"""Maxima and sums of windows, and sums of whole axes, of f32.

A tensor is seen as [outer, height, width, inner], of which the windows move over height and width.
Where `inner` is longer than one, its elements are the lanes of a vector; else those of a row are.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cfunc, njit

from kernels.native.language.words import word
from kernels.native.passes.memory import elements

Take = Callable[[float, float], float]


@njit(nogil=True)
def larger(most: float, value: float) -> float:
    """The larger of two numbers; what is not a number stays."""
    return value if (value > most) | np.isnan(value) else most


@njit(nogil=True)
def added(total: float, value: float) -> float:
    """The sum of two numbers."""
    return total + value


@njit(nogil=True)
def inside(step: int, offset: int, size: int, count: int) -> tuple[int, int]:
    """From which to before which of `count` indices i `i * step + offset` is in a size."""
    first = max(0, -(offset // step))
    end = min(count, (size - 1 - offset) // step + 1)
    return first, max(first, end)


def window_pass(take: Take, start: float) -> Any:
    """The pass that takes a window's elements in, one by one, from a start on.

    Parameters: source, target, first and end of the target's rows; height, width, out height, out
    width, inner; of the window height, width, strides, dilations, and zeros before the image.
    """

    @njit(nogil=True)
    def take_in(target: Any, source: Any, step: int) -> None:
        for i in range(len(target)):  # from 0: an index that may be negative is no vector's
            target[i] = take(target[i], source[i * step])

    @njit(nogil=True)
    def lanes_in(target: Any, source: Any) -> None:
        for i in range(len(target)):
            target[i] = take(target[i], source[i])

    @njit(nogil=True)
    def row_of(source: Any, target: Any, sizes: Any, row: int) -> None:
        height, width, out_height, out_width, inner = sizes[:5]
        rows, cols, down, across, row_step, col_step, above, left = sizes[5:]
        top = row % out_height * down - above
        out = target[row * out_width * inner : (row + 1) * out_width * inner]
        out[:] = start
        for tap in range(rows):
            y = top + tap * row_step
            if y < 0 or y >= height:
                continue
            line = source[(row // out_height * height + y) * width * inner :]
            for col in range(cols):
                offset = col * col_step - left
                first, end = inside(across, offset, width, out_width)
                if inner == 1 and end > first:
                    take_in(out[first:end], line[first * across + offset :], across)
                    continue
                for x in range(first, end):
                    at = (x * across + offset) * inner
                    lanes_in(out[x * inner : (x + 1) * inner], line[at : at + inner])

    @cfunc("void(int64)")
    def run(at: int) -> None:
        words = elements(at, 17, np.int64)
        sizes = (words[4], words[5], words[6], words[7], words[8], words[9], words[10], words[11],
                 words[12], words[13], words[14], words[15], words[16])  # fmt: skip
        outer_in = words[3] // words[6] + 1
        source = elements(words[0], outer_in * sizes[0] * sizes[1] * sizes[4], np.float32)
        target = elements(words[1], words[3] * sizes[3] * sizes[4], np.float32)
        for row in range(words[2], words[3]):
            row_of(source, target, sizes, row)

    return run


@njit(nogil=True, fastmath={"reassoc", "contract"})
def total(values: Any) -> Any:
    """The sum of all, in whatever order."""
    found = np.float32(0)
    for i in range(len(values)):
        found += values[i]
    return found


@njit(nogil=True)
def add_to(sums: Any, values: Any) -> None:
    """Add values to sums, each to its own."""
    for i in range(len(sums)):
        sums[i] += values[i]


def sum_pass() -> Any:
    """The pass that sums [outer, many, inner] over `many`.

    Parameters: source, target, first and end of outer, many, inner.
    """

    @cfunc("void(int64)")
    def run(at: int) -> None:
        first, end, many, inner = word(at, 2), word(at, 3), word(at, 4), word(at, 5)
        source = elements(word(at, 0), end * many * inner, np.float32)
        target = elements(word(at, 1), end * inner, np.float32)
        for one in range(first, end):
            values = source[one * many * inner : (one + 1) * many * inner]
            if inner == 1:
                target[one] = total(values)
                continue
            sums = target[one * inner : (one + 1) * inner]
            sums[:] = 0
            for row in range(many):
                add_to(sums, values[row * inner : (row + 1) * inner])

    return run
