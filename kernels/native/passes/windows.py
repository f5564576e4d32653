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
    def row_of(source: Any, target: Any, sizes: Any, row: int) -> None:
        height, width, out_height, out_width, inner = sizes[:5]
        rows, cols, down, across, row_step, col_step, above, left = sizes[5:]
        image = row // out_height * height
        top = row % out_height * down - above
        to = row * out_width * inner
        for i in range(out_width * inner):
            target[to + i] = start
        for tap in range(rows):
            y = top + tap * row_step
            if y < 0 or y >= height:
                continue
            line = (image + y) * width * inner
            for col in range(cols):
                offset = col * col_step - left
                first, end = inside(across, offset, width, out_width)
                if inner == 1:
                    for x in range(first, end):
                        at = line + x * across + offset
                        target[to + x] = take(target[to + x], source[at])
                else:
                    for x in range(first, end):
                        at = line + (x * across + offset) * inner
                        for i in range(inner):
                            out = to + x * inner + i
                            target[out] = take(target[out], source[at + i])

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
def _total(source: Any, begin: int, count: int) -> Any:
    total = np.float32(0)
    for i in range(begin, begin + count):
        total += source[i]
    return total


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
            if inner == 1:
                target[one] = _total(source, one * many, many)
                continue
            for i in range(inner):
                target[one * inner + i] = 0
            for row in range(many):
                for i in range(inner):
                    target[one * inner + i] += source[(one * many + row) * inner + i]

    return run
