"""Multiply-adds and widenings that differ by dtype, as IR."""

from typing import Any

from llvmlite import ir

from tilewise.kernels.arithmetic import BF16_DOT, I8_DOT, I16_DOT, Arithmetic, size_of
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.vectors import ELEMENTS, I8, I16, I32, Value, Vectors, declare

OFFSET = 128  # what makes an i8 unsigned
_OFFSET_BYTES = 0x80808080
_BF16_SHIFT = 16
_UPPER_HALF = 0xFFFF0000
_HALVES = (0, 1)


class _BFloat(ir.Type):
    """LLVM's bfloat, which llvmlite's builder does not know."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash("bfloat")


def multiply_add(v: Vectors, how: Arithmetic, x: Value, y: Value, acc: Value) -> Value:
    """The accumulators plus, lane by lane, the (dot) product of words of A and of B."""
    if how.dot == BF16_DOT:
        return _dot(v, how.dot, ir.VectorType(_BFloat(), 2 * v.lanes), x, y, acc)
    if how.dot == I8_DOT:
        return _dot(v, how.dot, ir.VectorType(I8, 4 * v.lanes), x, y, acc)
    if how.dot == I16_DOT:
        return _signed_pairs(v, x, y, acc)
    return v.multiply_add(x, y, acc)


def _signed_pairs(v: Vectors, x: Value, y: Value, acc: Value) -> Value:
    """The accumulators plus products of signed bytes, summed in pairs; exact."""
    b, wide = v.builder, ir.VectorType(I16, 2 * v.lanes)
    fn = declare(b.module, I16_DOT, v.type, (wide, wide))
    return v.add_in_order(acc, b.call(fn, (b.sext(x, wide), b.sext(y, wide))))


def column_sums(v: Vectors, word: Value, acc: Value) -> Value:
    """The accumulators plus the sum of the four signed bytes of each lane."""
    quads = ir.VectorType(I8, 4 * v.lanes)
    ones = v.builder.bitcast(ir.Constant(quads, [1] * quads.count), v.type)
    return _dot(v, I8_DOT, quads, ones, word, acc)


def _dot(v: Vectors, name: str, factors: Any, x: Value, y: Value, acc: Value) -> Value:
    fn = declare(v.builder.module, name, v.type, (v.type, factors, factors))
    b = v.builder
    return b.call(fn, (acc, b.bitcast(x, factors), b.bitcast(y, factors)))


def widen(builder: Builder, value: Value, stored: str, packed: str) -> Value:
    """A vector of stored elements as packed elements; exact, also for NaN and infinity."""
    if stored == packed:
        return value
    wide = ir.VectorType(ELEMENTS[packed].type, value.type.count)
    if stored == "bf16":
        bits = ir.VectorType(I32, value.type.count)
        shift = ir.Constant(bits, [_BF16_SHIFT] * bits.count)
        return builder.bitcast(builder.shl(builder.zext(value, bits), shift), wide)
    if ELEMENTS[stored].is_float:
        return builder.fpext(value, wide)
    return builder.sext(value, wide)


def widened_from_word(builder: Builder, words: Value, how: Arithmetic, place: int) -> Value:
    """A vector of f32 from words that are f16, or from either half of pairs of bf16."""
    if how.depth == 1:
        return widen(builder, words, how.stored, how.packed)
    assert how.stored == "bf16" and place in _HALVES
    count = words.type.count
    if place:
        bits = builder.and_(words, ir.Constant(words.type, [_UPPER_HALF] * count))
    else:
        bits = builder.shl(words, ir.Constant(words.type, [_BF16_SHIFT] * count))
    return builder.bitcast(bits, ir.VectorType(ELEMENTS[how.packed].type, count))


def join(builder: Builder, rows: list[Value], stored: str) -> Value:
    """Vectors of neighbouring reduction steps as one vector of words, the first lowest."""
    words = ir.VectorType(I32, rows[0].type.count)
    joined: Value = builder.zext(rows[0], words)
    for index, row in enumerate(rows[1:], start=1):
        shift = ir.Constant(words, [8 * size_of(stored) * index] * words.count)
        joined = builder.or_(joined, builder.shl(builder.zext(row, words), shift))
    return joined


def add_offset(builder: Builder, value: Value) -> Value:
    """Every byte plus 128, which turns i8 into u8; for vectors of bytes or of words."""
    lane = value.type.element
    constant = _OFFSET_BYTES if lane == I32 else OFFSET
    return builder.xor(value, ir.Constant(value.type, [constant] * value.type.count))
