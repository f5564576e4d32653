"""One way in which a peer computes a problem, and the check of its result."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewise.kernels.oracle.operands import Array, Operands, operand_type, poison, widened
from tilewise.kernels.oracle.reference import Expected, compare
from tilewise.kernels.problem import Problem

UNITS = {"bf16": 2.0**-8, "f16": 2.0**-11}
"""Unit roundoff of outputs that are narrower than the problem's."""

ROUNDINGS = 2  # of a narrow bias or sum, and of the output


class PeerAbsentError(Exception):
    """The peer cannot compute this problem, or is not installed."""


class ShapeError(Exception):
    """A result has the wrong shape."""


@dataclass(frozen=True)
class Variant:
    """A peer's code bound to the operands of one problem.

    `name` is its way, such as `data tiling`. `run` computes repeatedly, `result` returns the last
    result in C's shape, f32 for narrow floats. `output` is the type written, if narrower than C.
    """

    peer: str
    name: str
    run: Callable[[int], None]
    result: Callable[[], Array]
    output: str | None = None


def why_wrong(
    variant: Variant, problem: Problem, operands: Operands, expected: Expected, initial: Array
) -> str | None:
    """Run once on a reset C and compare; return why it is wrong, if it is."""
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
    """Run once on a reset C; return the largest deviation and the tolerance there.

    Where a library writes a narrower type than the problem's, that rounding is allowed. Raises
    ShapeError for a wrong shape.
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
    of_result = operand_type(problem, "C")
    if problem.accumulates:
        size = size + np.abs(widened(initial, of_result))
    if problem.add:
        size = size + np.abs(widened(operands["add"], of_result))
    roundings = ROUNDINGS + problem.function.is_smooth  # also of its argument
    return Expected(expected.value, expected.tolerance + roundings * UNITS[variant.output] * size)
