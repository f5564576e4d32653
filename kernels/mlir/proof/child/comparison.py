"""Two results of one payload: how far apart they are, and how far apart they may be.

Integers are equal or wrong. NaNs and infinities are where the payload has them, infinities of
the same sign. A float may be as far off as a right script can take it: the order of sums and
products is free, so each may be off by a multiple of how far it moves when the payload's
operations are perturbed (`perturb`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernels.mlir.lowering.signature import TYPES, is_float
from kernels.oracle.operands import Array, widened

MARGIN = 8.0  # of an element's move
LEAST_SHARE = 1 / 8  # of its neighbours' median move; one may have stood still by chance
FEWEST_UNITS = 4  # in the last place, of an element that is computed
NEIGHBOURS = 1 << 16  # elements that are looked at together


@dataclass(frozen=True)
class Difference:
    """The element of a result that is furthest off, by the measure of what is allowed there.

    Attributes:
        error: how far off it is; infinite where one of the two is no finite number.
        allowed: how far off it may be.
        place: its index.
        found: what it is.
        expected: what the payload has there.
    """

    error: float = 0.0
    allowed: float = 0.0
    place: tuple[int, ...] = ()
    found: float = 0.0
    expected: float = 0.0

    @property
    def is_wrong(self) -> bool:
        """Whether the result is not the payload's."""
        return not self.error <= self.allowed

    @property
    def share(self) -> float:
        """The error as a share of what is allowed; above one where it is wrong."""
        if self.allowed:
            return self.error / self.allowed
        return np.inf if self.error else 0.0


def difference(found: Array, expected: Array, moved: Sequence[Array], element: str) -> Difference:
    """Compare a result with the payload's own.

    Args:
        found: the result.
        expected: the payload's own.
        moved: those of perturbed payloads.
        element: MLIR's name of the element type of all of them.
    """
    worst = Difference()
    flat = [array.reshape(-1) for array in (found, expected, *moved)]
    for start in range(0, expected.size, NEIGHBOURS):
        parts = [array[start : start + NEIGHBOURS] for array in flat]
        if is_float(element):
            wide = [_wide(part, element) for part in parts]
            one = _close(wide[0], wide[1], wide[2:], spacing(element))
        else:
            one = _exact(parts[0], parts[1])
        if one.share >= worst.share:
            place = np.unravel_index(start + one.place[0], expected.shape)
            worst = replace(one, place=tuple(map(int, place)))
    return worst


def spacing(element: str) -> float:
    """The distance of the floats of a type at 1."""
    return 2.0**-7 if element == "bf16" else float(np.finfo(TYPES[element]).eps)


def _wide(array: Array, element: str) -> Array:
    """Floats in float64, exactly."""
    return widened(array, "bf16") if element == "bf16" else array.astype(np.float64)


def _exact(found: Array, expected: Array) -> Difference:
    """Integers of any width, without a detour over floats."""
    error = np.maximum(found, expected).astype(np.int64).view(np.uint64)
    error -= np.minimum(found, expected).astype(np.int64).view(np.uint64)
    at = int(np.argmax(error))
    return Difference(float(error[at]), 0.0, (at,), int(found[at]), int(expected[at]))


def _close(found: Array, expected: Array, moved: Sequence[Array], spaced: float) -> Difference:
    with np.errstate(all="ignore"):
        error = _distance(found, expected)
        allowed = _allowed(expected, moved, spaced)
        share = np.where(error > 0, error / allowed, 0.0)
    at = int(np.argmax(share))
    return Difference(
        float(error[at]), float(allowed[at]), (at,), float(found[at]), float(expected[at])
    )


def _distance(found: Array, expected: Array) -> Array:
    """How far apart each element is: infinitely where one is infinite or a NaN, and not both."""
    distance = np.abs(found - expected)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    return np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))


def _allowed(expected: Array, moved: Sequence[Array], spaced: float) -> Array:
    """How far off each element may be, finite; 0 where no perturbation moved any of them."""
    furthest = np.zeros(expected.shape)
    for one in moved:
        move = np.abs(one - expected)
        np.maximum(furthest, np.where(np.isfinite(move), move, 0.0), out=furthest)
    computed = furthest[furthest > 0]
    if not computed.size:
        return furthest
    least = LEAST_SHARE * float(np.median(computed))
    size = np.abs(np.where(np.isfinite(expected), expected, 0.0))
    allowed = np.maximum(MARGIN * np.maximum(furthest, least), FEWEST_UNITS * spaced * size)
    return np.minimum(allowed, np.finfo(np.float64).max)
