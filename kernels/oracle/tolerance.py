"""How far off a result may be, and how far off one is."""

from dataclasses import dataclass

import numpy as np

from tilewise.kernels.oracle.operands import NUMPY_TYPES, Array
from tilewise.kernels.problem import Problem

CONFIDENCE = 6.0  # lambda: failure probability of about 2 exp(-18) per element


@dataclass(frozen=True)
class Expected:
    """What a right result looks like.

    Attributes:
        value: the result: float64 for floats, exact for integers.
        tolerance: the deviation allowed for each element, or None when it must be exact.
    """

    value: Array
    tolerance: Array | None


def compare(problem: Problem, result: Array, expected: Expected) -> tuple[float, float]:
    """The largest deviation and the tolerance at that element.

    The deviation is over the tolerance exactly when some element is wrong; a NaN
    where none belongs gives infinity. Integers: the number of wrong elements, and 0.
    """
    if expected.tolerance is None:
        return float(np.count_nonzero(result != expected.value)), 0.0
    found, value, tolerance = (
        array.reshape(-1) for array in (result, expected.value, expected.tolerance)
    )
    worst, at = -1.0, 0
    for start in range(0, found.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        ratio = np.subtract(found[part], value[part], dtype=np.float64)
        np.abs(ratio, out=ratio)
        ratio /= tolerance[part]
        here = int(np.argmax(ratio))  # a NaN, where there is one
        if not ratio[here] <= worst:
            worst, at = float(ratio[here]), start + here
        if np.isnan(worst):
            return np.inf, float(tolerance[at])
    return abs(float(found[at]) - float(value[at])), float(tolerance[at])


TINY = 1e-30
_CHUNK = 1 << 15  # elements that are compared at a time, so that what lies between stays in cache


def error_bound(length: int, accumulator: str) -> float:
    """Relative error allowed for a sum of `length` products, as a fraction of |A||B|.

    The reference itself is computed in float64, so f64 results get twice the bound.
    """
    dtype = np.dtype(NUMPY_TYPES[accumulator])
    unit = float(np.finfo(dtype).eps) / 2
    likely = CONFIDENCE * float(np.sqrt(length)) * unit
    share = length * unit
    worst = share / (1 - share) if share < 1 else likely  # beyond that gamma says nothing
    return min(worst, likely) * (2 if accumulator == "f64" else 1)
