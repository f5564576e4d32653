"""Quantised weights and A as matrix tiles of bf16 read them.

A panel of B has 16 columns. Its widened codes are matrix tiles, a row of which has two neighbours
of the reduction for each column, and they lie one behind the other:

    k of the codes in bytes of a column     i8: 0, 2, 1, 3    i4: 0 and 2, 4 and 6, 1 and 3, 5 and 7
    k of that column in rows of a tile      0 1, 2 3          0 1, 2 3, 4 5, 6 7

so that each 16 bits of packed codes give the same 16 bits of two rows (i8) or four (i4). Codes of 4
bits are indices of a table in a register, and those of 8 bits are mantissas of f32: 2**23 + code,
from which the zero point is subtracted. A row of A has all parts of a step of the reduction, one
behind the other.
"""

from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from tilewise.kernels.arithmetic import WidenedWeights
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import CountedLoop
from tilewise.kernels.native.ir.dot_products import narrow, widen
from tilewise.kernels.native.ir.functions import Floats
from tilewise.kernels.native.ir.vectors import (
    ELEMENTS,
    I16,
    LINE_BYTES,
    Value,
    Vectors,
    begin_function,
    const,
    declare,
)
from tilewise.kernels.native.packing.panels import ROWS_ARGUMENTS, each_row

WIDEN_ARGUMENTS = ("to", "panel", "blocks")
"""Addresses, and the blocks of the reduction in a panel."""

COLS = 16
"""Columns of a panel."""

_ENTRIES = 32  # of a table of 16 bits, whose index is 5 bits
_UPPER = 16
_BF16_SHIFT = 16
_UPPER_HALF = 0xFFFF0000
_MANTISSAS = ((0xFF, 2.0**23), (0xFF00, 2.0**15))
"""Bits of a code in a word, and the f32 to whose mantissa they add it."""


def emit_widen(module: ir.Module, how: WidenedWeights) -> ir.Function:
    """Emit the function that widens the codes of a panel."""
    fn, b, _ = begin_function(module, "tilewise_widen", WIDEN_ARGUMENTS)
    to, panel, blocks = fn.args
    words = Vectors(b, ELEMENTS["i32"], COLS)
    widener = _Widener(b, how, words)
    rows = 2 * 8 // how.weights.bits  # that a vector of codes gives
    block = CountedLoop(b, (), "block")
    zeros = widener.zeros(panel, blocks, block.index)
    vectors = CountedLoop(b, (), "codes")
    of_block = how.codes_bytes * COLS // LINE_BYTES
    index = b.add(b.mul(block.index, const(of_block)), vectors.index)
    codes = words.load(b.add(panel, b.mul(index, const(LINE_BYTES))))
    first = b.add(to, b.mul(index, const(rows * LINE_BYTES)))
    for row, value in enumerate(widener.rows(codes, zeros)):
        words.store(value, b.add(first, const(row * LINE_BYTES)))
    vectors.close((), const(of_block), 1)
    block.close((), blocks, 1)
    b.ret_void()
    return fn


@dataclass(frozen=True)
class _Widener:
    """Emits what vectors of codes become.

    Attributes:
        b: where.
        how: the arithmetic.
        words: vectors of a word for each column.
    """

    b: Builder
    how: WidenedWeights
    words: Vectors

    def zeros(self, panel: Value, blocks: Value, block: Value) -> Value:
        """Return the zero points of a block in i32; if there are none, those of signed codes."""
        b, weights = self.b, self.how.weights
        if not weights.zero:
            return ir.Constant(self.words.type, [-weights.least] * COLS)
        of_block = self.how.word_bytes * COLS - COLS
        small = Vectors(b, ELEMENTS["u8"], COLS)
        behind = b.add(panel, b.mul(blocks, const(of_block)))
        return b.zext(small.load(small.offset(behind, b.mul(block, const(COLS)))), self.words.type)

    def rows(self, codes: Value, zeros: Value) -> list[Value]:
        """Return the rows of a tile that a vector of codes has, as words of two bf16."""
        if self.how.weights.bits == 4:
            return self._of_nibbles(codes, zeros)
        b, upper = self.b, self.b.lshr(codes, self._word(_BF16_SHIFT))
        floats, found = Floats(Vectors(b, ELEMENTS["f32"], COLS)), []
        zero = b.sitofp(zeros, floats.v.type)
        for mask, base in _MANTISSAS:
            bits = int(np.float32(base).view(np.int32))
            low, high = (
                floats.bits(
                    b.fsub(
                        floats.floats(b.or_(b.and_(one, self._word(mask)), self._word(bits))),
                        b.fadd(zero, floats.number(base)),
                    )
                )
                for one in (codes, upper)
            )
            low = b.lshr(low, self._word(_BF16_SHIFT))
            found.append(b.or_(b.and_(high, self._word(_UPPER_HALF)), low))
        return found

    def _of_nibbles(self, codes: Value, zeros: Value) -> list[Value]:
        """Look up each of four nibbles of 16 bits, less the zero point."""
        b, kind = self.b, ir.VectorType(I16, 2 * COLS)
        values = np.arange(_ENTRIES, dtype=np.float32) - _UPPER
        moves = b.bitcast(b.mul(b.sub(self._word(_UPPER), zeros), self._word(0x10001)), kind)
        if not self.how.weights.zero:  # an index may then have its fifth bit set, or not
            values = np.arange(_ENTRIES, dtype=np.float32) % _UPPER + self.how.weights.least
        bits = (values.view(np.uint32) >> _BF16_SHIFT).tolist()
        table = ir.Constant(kind, bits)
        name = "llvm.x86.avx512.permvar.hi.512"
        look_up = declare(b.module, name, kind, (kind, kind))
        halves, found = b.bitcast(codes, kind), []
        for nibble in range(4):
            index = b.lshr(halves, _halves(4 * nibble)) if nibble else halves
            if self.how.weights.zero:
                index = b.add(b.and_(index, _halves(_UPPER - 1)), moves)
            found.append(b.bitcast(b.call(look_up, (table, index)), self.words.type))
        return found

    def _word(self, value: int) -> Value:
        return ir.Constant(self.words.type, [value] * COLS)


def _halves(value: int) -> Value:
    return ir.Constant(ir.VectorType(I16, 2 * COLS), [value] * 2 * COLS)


def emit_parts_of_rows(module: ir.Module, how: WidenedWeights) -> ir.Function:
    """Emit the pack of rows of A to parts in bf16; elements past a row are zero."""
    fn, b, arg = begin_function(module, "tilewise_copy_rows", ROWS_ARGUMENTS)
    stored, packed = (Vectors(b, ELEMENTS[name], how.step) for name in (how.stored, how.packed))
    with each_row(arg, stored, packed) as (source, to):
        step = CountedLoop(b, (), "step")
        inside = stored.first_lanes(b.sub(arg["length"], step.index), 0)
        value = stored.load(stored.offset(source, step.index), inside)
        at = packed.offset(to, b.mul(step.index, const(how.products)))
        for place, one in enumerate(_parts(b, value, how)):
            packed.store(one, packed.at(at, place * how.step))
        blocks = b.sdiv(b.add(arg["length"], const(how.depth - 1)), const(how.depth))
        step.close((), b.mul(blocks, const(how.depth)), how.step)
    return fn


def _parts(b: Builder, value: Value, how: WidenedWeights) -> list[Value]:
    """Return the bf16 whose sum is A, the largest first, or the one that A is rounded to.

    What is cut off an infinity is a NaN.
    """
    if how.stored == how.packed:
        return [value]
    if how.products == 1:
        return [narrow(b, value, how.packed)]
    floats, found = Floats(Vectors(b, ELEMENTS["f32"], how.step)), []
    for place in range(how.products):
        cut = b.lshr(floats.bits(value), floats.integer(_BF16_SHIFT))
        found.append(b.trunc(cut, ir.VectorType(I16, how.step)))
        if place < how.products - 1:
            value = b.fsub(value, widen(b, found[-1], how.packed, "f32"))
    return found
