"""What is done to each element: sums of two tensors, products with a number, casts, cuts."""

from typing import Any

import numpy as np
from numba import cfunc, njit

from tilewise.kernels.native.passes.memory import elements, part

HALF = 16


@njit(nogil=True)
def cut(value: Any, low: Any, high: Any) -> Any:
    """A number between two others; what is not a number stays."""
    value = low if value < low else value
    return high if value > high else value


def add_pass() -> Any:
    """X + y, cut off: source, target, first, end, low and high as f64, the other source."""

    @cfunc("void(int64)")
    def run(at: int) -> None:
        numbers = elements(at, 6, np.float64)
        low, high = np.float32(numbers[4]), np.float32(numbers[5])
        x, y = part(at, 0, np.float32), part(at, 6, np.float32)
        target = part(at, 1, np.float32)
        for i in range(len(target)):
            target[i] = cut(x[i] + y[i], low, high)

    return run


def clamp_pass() -> Any:
    """X, cut off: source, target, first, end, low and high as f64."""

    @cfunc("void(int64)")
    def run(at: int) -> None:
        numbers = elements(at, 6, np.float64)
        low, high = np.float32(numbers[4]), np.float32(numbers[5])
        x, target = part(at, 0, np.float32), part(at, 1, np.float32)
        for i in range(len(target)):
            target[i] = cut(x[i], low, high)

    return run


def multiply_pass() -> Any:
    """X times a number: source, target, first, end, the number as f64."""

    @cfunc("void(int64)")
    def run(at: int) -> None:
        number = np.float32(elements(at, 5, np.float64)[4])
        x, target = part(at, 0, np.float32), part(at, 1, np.float32)
        for i in range(len(target)):
            target[i] = x[i] * number

    return run


def divide_pass() -> Any:
    """X over a number: source, target, first, end, the number as f64."""

    @cfunc("void(int64)", error_model="numpy")
    def run(at: int) -> None:
        number = np.float32(elements(at, 5, np.float64)[4])
        x, target = part(at, 0, np.float32), part(at, 1, np.float32)
        for i in range(len(target)):
            target[i] = x[i] / number

    return run


def narrow_pass() -> Any:
    """F32 to the nearest bf16, ties to even: source, target, first, end."""

    @cfunc("void(int64)")
    def run(at: int) -> None:
        x, target = part(at, 0, np.uint32), part(at, 1, np.uint16)
        for i in range(len(target)):
            bits = x[i]
            rounded = (bits + np.uint32(0x7FFF) + ((bits >> HALF) & np.uint32(1))) >> HALF
            is_number = (bits & np.uint32(0x7FFFFFFF)) <= np.uint32(0x7F800000)
            target[i] = rounded if is_number else (bits >> HALF) | np.uint32(0x40)

    return run


def widen_pass() -> Any:
    """Bf16 to f32: source, target, first, end."""

    @cfunc("void(int64)")
    def run(at: int) -> None:
        x, target = part(at, 0, np.uint16), part(at, 1, np.uint32)
        for i in range(len(target)):
            target[i] = np.uint32(x[i]) << np.uint32(HALF)

    return run
