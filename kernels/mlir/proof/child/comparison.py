"""Two results of one payload: how far apart they are, and how far apart they may be.

Integers are equal or wrong. NaNs and infinities are where the payload has them, infinities of
the same sign. A float may be as far off as a right script can take it: the order of sums and
products is free, so each may be off by a multiple of how far it moves when the payload's
operations are perturbed (`perturb`). `Rules` says where a payload is held to less or more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewise.kernels.mlir.lowering.signature import TYPES, is_float
from tilewise.kernels.oracle.operands import Array, widened

MARGIN = 8.0  # of an element's move
LEAST_SHARE = 1 / 8  # of its neighbours' median move; one may have stood still by chance
FEWEST_UNITS = 4  # in the last place, of an element that is computed
NEIGHBOURS = 1 << 16  # elements that are looked at together


@dataclass(frozen=True)
class Rules:
    """What a right script of a payload keeps.

    Attributes:
        has_sums: floats are summed in loops, in an order that is free. An element may move as far
            as its neighbours, and a zero has any sign: -0.0 + 0.0 depends on where a sum begins.
        has_signed_zeros: zeros have the payload's sign.
        may_spread: infinities and NaNs may appear at more elements than the payload's. Sums of
            inputs before the products (Winograd) subtract an infinity from itself.
    """

    has_sums: bool = True
    has_signed_zeros: bool = False
    may_spread: bool = False


ORDER_IS_FREE = Rules()
Moves = Sequence[tuple[Array, Array]]
"""Results of perturbed runs, each with that of the run without."""


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
    def is_inexact(self) -> bool:
        """Whether the result is further off than allowed, where some deviation is."""
        return self.is_wrong and bool(np.isfinite(self.error)) and self.allowed > 0

    @property
    def share(self) -> float:
        """The error as a share of what is allowed; above one where it is wrong."""
        if self.allowed:
            return self.error / self.allowed
        return np.inf if self.error else 0.0


def difference(
    found: Array,
    expected: Array,
    moved: Sequence[Array],
    element: str,
    rules: Rules = ORDER_IS_FREE,
    own: Sequence[Array] = (),
) -> Difference:
    """Compare a result with the payload's own.

    Args:
        found: the result.
        expected: the payload's own.
        moved: those of perturbed payloads.
        element: MLIR's name of the element type of all of them.
        rules: what is compared.
        own: results of what was found, perturbed, where its own roundings are allowed for.
    """
    worst = Difference()
    flat = [array.reshape(-1) for array in (found, expected, *moved, *own)]
    for start in range(0, expected.size, NEIGHBOURS):
        parts = [array[start : start + NEIGHBOURS] for array in flat]
        if is_float(element):
            wide = [_wide(part, element) for part in parts]
            bases = [wide[1]] * len(moved) + [wide[0]] * len(own)
            moves = list(zip(wide[2:], bases, strict=True))
            one = _close(wide[0], wide[1], moves, element, rules)
        else:
            one = _exact(parts[0], parts[1])
        if one.share >= worst.share:
            place = np.unravel_index(start + one.place[0], expected.shape)
            worst = replace(one, place=tuple(map(int, place)))
    return worst


def spacing(element: str) -> float:
    """The distance of the floats of a type at 1."""
    return 2.0**-7 if element == "bf16" else float(np.finfo(TYPES[element]).eps)


def smallest(element: str) -> float:
    """Return the smallest float above zero of a type."""
    return 2.0**-133 if element == "bf16" else float(np.finfo(TYPES[element]).smallest_subnormal)


def _wide(array: Array, element: str) -> Array:
    """Floats in float64, exactly."""
    return widened(array, "bf16") if element == "bf16" else array.astype(np.float64)


def _exact(found: Array, expected: Array) -> Difference:
    """Integers of any width, without a detour over floats."""
    error = np.maximum(found, expected).astype(np.int64).view(np.uint64)
    error -= np.minimum(found, expected).astype(np.int64).view(np.uint64)
    at = int(np.argmax(error))
    return Difference(float(error[at]), 0.0, (at,), int(found[at]), int(expected[at]))


def _close(found: Array, expected: Array, moves: Moves, element: str, rules: Rules) -> Difference:
    with np.errstate(all="ignore"):
        error = _distance(found, expected, rules)
        allowed = _allowed(expected, moves, element, rules)
        share = np.where(error > 0, error / allowed, 0.0)
    at = int(np.argmax(share))
    return Difference(
        float(error[at]), float(allowed[at]), (at,), float(found[at]), float(expected[at])
    )


def _distance(found: Array, expected: Array, rules: Rules) -> Array:
    """How far apart each element is: infinitely where one is infinite or a NaN, and not both."""
    distance = np.abs(found - expected)
    distance = np.where(np.isnan(distance), np.inf, distance)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    if rules.may_spread:
        same |= np.isnan(found) | (np.isinf(found) & np.isfinite(expected))
    distance = np.where(same, 0.0, distance)
    if rules.has_signed_zeros:
        is_other = (found == 0) & (expected == 0) & (np.signbit(found) != np.signbit(expected))
        distance = np.where(is_other, np.inf, distance)
    return np.asarray(distance)


def _allowed(expected: Array, moves: Moves, element: str, rules: Rules) -> Array:
    """How far off each element may be, finite; 0 where no perturbation moved any of them."""
    furthest = np.zeros(expected.shape)
    for moved, unmoved in moves:
        move = np.abs(moved - unmoved)
        np.maximum(furthest, np.where(np.isfinite(move), move, 0.0), out=furthest)
    computed = furthest[furthest > 0]
    if not computed.size:
        return furthest
    least = LEAST_SHARE * float(np.median(computed)) if rules.has_sums else 0.0
    size = np.abs(np.where(np.isfinite(expected), expected, 0.0))
    unit = np.maximum(spacing(element) * size, smallest(element))
    allowed: Array = np.maximum(MARGIN * np.maximum(furthest, least), FEWEST_UNITS * unit)
    return np.asarray(np.minimum(allowed, np.finfo(np.float64).max))
