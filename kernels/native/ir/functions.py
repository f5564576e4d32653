"""Operations on vectors of f32 by name; exp, erf and tanh within five units, and epilogues of them.

Each of the three is a polynomial on a short interval that interpolates the function at Chebyshev
nodes in f64 (Trefethen, Approximation Theory and Approximation Practice, 2019, chapters 2 to 4).
The reduction of exp is Cody's and Waite's (Software Manual for the Elementary Functions, 1980).
"""

import functools
import math
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.polynomial import chebyshev

from tilewise.kernels.native.ir.builder import typed
from tilewise.kernels.native.ir.vectors import I32, Value, Vectors, declare

_PREDICATES = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult",
               "ule", "une", "uno", "true")  # fmt: skip
"""LLVM's names of comparisons, by MLIR's numbers."""
NEUTRAL = {"sum": 0.0, "max": -inf, "maxnum": -inf, "min": inf, "minnum": inf}
"""From which each reduction starts."""
_HALF = 16


class Floats:
    """Emits operations on vectors of f32."""

    def __init__(self, vectors: Vectors) -> None:
        self.v, self.b = vectors, vectors.builder
        self.integers = ir.VectorType(I32, vectors.lanes)

    def number(self, value: float) -> Value:
        """Return a number in all lanes."""
        return ir.Constant(self.v.type, [self.v.element.type(value)] * self.v.lanes)

    def integer(self, value: int) -> Value:
        """Return an i32 in all lanes."""
        return ir.Constant(self.integers, [value] * self.v.lanes)

    def bits(self, x: Value) -> Value:
        """Return the bits of floats."""
        return self.b.bitcast(x, self.integers)

    def floats(self, bits: Value) -> Value:
        """Return the floats of bits."""
        return self.b.bitcast(bits, self.v.type)

    def add(self, x: Value, y: Value) -> Value:
        """Return the sum x + y."""
        return self.b.fadd(x, y)

    def subtract(self, x: Value, y: Value) -> Value:
        """Return the difference x - y."""
        return self.b.fsub(x, y)

    def multiply(self, x: Value, y: Value) -> Value:
        """Return the product x * y."""
        return self.b.fmul(x, y)

    def multiply_add(self, x: Value, y: Value, z: Value) -> Value:
        """Return the sum x * y + z, rounded once where the processor does that."""
        return self.v.multiply_add(x, y, z)

    def divide(self, x: Value, y: Value) -> Value:
        """Return the quotient x / y."""
        return self._binary("fdiv", x, y)

    def negate(self, x: Value) -> Value:
        """Return the number -x."""
        return self.b.write(x.type, f"fneg {typed(x)}")

    def abs(self, x: Value) -> Value:
        """Return the number without its sign."""
        return self.intrinsic("fabs", x)

    def sqrt(self, x: Value) -> Value:
        """Return the square root."""
        return self.intrinsic("sqrt", x)

    def rsqrt(self, x: Value) -> Value:
        """One over the square root, rounded twice."""
        return self.divide(self.number(1.0), self.sqrt(x))

    def compare(self, predicate: int, x: Value, y: Value) -> Value:
        """Return where MLIR's comparison of that number holds."""
        kind = ir.VectorType(ir.IntType(1), self.v.lanes)
        text = f"fcmp {_PREDICATES[predicate]} {typed(x)}, {y.get_reference()}"
        return self.b.write(kind, text)

    def is_nan(self, x: Value) -> Value:
        """Return the mask of NaN."""
        return self.compare(_PREDICATES.index("uno"), x, x)

    def larger(self, x: Value, y: Value) -> Value:
        """The larger one; y where either is no number: what processors do in one instruction."""
        return self.b.select(self.b.fcmp_ordered(">", x, y), x, y)

    def smaller(self, x: Value, y: Value) -> Value:
        """Return the smaller one; y where either is no number."""
        return self.b.select(self.b.fcmp_ordered("<", x, y), x, y)

    def max(self, x: Value, y: Value) -> Value:
        """Return the larger one; what is no number stays."""
        return self._keeping(self.larger, x, y)

    def min(self, x: Value, y: Value) -> Value:
        """Return the smaller one; what is no number stays."""
        return self._keeping(self.smaller, x, y)

    def maxnum(self, x: Value, y: Value) -> Value:
        """Return the larger one; the other where one is no number."""
        return self.b.select(self.is_nan(y), x, self.larger(x, y))

    def minnum(self, x: Value, y: Value) -> Value:
        """Return the smaller one; the other where one is no number."""
        return self.b.select(self.is_nan(y), x, self.smaller(x, y))

    def narrow(self, x: Value) -> Value:
        """Return the nearest bf16, ties to even, as f32."""
        bits = self.bits(x)
        odd = self.b.and_(self.b.ashr(bits, self.integer(_HALF)), self.integer(1))
        rounded = self.b.add(bits, self.b.add(odd, self.integer(0x7FFF)))
        kept = self.b.or_(bits, self.integer(0x400000))
        found = self.b.select(self.is_nan(x), kept, rounded)
        return self.floats(self.b.and_(found, self.integer(-(1 << _HALF))))

    def widen(self, x: Value) -> Value:
        """Return x: a bf16 is an f32 already."""
        return x

    def copy_sign(self, x: Value, y: Value) -> Value:
        """Return the number x with the sign of y."""
        return self.intrinsic("copysign", x, y)

    def intrinsic(self, name: str, *of: Value) -> Value:
        """One of LLVM's functions on vectors."""
        kind = f"v{self.v.lanes}f32"
        function = declare(self.b.module, f"llvm.{name}.{kind}", self.v.type,
                           (self.v.type,) * len(of))  # fmt: skip
        return self.b.call(function, of)

    def _keeping(self, choose: Callable[[Value, Value], Value], x: Value, y: Value) -> Value:
        if isinstance(y, ir.Constant):
            x, y = y, x
        found = choose(x, y)
        return found if isinstance(x, ir.Constant) else self.b.select(self.is_nan(x), x, found)

    def _binary(self, name: str, x: Value, y: Value) -> Any:
        return self.b.write(x.type, f"{name} {typed(x)}, {y.get_reference()}")


_LN2_HIGH = 0.693359375  # nine bits: its products with exponents are exact
_LN2_LOW = math.log(2) - _LN2_HIGH
_ROUNDING = 1.5 * 2**23  # f32 has no fractions from there on: a sum with it is rounded
_LEAST, _MOST = -104.0, 89.0  # exp is 0 below and infinite above
_NORMAL = -80.0  # exp is no denormal number from there on
_BIAS, _MANTISSA = 127, 23
_ERF_END = 3.92  # erf is within half a unit of 1 from there on
_TANH_SMALL = 0.55  # below, 1 - exp(-2x) loses digits


def exp(f: Floats, x: Value) -> Value:
    """Return the power e**x as 2**k e**r, |r| <= ln 2 / 2; 0, infinity and NaN where they are."""
    x = f.larger(f.number(_LEAST), x)
    x = f.smaller(f.number(_MOST), x)
    rounded = f.multiply_add(x, f.number(math.log2(math.e)), f.number(_ROUNDING))
    k = f.subtract(rounded, f.number(_ROUNDING))
    rest = f.multiply_add(k, f.number(-_LN2_HIGH), x)
    rest = f.multiply_add(k, f.number(-_LN2_LOW), rest)
    power = _polynomial(f, rest, _exp_coefficients())
    bits = f.bits(f.number(_ROUNDING))
    exponent = f.b.sub(f.bits(rounded), bits)
    half = f.b.ashr(exponent, f.integer(1))  # two factors: neither overflows, the last rounds
    power = f.multiply(power, _two_to(f, half))
    return f.multiply(power, _two_to(f, f.b.sub(exponent, half)))


def erf(f: Floats, x: Value) -> Value:
    """Return the error function of x as x P(x^2) up to where it is 1."""
    return _erf(f, x, _ERF_END, 15)


def gelu(f: Floats, x: Value) -> Value:
    """Return x (1 + erf(x / sqrt 2)) / 2 with an error of at most 1e-6 |x|."""
    half = f.multiply(x, f.number(0.5))
    return f.multiply_add(half, _erf(f, f.multiply(x, f.number(math.sqrt(0.5))), 3.5, 12), half)


def gelu_tanh(f: Floats, x: Value) -> Value:
    """Return x (1 + tanh y) / 2 as x / (1 + exp(-2 y)), y = sqrt(2 / pi) (x + 0.044715 x^3)."""
    cubed = f.multiply_add(f.multiply(x, x), f.number(0.044715), f.number(1.0))
    return _gated(f, x, f.multiply(f.multiply(x, f.number(-2 * math.sqrt(2 / math.pi))), cubed))


def silu(f: Floats, x: Value) -> Value:
    """Return x / (1 + exp(-x))."""
    return _gated(f, x, f.negate(x))


def _gated(f: Floats, x: Value, exponent: Value) -> Value:
    """Return x / (1 + exp(exponent)), without powers so small that processors take long."""
    exponent = f.larger(f.number(_NORMAL), exponent)
    return f.divide(x, f.add(f.number(1.0), exp(f, exponent)))


def _erf(f: Floats, x: Value, end: float, degree: int) -> Value:
    x = _within(f, x, end)
    square = f.multiply(x, x)
    at = f.multiply_add(square, f.number(2 / end**2), f.number(-1.0))
    return _within(f, f.multiply(x, _polynomial(f, at, _erf_coefficients(end, degree))), 1.0)


def tanh(f: Floats, x: Value) -> Value:
    """Return the hyperbolic tangent of x: x P(x^2) where x is small, else by exp(-2 |x|)."""
    size = f.abs(x)
    square = f.multiply(size, size)
    end = _TANH_SMALL**2
    at = f.multiply_add(square, f.number(2 / end), f.number(-1.0))
    small = f.multiply(size, _polynomial(f, at, _tanh_coefficients()))
    power = exp(f, f.multiply(size, f.number(-2.0)))
    large = f.divide(f.subtract(f.number(1.0), power), f.add(f.number(1.0), power))
    is_small = f.b.fcmp_ordered("<", size, f.number(_TANH_SMALL))
    return f.copy_sign(f.b.select(is_small, small, large), x)


FUNCTIONS: dict[str, Callable[[Floats, Value], Value]] = {"exp": exp, "erf": erf, "tanh": tanh}
SMOOTH: dict[str, Callable[[Floats, Value], Value]] = {
    "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu,
}  # fmt: skip
"""The smooth epilogues, by name."""


def _within(f: Floats, x: Value, most: float) -> Value:
    """Return the number x, but not beyond a limit on either side; NaN stays."""
    return f.smaller(f.number(most), f.larger(f.number(-most), x))


def _two_to(f: Floats, exponent: Value) -> Value:
    biased = f.b.add(exponent, f.integer(_BIAS))
    return f.floats(f.b.shl(biased, f.integer(_MANTISSA)))


def _polynomial(f: Floats, x: Value, coefficients: Sequence[float]) -> Value:
    """By Horner's rule, the constant first."""
    *rest, last = coefficients
    value = f.number(last)
    for one in reversed(rest):
        value = f.multiply_add(value, x, f.number(one))
    return value


def _interpolated(function: Callable[[float], float], degree: int) -> tuple[float, ...]:
    """Return the coefficients of a function of [-1, 1]."""
    made = chebyshev.chebinterpolate(np.vectorize(function), degree)
    return tuple(float(one) for one in chebyshev.cheb2poly(made))


@functools.cache
def _exp_coefficients() -> tuple[float, ...]:
    end = math.log(2) / 2 * 1.001  # the rest is rounded, too
    made = _interpolated(lambda t: math.exp(t * end), 6)
    return tuple(one / end**i for i, one in enumerate(made))


@functools.cache
def _erf_coefficients(end: float, degree: int) -> tuple[float, ...]:
    return _interpolated(lambda t: _over(math.erf, _root(t, end), 2 / math.pi**0.5), degree)


@functools.cache
def _tanh_coefficients() -> tuple[float, ...]:
    return _interpolated(lambda t: _over(math.tanh, _root(t, _TANH_SMALL), 1.0), 6)


def _root(t: float, end: float) -> float:
    """Return the x in [0, end] whose square lies at t, of [-1, 1]."""
    return end * math.sqrt(max(0.0, (t + 1) / 2))


def _over(function: Callable[[float], float], x: float, slope: float) -> float:
    """Return the quotient f(x) / x; near 0 its limit."""
    return function(x) / x if x > 1e-8 else slope
