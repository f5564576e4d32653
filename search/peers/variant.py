"""One way in which a peer computes a problem, and the check of its result."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tilewise.kernels.oracle.operands import Array, Operands, operand_type, poison, widened
from tilewise.kernels.oracle.reference import Expected, along_channels, compare
from tilewise.kernels.problem import Problem

UNITS = {"bf16": 2.0**-8, "f16": 2.0**-11}
"""Unit roundoff of outputs that are narrower than the problem's."""

ROUNDINGS = 2  # of a narrow bias or sum, and of the output


class PeerAbsentError(Exception):
    """The peer cannot compute this problem, or is not installed."""


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


@dataclass(frozen=True)
class Bench:
    """A problem's operands and reference; `initial` is what C holds at first."""

    problem: Problem
    operands: Operands
    expected: Expected
    initial: Array
    threads: int


def right_ways(ways: list[Variant], bench: Bench) -> list[Variant]:
    """Return the ways with correct results."""
    right = []
    for way in ways:
        with suppress(PeerAbsentError):
            checked(way, bench)
            right.append(way)
    return right


def checked(variant: Variant, bench: Bench) -> tuple[float, float]:
    """Run once on a reset C; return the largest deviation and the tolerance there.

    Where a library writes a narrower type than the problem's, that rounding is allowed. Raises
    PeerAbsentError for a wrong result, or if the library refuses to compute.
    """
    result, shape = bench.operands["C"], bench.expected.value.shape
    if bench.problem.accumulates:
        result[...] = bench.initial
    else:
        poison(result)
    try:
        variant.run(1)
        result = variant.result()
    except (RuntimeError, ValueError, TypeError) as failure:
        # torch refuses what it has no kernel for with RuntimeError or a kind of it, IREE's
        # runtime and NumPy with ValueError, and their bindings with TypeError. A fault of our own
        # does not pass for that: where a peer is installed, tests name what it computes.
        raise PeerAbsentError(str(failure).strip().partition("\n")[0]) from failure
    if result.shape != shape:
        raise PeerAbsentError(f"wrong: the result is {list(result.shape)}, not {list(shape)}")
    error, tolerance = compare(bench.problem, result, _allowed(variant, bench))
    if not error <= tolerance:
        raise PeerAbsentError(
            f"wrong: the largest deviation is {error:.3g}, the tolerance {tolerance:.3g}"
        )
    return error, tolerance


def _allowed(variant: Variant, bench: Bench) -> Expected:
    problem, operands, expected = bench.problem, bench.operands, bench.expected
    if variant.output is None or expected.tolerance is None:
        return expected
    size = np.abs(expected.value)
    if "bias" in operands:
        size = size + np.abs(along_channels(problem, operands["bias"]))
    of_result = operand_type(problem, "C")
    if problem.accumulates:
        size = size + np.abs(widened(bench.initial, of_result))
    if problem.add:
        size = size + np.abs(widened(operands["add"], of_result))
    roundings = ROUNDINGS + problem.function.is_smooth  # also of its argument
    return Expected(expected.value, expected.tolerance + roundings * UNITS[variant.output] * size)
