"""The oracle: exact or float64 results, and their tolerance.

The error of a dot product of length K in any order is at most gamma_K |A||B| with gamma_K = K u /
(1 - K u) (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1), which is
too forgiving for large K. Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis
(SIAM J. Sci. Comput. 41(5), 2019) show that lambda sqrt(K) u holds with a probability that quickly
tends to one in lambda. The tolerance is the smaller of both times |A||B|, element by element.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.oracle.operands import (
    NUMPY_TYPES,
    Array,
    Operands,
    less_zero,
    operand_type,
    widened,
)
from tilewise.kernels.problem import SIGNIFICAND_BITS, Convolution, Matmul, Problem
from tilewise.kernels.problem.keys import BF16X3
from tilewise.kernels.problem.rounding import quantised
from tilewise.kernels.problem.weights import QuantisedWeights

CONFIDENCE = 6.0  # lambda: failure probability of about 2 exp(-18) per element
TINY = 1e-30
SMOOTH_UNIT = 1e-6
"""The error of a smooth epilogue, relative to its argument: erf, tanh and exp are within a few
units in the last place, and 1 + erf of a large negative number cancels."""
_LEAST = {"f16": 2.0**-25}
"""The most that rounding changes numbers near zero, where a type has few digits for them."""
_CHUNK = 1 << 15  # elements that are compared at a time, so that they stay in cache
_HALF = 16  # bits
_MASK = (1 << _HALF) - 1


@dataclass(frozen=True)
class Expected:
    """A right result (float64 for floats, exact for integers), and its tolerance by element.

    The tolerance is None if the result must be exact.
    """

    value: Array
    tolerance: Array | None


def compare(problem: Problem, result: Array, expected: Expected) -> tuple[float, float]:
    """Return the largest deviation and the tolerance at that element.

    The deviation exceeds the tolerance exactly if some element is wrong; an unexpected NaN gives
    infinity. For integers return the number of wrong elements, and 0.
    """
    if expected.tolerance is None:
        return float(np.count_nonzero(result != expected.value)), 0.0
    if problem.result.name == "bf16" and result.dtype == NUMPY_TYPES["bf16"]:
        result = widened(result, "bf16")  # a peer's may be wide already
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


def error_bound(length: int, accumulator: str) -> float:
    """Return the error allowed for a sum of `length` products, as a fraction of |A||B|.

    The reference itself is computed in float64, so f64 results get twice the bound.
    """
    dtype = np.dtype(NUMPY_TYPES[accumulator])
    unit = float(np.finfo(dtype).eps) / 2
    likely = CONFIDENCE * float(np.sqrt(length)) * unit
    share = length * unit
    worst = share / (1 - share) if share < 1 else likely  # beyond that gamma says nothing
    return min(worst, likely) * (2 if accumulator == "f64" else 1)


def bound_of(problem: Problem) -> float:
    """Return the error allowed for the sums of a problem, as a fraction of |A||B|."""
    if problem.accuracy == BF16X3:  # each factor is 2**-16 off, and low times low is left out
        return error_bound(3 * problem.depth + 2, "f32") + 3 * 2.0**-16
    return error_bound(problem.depth + 2, problem.element.accumulator)


def reference(problem: Problem, operands: Operands) -> Expected:
    """Return the expected result of `problem` on `operands`; C is read if it accumulates."""
    if problem.element.is_float:
        return _float_reference(problem, operands)
    return Expected(_wrapped_reference(problem, operands), None)


def _float_reference(problem: Problem, operands: Operands) -> Expected:
    wide = {name: widened(array, operand_type(problem, name)) for name, array in operands.items()}
    if weights := problem.quantised_weights:
        wide["B"] = weights.dequantised(wide)
    value = _contract(problem, wide["A"], wide["B"], np.matmul)
    size = _contract(problem, np.abs(wide["A"]), np.abs(wide["B"]), np.matmul)
    for extra in _initial(problem, wide):
        value, size = value + extra, size + np.abs(extra)
    tolerance = bound_of(problem) * size + TINY
    if weights:
        tolerance = tolerance + _of_slices(problem, weights, wide)
    if problem.function.is_smooth:
        tolerance = problem.function.slope * tolerance + SMOOTH_UNIT * (np.abs(value) + tolerance)
    value = problem.function.apply(value)
    return Expected(value, _rounded(problem.out, value, tolerance))


def _of_slices(problem: Problem, weights: QuantisedWeights, wide: Operands) -> Array:
    """Return the tolerance of integers that A is rounded to, block by block, in f32 or bf16.

    Each element is off by a share of the largest one in its block. As with sums, the tolerance is
    the smaller of what such errors can add up to and of what independent ones hardly ever do.
    """
    b = np.abs(wide["B"].T if weights.is_transposed else wide["B"])
    blocks = range(0, weights.depth, weights.block)
    a = np.abs(wide["A"])
    most = np.stack([a[:, at : at + weights.block].max(axis=1) for at in blocks], axis=1)
    parts = [b[at : at + weights.block] for at in blocks]
    worst = most @ np.stack([part.sum(axis=0) for part in parts])
    likely = np.sqrt(most**2 @ np.stack([(part**2).sum(axis=0) for part in parts]))
    return np.asarray(unit_of_slices(problem) * np.minimum(worst, CONFIDENCE * likely))


def unit_of_slices(problem: Problem) -> float:
    """Return the most that an element of A is off with quantised weights.

    It is relative to the largest element of its block: half of the last bit of one slice of 8 bits,
    of two for bf16 and of three for f32, whose scaling is rounded as well.
    """
    weights = problem.quantised_weights
    is_byte = weights is not None and weights.quantises_a
    bits = 7.9 if is_byte else {"bf16": 15.9, "f32": 22}[problem.dtype]
    return float(2.0**-bits)


def _rounded(out: str, value: Array, tolerance: Array) -> Array:
    """Return the tolerance of results that are rounded to `out` in the end, to nearest."""
    if not out:
        return tolerance
    unit, least = rounding_of(out)
    return np.asarray(tolerance + unit * (np.abs(value) + tolerance) + least)


def rounding_of(out: str) -> tuple[float, float]:
    """Return the most that rounding to a type changes a number, relative to it, and near zero."""
    return 2.0 ** -SIGNIFICAND_BITS[out], _LEAST.get(out, 0.0)


def _initial(problem: Problem, operands: Operands) -> list[Array]:
    """Return what the accumulator starts from besides zero."""
    extra = []
    if "bias" in operands:
        extra.append(along_channels(problem, operands["bias"]))
    if problem.add:
        extra.append(operands["add"])
    if problem.accumulates:
        extra.append(operands["C"])
    return extra


def along_channels(problem: Problem, values: Array) -> Array:
    """Return values of channels in a shape that broadcasts to the result."""
    behind = len(problem.spatial_axes) * problem.has_channels_first
    return values.reshape(-1, *[1] * behind)


Product = Callable[[Array, Array], Array]


@singledispatch
def _contract(problem: Problem, a: Array, b: Array, product: Product) -> Array:
    """Return the sums of products; one function for each operation."""
    raise UnsupportedError(
        f"op={problem.op} has no reference; give a matmul or a convolution", "op"
    )


@_contract.register
def _multiply(problem: Matmul, a: Array, b: Array, product: Product) -> Array:
    a = a.swapaxes(-1, -2) if problem.transpose_a else a
    return product(a, b.swapaxes(-1, -2) if problem.transpose_b else b)


@_contract.register
def _convolve(problem: Convolution, a: Array, b: Array, product: Product) -> Array:
    if not problem.has_channels_first:
        return _convolve_nhwc(problem, a, b, product)
    image, weights = np.moveaxis(a, 1, -1), np.moveaxis(b, (0, 1), (-1, -2))
    return np.moveaxis(_convolve_nhwc(problem, image, weights, product), -1, 1)


def _convolve_nhwc(problem: Convolution, image: Array, weights: Array, product: Product) -> Array:
    """Sum over filter taps of (shifted image) x (tap's matrix), without im2col."""
    pads = zip(problem.pads.low, problem.pads.high, strict=True)
    padded = np.pad(image, ((0, 0), *pads, (0, 0)))
    ci, co = problem.ci // problem.groups, problem.co // problem.groups
    parts = []
    for g in range(problem.groups):
        channels, filters = slice(g * ci, (g + 1) * ci), slice(g * co, (g + 1) * co)
        total: Array = np.zeros((), image.dtype)
        for tap in np.ndindex(*problem.window):
            axes = zip(tap, problem.dilations, problem.outputs, problem.strides, strict=True)
            seen = (
                slice(i * dilation, i * dilation + (size - 1) * stride + 1, stride)
                for i, dilation, size, stride in axes
            )
            total = total + product(padded[:, *seen, channels], weights[tap][:, filters])
        parts.append(total)
    return np.concatenate(parts, axis=-1)


def _wrapped_reference(problem: Problem, operands: Operands) -> Array:
    """Compute modulo 2**32, exactly, at the speed of float64 matrix products."""
    product = _wrapped_product if problem.element.name == "i32" else _small_product
    a, b = less_zero(operands, "A"), less_zero(operands, "B")
    total = _contract(problem, a, b, product).astype(np.uint32)
    for extra in _initial(problem, operands):
        total = total + extra.view(np.uint32)
    sums = problem.function.apply(total.view(np.int32))
    return _requantised(problem, sums, operands) if problem.requant else sums


def _requantised(problem: Problem, sums: Array, operands: Operands) -> Array:
    scale = operands["scale_c"]
    scale = along_channels(problem, scale) if scale.size > 1 else scale
    return quantised(sums, scale, operands["zero_c"], problem.out)


def _wrapped_product(a: Array, b: Array) -> Array:
    """Multiply modulo 2**32 by 16-bit halves, whose float64 sums stay below 2**53.

    Products of halves are below 2**32, so sums are exact up to a depth of 2**21; the high halves'
    product is a multiple of 2**32 and vanishes.
    """
    out = np.zeros((*a.shape[:-1], b.shape[-1]), np.uint32)
    for start in range(0, a.shape[-1], 1 << 21):
        chunk = slice(start, start + (1 << 21))
        a_low, a_high = _halves(a[..., chunk])
        b_low, b_high = _halves(b[..., chunk, :])
        low = (a_low @ b_low).astype(np.uint64)
        cross = (a_high @ b_low).astype(np.uint64) + (a_low @ b_high).astype(np.uint64)
        out += ((low + (cross << np.uint64(_HALF))) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return out


def _small_product(a: Array, b: Array) -> Array:
    """Multiply bytes, less zero points, modulo 2**32; exact in float64 up to a depth of 2**37."""
    total = a.astype(np.float64) @ b.astype(np.float64)
    return total.astype(np.int64).astype(np.uint32)


def _halves(x: Array) -> tuple[Array, Array]:
    bits = np.ascontiguousarray(x).view(np.uint32)
    return (bits & _MASK).astype(np.float64), (bits >> _HALF).astype(np.float64)
