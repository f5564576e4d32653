"""One way in which a peer computes a problem, and whether what it computes is right."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewise.kernels.oracle.operands import Array, Operands, poison
from tilewise.kernels.oracle.reference import Expected, compare
from tilewise.kernels.problem import Problem

UNITS = {"bf16": 2.0**-8, "f16": 2.0**-11}
"""Unit roundoff of outputs that are narrower than the problem's."""

ROUNDINGS = 2  # of a narrow bias or sum, and of the output


class PeerAbsentError(Exception):
    """The peer cannot do this problem, or is not installed; the message says which."""


class ShapeError(Exception):
    """A result has not the shape that it should have."""


@dataclass(frozen=True)
class Variant:
    """A peer's code, bound to the operands of one problem.

    Attributes:
        peer: the peer's name.
        name: which of the peer's ways this is, such as `data tiling`.
        run: computes the problem so many times.
        result: what the last run computed, shaped as the problem's C; f32 for narrow floats.
        output: dtype of what it writes, where that is narrower than the problem's C.
    """

    peer: str
    name: str
    run: Callable[[int], None]
    result: Callable[[], Array]
    output: str | None = None


def why_wrong(
    variant: Variant, problem: Problem, operands: Operands, expected: Expected, initial: Array
) -> str | None:
    """Run once on a reset C and compare; None when the result is right.

    The arguments are those of `deviation`.
    """
    try:
        error, tolerance = deviation(variant, problem, operands, expected, initial)
    except ShapeError as wrong:
        return str(wrong)
    if error <= tolerance:
        return None
    return f"the largest deviation is {error:.3g}, the tolerance {tolerance:.3g}"


def deviation(
    variant: Variant, problem: Problem, operands: Operands, expected: Expected, initial: Array
) -> tuple[float, float]:
    """Run once on a reset C: the largest deviation from what is right, and the tolerance there.

    A library that writes bf16 where the problem has f32 rounds what may be a right sum;
    that rounding is allowed, and stands in the table beside the speed.

    Args:
        variant: what to check.
        problem: what it should compute.
        operands: what it is bound to; C is overwritten.
        expected: the reference.
        initial: what C holds at first, for problems that accumulate.

    Raises:
        ShapeError: the result has not the problem's shape.
    """
    if problem.accumulates:
        operands["C"][...] = initial
    else:
        poison(operands["C"])
    variant.run(1)
    result = variant.result()
    if result.shape != expected.value.shape:
        raise ShapeError(f"the result is {list(result.shape)}, not {list(expected.value.shape)}")
    allowed = _allowed(variant, problem, operands, expected, initial)
    return compare(problem, result, allowed)


def _allowed(
    variant: Variant, problem: Problem, operands: Operands, expected: Expected, initial: Array
) -> Expected:
    if variant.output is None or expected.tolerance is None:
        return expected
    size = np.abs(expected.value)
    if "bias" in operands:
        nchw = problem.has_channels_first
        size = size + np.abs(operands["bias"][:, None, None] if nchw else operands["bias"])
    if problem.accumulates:
        size = size + np.abs(initial)
    return Expected(expected.value, expected.tolerance + ROUNDINGS * UNITS[variant.output] * size)
