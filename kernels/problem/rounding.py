"""What sums become in a result of another type, in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.problem.keys import SIGNIFICAND_BITS

Array = NDArray[Any]
_LEAST_EXPONENT = {"f16": -13, "bf16": -125}
"""Of normal numbers, as `frexp` gives it; smaller ones have fewer digits."""


def rounded(values: Array, out: str) -> Array:
    """Return float64 values rounded to nearest even in a type; as they are for an empty one."""
    if not out:
        return values
    bits = SIGNIFICAND_BITS[out]
    places = np.maximum(np.frexp(values)[1], _LEAST_EXPONENT[out]) - bits
    return np.asarray(np.ldexp(np.round(np.ldexp(values, -places)), places))


def quantised(sums: Array, scale: Array, zero: Array, out: str) -> Array:
    """Return round(sums * scale) + zero within the limits of i8 or u8.

    In f32, as kernels compute it, so that they have to be equal.
    """
    limits = np.iinfo(np.uint8 if out == "u8" else np.int8)
    moved = np.rint(sums.astype(np.float32) * scale.astype(np.float32)) + zero.astype(np.float32)
    return np.asarray(np.clip(moved, limits.min, limits.max), limits.dtype)
