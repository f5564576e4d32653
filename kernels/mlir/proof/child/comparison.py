"""How far apart two results of one payload are, and how far apart they may be.

NaNs and infinities must be where the payload has them. Since the order of sums and products is
free, a number may be off by a multiple of how far it moves when the payload's operations are
perturbed (`perturb`). Integers that are not made of floats do not move. `ComparisonRules` adjusts
this.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewise.kernels.mlir.lowering.functions import TYPES, is_float
from tilewise.kernels.oracle.operands import Array, widened

MARGIN = 8.0  # of an element's move
LEAST_SHARE = 1 / 8  # of its neighbours' median move; it may have stayed by chance
FEWEST_UNITS = 4  # in the last place, of a computed element
NEIGHBOURS = 1 << 16  # elements that are compared together
MUCH_FURTHER = 32.0  # than the payload's roundings move an element


@dataclass(frozen=True)
class ComparisonRules:
    """What a right script of a payload preserves.

    Attributes:
        has_sums: loops sum floats in a free order, so an element may move as far as its neighbours,
            and a zero has any sign: -0.0 + 0.0 depends on where a sum begins.
        has_signed_zeros: zeros have the payload's sign.
        may_spread: more elements than the payload's may be infinite or NaN: sums of inputs before
            the products (Winograd) subtract an infinity from itself.
        may_overflow: elements that are not finite in the payload's result may be anything, since
            the overflow of a sum depends on its order.
    """

    has_sums: bool = True
    has_signed_zeros: bool = False
    may_spread: bool = False
    may_overflow: bool = False


ORDER_IS_FREE = ComparisonRules()
Moves = Sequence[tuple[Array, Array]]
"""Results of perturbed runs, each with that of the run without."""


@dataclass(frozen=True)
class LargestDifference:
    """The element of a result with the largest error relative to the allowed one.

    Attributes:
        error: infinite if only one of both values is finite.
        is_rounded: perturbations move some element around it.
    """

    error: float = 0.0
    allowed: float = 0.0
    place: tuple[int, ...] = ()
    found: float = 0.0
    expected: float = 0.0
    is_rounded: bool = False

    @property
    def is_wrong(self) -> bool:
        """Whether the result is not the payload's."""
        return not self.error <= self.allowed

    @property
    def is_inexact(self) -> bool:
        """Whether the result is further off than allowed, where some deviation is."""
        return self.is_wrong and bool(np.isfinite(self.error)) and self.is_rounded

    @property
    def share(self) -> float:
        """The error as a share of what is allowed; above one if wrong."""
        if self.allowed:
            return self.error / self.allowed
        return np.inf if self.error else 0.0


def difference(
    found: Array,
    expected: Array,
    moved: Sequence[Array],
    element: str,
    rules: ComparisonRules = ORDER_IS_FREE,
    own: Sequence[Array] = (),
) -> LargestDifference:
    """Return the element of `found` that is furthest off from the payload's `expected`.

    Args:
        found: the result.
        expected: the payload's own.
        moved: results of perturbed payloads.
        element: MLIR's name of the element type.
        rules: what is preserved.
        own: results of the perturbed script, if its own roundings are allowed.
    """
    worst = LargestDifference()
    flat = [array.reshape(-1) for array in (found, expected, *moved, *own)]
    for start in range(0, expected.size, NEIGHBOURS):
        parts = [array[start : start + NEIGHBOURS] for array in flat]
        if is_float(element):
            parts = [_wide(part, element) for part in parts]
        bases = [parts[1]] * len(moved) + [parts[0]] * len(own)
        moves = list(zip(parts[2:], bases, strict=True))
        if is_float(element):
            one = _close(parts[0], parts[1], moves, element, rules)
        else:
            one = _exact(parts[0], parts[1], moves)
        if one.share >= worst.share:
            place = np.unravel_index(start + one.place[0], expected.shape)
            worst = replace(one, place=tuple(map(int, place)))
    return worst


def moves_further(
    found: Array, expected: Array, moved: Sequence[Array], own: Sequence[Array], element: str
) -> bool:
    """Return whether the script's roundings move an element much further than the payload's."""
    if not is_float(element):
        return False
    base, right = _wide(found, element), _wide(expected, element)
    with np.errstate(all="ignore"):
        allowed, own_allowed = (
            _allowed(
                right, [(_wide(run, element), one) for run in runs], element, ComparisonRules(False)
            )
            for runs, one in ((moved, right), (own, base))
        )
    return bool((own_allowed > MUCH_FURTHER * allowed).any())


def spacing(element: str) -> float:
    """Return the distance of the floats of a type at 1."""
    return 2.0**-7 if element == "bf16" else float(np.finfo(TYPES[element]).eps)


def smallest(element: str) -> float:
    """Return the smallest float above zero of a type."""
    return 2.0**-133 if element == "bf16" else float(np.finfo(TYPES[element]).smallest_subnormal)


def _wide(array: Array, element: str) -> Array:
    """Return floats in float64, exactly."""
    return widened(array, "bf16") if element == "bf16" else array.astype(np.float64)


def _exact(found: Array, expected: Array, moves: Moves) -> LargestDifference:
    """Compare integers, which may be off where perturbations move them, or most of them."""
    error = _apart(found, expected)
    furthest = np.zeros(expected.shape)
    for moved, unmoved in moves:
        np.maximum(furthest, _apart(moved, unmoved), out=furthest)
    allowed = MARGIN * np.maximum(furthest, LEAST_SHARE * float(np.median(furthest)))
    return _at_worst(error, allowed, found, expected)


def _apart(one: Array, other: Array) -> Array:
    """Return the exact distance of integers of any width."""
    apart = np.maximum(one, other).astype(np.int64).view(np.uint64)
    apart -= np.minimum(one, other).astype(np.int64).view(np.uint64)
    return apart


def _at_worst(error: Array, allowed: Array, found: Array, expected: Array) -> LargestDifference:
    """Return the difference whose error is the largest share of what is allowed."""
    with np.errstate(all="ignore"):
        at = int(np.argmax(np.where(error > 0, error / allowed, 0.0)))
    values = found[at].item(), expected[at].item()
    return LargestDifference(
        float(error[at]), float(allowed[at]), (at,), *values, bool(allowed.any())
    )


def _close(
    found: Array, expected: Array, moves: Moves, element: str, rules: ComparisonRules
) -> LargestDifference:
    with np.errstate(all="ignore"):
        error = _distance(found, expected, rules)
        allowed = _allowed(expected, moves, element, rules)
    return _at_worst(error, allowed, found, expected)


def _distance(found: Array, expected: Array, rules: ComparisonRules) -> Array:
    """Return how far apart elements are: infinitely if only one of them is finite."""
    distance = np.abs(found - expected)
    distance = np.where(np.isnan(distance), np.inf, distance)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    if rules.may_spread:
        same |= np.isnan(found) | (np.isinf(found) & np.isfinite(expected))
    if rules.may_overflow:
        same |= ~np.isfinite(expected)
    distance = np.where(same, 0.0, distance)
    if rules.has_signed_zeros:
        is_other = (found == 0) & (expected == 0) & (np.signbit(found) != np.signbit(expected))
        distance = np.where(is_other, np.inf, distance)
    return np.asarray(distance)


def _allowed(expected: Array, moves: Moves, element: str, rules: ComparisonRules) -> Array:
    """Return how far off each element may be; 0 if no perturbation moved any of them."""
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
