"""Operations of a body on vectors of f32, by their names."""

from collections.abc import Callable
from math import inf
from typing import Any

from llvmlite import ir

from tilewise.kernels.native.ir.builder import typed
from tilewise.kernels.native.ir.vectors import I32, Value, Vectors, declare

_PREDICATES = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult",
               "ule", "une", "uno", "true")  # fmt: skip
"""LLVM's names of comparisons, by MLIR's numbers."""
NEUTRAL = {"sum": 0.0, "max": -inf, "maxnum": -inf, "min": inf, "minnum": inf, "larger": -inf}
"""From which each reduction starts."""
_HALF = 16


class Floats:
    """Writes operations on vectors of f32.

    Args:
        vectors: of f32.
    """

    def __init__(self, vectors: Vectors) -> None:
        self.v, self.b = vectors, vectors.builder
        self.integers = ir.VectorType(I32, vectors.lanes)

    def number(self, value: float) -> Value:
        """A number in all lanes."""
        return ir.Constant(self.v.type, [self.v.element.type(value)] * self.v.lanes)

    def integer(self, value: int) -> Value:
        """An i32 in all lanes."""
        return ir.Constant(self.integers, [value] * self.v.lanes)

    def bits(self, x: Value) -> Value:
        """The bits of floats."""
        return self.b.bitcast(x, self.integers)

    def floats(self, bits: Value) -> Value:
        """The floats of bits."""
        return self.b.bitcast(bits, self.v.type)

    def add(self, x: Value, y: Value) -> Value:
        """The sum x + y."""
        return self.b.fadd(x, y)

    def subtract(self, x: Value, y: Value) -> Value:
        """The difference x - y."""
        return self.b.fsub(x, y)

    def multiply(self, x: Value, y: Value) -> Value:
        """The product x * y."""
        return self.b.fmul(x, y)

    def multiply_add(self, x: Value, y: Value, z: Value) -> Value:
        """The sum x * y + z, rounded once where the processor does that."""
        return self.v.multiply_add(x, y, z)

    def divide(self, x: Value, y: Value) -> Value:
        """The quotient x / y."""
        return self._binary("fdiv", x, y)

    def negate(self, x: Value) -> Value:
        """The number -x."""
        return self.b.write(x.type, f"fneg {typed(x)}")

    def abs(self, x: Value) -> Value:
        """The number without its sign."""
        return self.intrinsic("fabs", x)

    def sqrt(self, x: Value) -> Value:
        """The square root."""
        return self.intrinsic("sqrt", x)

    def rsqrt(self, x: Value) -> Value:
        """One over the square root, rounded twice."""
        return self.divide(self.number(1.0), self.sqrt(x))

    def compare(self, predicate: int, x: Value, y: Value) -> Value:
        """Where MLIR's comparison of that number holds."""
        kind = ir.VectorType(ir.IntType(1), self.v.lanes)
        text = f"fcmp {_PREDICATES[predicate]} {typed(x)}, {y.get_reference()}"
        return self.b.write(kind, text)

    def is_nan(self, x: Value) -> Value:
        """Where something is no number."""
        return self.compare(_PREDICATES.index("uno"), x, x)

    def larger(self, x: Value, y: Value) -> Value:
        """The larger one; y where either is no number: what processors do in one instruction."""
        return self.b.select(self.b.fcmp_ordered(">", x, y), x, y)

    def smaller(self, x: Value, y: Value) -> Value:
        """The smaller one; y where either is no number."""
        return self.b.select(self.b.fcmp_ordered("<", x, y), x, y)

    def max(self, x: Value, y: Value) -> Value:
        """The larger one; what is no number stays."""
        return self._keeping(self.larger, x, y)

    def min(self, x: Value, y: Value) -> Value:
        """The smaller one; what is no number stays."""
        return self._keeping(self.smaller, x, y)

    def maxnum(self, x: Value, y: Value) -> Value:
        """The larger one; the other where one is no number."""
        return self.b.select(self.is_nan(y), x, self.larger(x, y))

    def minnum(self, x: Value, y: Value) -> Value:
        """The smaller one; the other where one is no number."""
        return self.b.select(self.is_nan(y), x, self.smaller(x, y))

    def narrow(self, x: Value) -> Value:
        """The nearest bf16, ties to even, as f32."""
        bits = self.bits(x)
        odd = self.b.and_(self.b.ashr(bits, self.integer(_HALF)), self.integer(1))
        rounded = self.b.add(bits, self.b.add(odd, self.integer(0x7FFF)))
        kept = self.b.or_(bits, self.integer(0x400000))
        found = self.b.select(self.is_nan(x), kept, rounded)
        return self.floats(self.b.and_(found, self.integer(-(1 << _HALF))))

    def widen(self, x: Value) -> Value:
        """A bf16 is an f32 already."""
        return x

    def copy_sign(self, x: Value, y: Value) -> Value:
        """The number x with the sign of y."""
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
