"""Weights in integers of few bits, with a scale for each group of the reduction.

    B[k, n] = scale_b[k // group, n] * (code[k, n] - zero_b[k // group, n])

That is weight-only quantisation as in ONNX's MatMulNBits and in GGUF: the other factor stays a
float, and memory holds a quarter of the bytes of bf16 weights, or fewer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewise.kernels.problem.keys import STORED

if TYPE_CHECKING:
    from tilewise.kernels.problem.keys import Array

LARGEST_BLOCK = 128
"""Elements of the reduction that kernels multiply with one scale of A; larger groups are cut."""
SMALLEST_BLOCK = 16

ACTIVATIONS = ("f32", "bf16")
"""Values of `dtype` that such weights go with."""

CODES = {"i8": ("i8", "u8"), "i4": ("i4", "u4")}
"""For each value of `b` the type of codes, and that of codes which zero points are given for."""


@dataclass(frozen=True)
class QuantisedWeights:
    """How B is stored.

    Attributes:
        codes: the type of its elements; unsigned where there are zero points.
        bits: of one.
        depth: elements of the reduction.
        group: those that share a scale; the last group may be shorter.
        scale: the type of scales.
        zero: the type of zero points; empty for none.
        is_transposed: whether B is stored as [n, k], and scales and zero points as [n, group].
        quantises_a: whether A is rounded to i8, each block with a scale of its own.
    """

    codes: str
    bits: int
    depth: int
    group: int
    scale: str
    zero: str
    is_transposed: bool
    quantises_a: bool

    @property
    def groups(self) -> int:
        """Return the groups of the reduction."""
        return -(-self.depth // self.group)

    @property
    def block(self) -> int:
        """Return the elements of A that share a scale while they are multiplied: a power of two."""
        size = SMALLEST_BLOCK
        while size < min(self.group, LARGEST_BLOCK):
            size *= 2
        return size

    @property
    def least(self) -> int:
        """Return the least code."""
        return 0 if self.zero else -(1 << (self.bits - 1))

    def dequantised(self, operands: Mapping[str, "Array"]) -> "Array":
        """Return the weights as B is stored, from codes, scales and zero points in wide types."""
        axis = 1 if self.is_transposed else 0

        def of_elements(name: str) -> "Array":
            return operands[name].repeat(self.group, axis).take(range(self.depth), axis)

        codes = operands["B"] - (of_elements("zero_b") if self.zero else 0)
        return of_elements("scale_b") * codes

    def bytes(self, cols: int) -> int:
        """Return the bytes of all codes, scales and zero points of so many columns."""
        zeros = self.bits * self.groups if self.zero else 0
        scales = STORED[self.scale].bytes * self.groups
        return cols * (-(-(self.bits * self.depth + zeros) // 8) + scales)
