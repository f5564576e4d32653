"""Multiply-adds and widenings that differ by dtype, as IR."""

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic, size_of
from tilewise.kernels.instructions import Form, Instruction, known_instruction
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.vectors import ELEMENTS, I32, Element, Value, Vectors, declare

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


_FACTORS = {name: e.type for name, e in ELEMENTS.items()} | {"bf16": _BFloat()}


def multiply_add(v: Vectors, one: Instruction, x: Value, y: Value, acc: Value) -> Value:
    """Return the accumulators plus, lane by lane, the (dot) products of x and y.

    Those of `Instruction.pairs` are sums of two products each.
    """
    if not one.intrinsic:
        return v.multiply_add(x, y, acc)
    b, factors = v.builder, v.type
    if one.k > 1:
        products = 2 if one.pairs else one.k
        factors = ir.VectorType(_FACTORS[one.widened or one.b], products * v.lanes)
        x, y = (b.sext(f, factors) if one.widened else b.bitcast(f, factors) for f in (x, y))
    given = {"x": (x, factors), "y": (y, factors), "acc": (acc, v.type)}
    values, types = zip(*(given[name] for name in one.arguments), strict=True)
    name = one.intrinsic.format(f"v{v.lanes}{v.element.mangled}")
    result = b.call(declare(b.module, name, v.type, types), values)
    return result if one.adds else v.add_in_order(acc, result)


def column_sums(v: Vectors, one: Instruction, word: Value, acc: Value) -> Value:
    """Return the accumulators plus the sum of the elements of each word."""
    if Form.TILES in one.forms:  # of processors that have these, too
        one = known_instruction(f"x86.avx512.vpdpbusd{'.i8.u8' if one.b == 'u8' else ''}")
    elements = ir.VectorType(_FACTORS[one.b], one.k * v.lanes)
    ones = v.builder.bitcast(ir.Constant(elements, [1] * elements.count), v.type)
    return multiply_add(v, one, ones, word, acc)


def corrections(v: Vectors, how: Arithmetic, sums: Value, zero: Value, vectors: int) -> list[Value]:
    """Return the corrections of a row of C for an A with an offset, one vector for each of B's.

    Each is the sum of a column of B times minus the offset. The packed panel stores the sums at
    `sums`; without a zero point (at `zero`) they are stored scaled.
    """
    found = [v.load(v.at(sums, j * v.lanes)) for j in range(vectors)]
    if not how.moves_zero:
        return found
    moved = v.builder.add(zero_at(v.builder, zero), ir.Constant(I32, how.offset))
    factor = v.splat(v.builder.sub(ir.Constant(I32, 0), moved))
    return [v.builder.mul(one, factor) for one in found]


def widen(builder: Builder, value: Value, stored: str, packed: str) -> Value:
    """Convert a vector of stored elements to packed ones; exact, also for NaN and infinity."""
    if ELEMENTS[stored].type is ELEMENTS[packed].type:
        return value
    wide = ir.VectorType(ELEMENTS[packed].type, value.type.count)
    if stored == "bf16":
        bits = ir.VectorType(I32, value.type.count)
        shift = ir.Constant(bits, [_BF16_SHIFT] * bits.count)
        return builder.bitcast(builder.shl(builder.zext(value, bits), shift), wide)
    if ELEMENTS[stored].is_float:
        return builder.fpext(value, wide)
    return builder.zext(value, wide) if stored == "u8" else builder.sext(value, wide)


def zero_at(builder: Builder, address: Value) -> Value:
    """Return the zero point at an address."""
    return builder.load(builder.inttoptr(address, I32.as_pointer()), align=4)


def less_zero(builder: Builder, value: Value, zero: Value | None, mask: Value | None) -> Value:
    """Return widened elements less a zero point, if any; lanes off in `mask` stay zero."""
    if zero is None:
        return value
    element = value.type.element
    scalar = zero if element == I32 else builder.trunc(zero, element)
    v = Vectors(builder, Element(element, "", element.width // 8, False), value.type.count)
    moved = builder.sub(value, v.splat(scalar))
    return moved if mask is None else builder.select(mask, moved, v.zero)


def narrow(builder: Builder, value: Value, to: str, *, has_bf16: bool = False) -> Value:
    """Round a vector of f32 to f16 or bf16, to nearest even; a NaN stays a NaN.

    bf16 is made by integers unless AVX-512 has an instruction for it, which takes denormal numbers
    for zero: LLVM would call the C library.
    """
    lanes = value.type.count
    if to != "bf16":
        return builder.fptrunc(value, ir.VectorType(ELEMENTS[to].type, lanes))
    if has_bf16:
        name = f"llvm.x86.avx512bf16.cvtneps2bf16.{32 * lanes}"
        kind = ir.VectorType(_FACTORS["bf16"], lanes)
        halves = builder.call(declare(builder.module, name, kind, (value.type,)), (value,))
        return builder.bitcast(halves, ir.VectorType(ELEMENTS[to].type, lanes))
    kind = ir.VectorType(I32, lanes)

    def number(one: int) -> Value:
        return ir.Constant(kind, [one] * lanes)

    bits = builder.bitcast(value, kind)
    odd = builder.and_(builder.lshr(bits, number(_BF16_SHIFT)), number(1))
    rounded = builder.add(bits, builder.add(odd, number(0x7FFF)))
    magnitude = builder.and_(bits, number(0x7FFFFFFF))
    is_nan = builder.icmp_signed(">", magnitude, number(0x7F800000))
    found = builder.select(is_nan, builder.or_(bits, number(0x400000)), rounded)
    upper = builder.lshr(found, number(_BF16_SHIFT))
    return builder.trunc(upper, ir.VectorType(ELEMENTS[to].type, lanes))


def widened_from_word(builder: Builder, words: Value, how: Arithmetic, place: int) -> Value:
    """Return a vector of f32 from words that are f16, or from either half of pairs of bf16."""
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
    """Join vectors of neighbouring reduction steps to a vector of words, the first lowest."""
    words = ir.VectorType(I32, rows[0].type.count)
    joined: Value = builder.zext(rows[0], words)
    for index, row in enumerate(rows[1:], start=1):
        shift = ir.Constant(words, [8 * size_of(stored) * index] * words.count)
        joined = builder.or_(joined, builder.shl(builder.zext(row, words), shift))
    return joined


def add_offset(builder: Builder, value: Value, offset: int) -> Value:
    """Add the offset, which is a byte's highest bit, to every byte of bytes or words."""
    lane = value.type.element
    constant = int.from_bytes([offset] * (lane.width // 8))
    return builder.xor(value, ir.Constant(value.type, [constant] * value.type.count))
