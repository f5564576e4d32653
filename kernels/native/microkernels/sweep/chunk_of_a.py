"""The chunk of A that a sweep multiplies rows of B with: its words, in every lane of a vector."""

from collections.abc import Iterable
from functools import reduce

from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import Loop
from tilewise.kernels.native.ir.dot_products import multiply_add, widen
from tilewise.kernels.native.ir.vectors import ELEMENTS, Value, Vectors, const
from tilewise.kernels.native.microkernels.sweep.spec import SweepSpec

_ONES = 0x01010101  # four bytes
_CHAINS = 4  # sums that are added to side by side


class ChunkOfA:
    """Emits words of A, from memory or from where they are held.

    Attributes:
        first: the address of the register tile's first row, where the chunk begins.
        depth: elements of the chunk.
    """

    def __init__(self, builder: Builder, spec: SweepSpec, first: Value, depth: Value) -> None:
        self.builder, self.spec, self.first, self.depth = builder, spec, first, depth
        how, lanes = spec.how, spec.lanes
        self.words = Vectors(builder, ELEMENTS[how.word], lanes)
        self.sums = Vectors(builder, ELEMENTS[how.accumulator], lanes)
        self.stored = Vectors(builder, ELEMENTS[how.stored], lanes)
        self._held: dict[tuple[int, int], Value] = {}

    def hold(self) -> None:
        """Load all words now, for registers to hold them."""
        for row in range(self.spec.rows):
            for word in range(self.spec.words):
                self._held[row, word] = self.word(row, word)

    def word(self, row: int, word: int) -> Value:
        """A word of the chunk, whose elements are neighbours in the row."""
        held = self._held.get((row, word))
        if held is not None:
            return held
        how = self.spec.how
        if how.depth > 1 and self.spec.streams > 1:
            return self._gathered(row, word)
        at = self._at(row, const(self.spec.step(word * how.depth)))
        if how.depth > 1:
            return self.words.load_splat(at)
        return widen(self.builder, self.stored.load_splat(at), how.stored, how.word)

    def _gathered(self, row: int, word: int) -> Value:
        """A word whose elements come from several streams."""
        deep, joined = self.spec.how.depth, None
        for place in range(deep):
            element = self._zero_extended(row, const(self.spec.step(word * deep + place)))
            shift = ir.Constant(element.type, place * element.type.width // deep)
            placed = self.builder.shl(element, shift)
            joined = placed if joined is None else self.builder.or_(joined, placed)
        return self.words.splat(joined)

    def _zero_extended(self, row: int, step: Value) -> Value:
        """An element as the lowest bits of a word."""
        stored = ELEMENTS[self.spec.how.stored]
        pointer = self.builder.inttoptr(self._at(row, step), stored.type.as_pointer())
        element = self.builder.load(pointer, align=stored.bytes)
        return self.builder.zext(element, ELEMENTS[self.spec.how.word].type)

    def alone(self, row: int, step: Value) -> Value:
        """The word of a single element; its others are zero."""
        how = self.spec.how
        if how.depth == 1:
            stored = self.stored.load_splat(self._at(row, step))
            return widen(self.builder, stored, how.stored, how.word)
        return self.words.splat(self._zero_extended(row, step))

    def corrections_of_all(self) -> list[Value]:
        """For each row, -128 times the sum of what all whole chunks multiply.

        It makes up for B made unsigned. The first chunk begins where the row does.
        """
        return self._offset(map(self._sum_of_all, range(self.spec.rows)))

    def corrections_of_what_is_left(self) -> list[Value]:
        """The same of the last chunk, which is a short one."""
        return self._offset(map(self._sum_of_what_is_left, range(self.spec.rows)))

    def _offset(self, totals: Iterable[Value]) -> list[Value]:
        factor = ir.Constant(self.sums.type, [-self.spec.how.offset] * self.spec.lanes)
        return [self.builder.mul(total, factor) for total in totals]

    def _sum_of_all(self, row: int) -> Value:
        spec = self.spec
        loop = Loop(self.builder, [self.sums.zero] * min(spec.words, _CHAINS), "sum")
        sums = loop.carried
        for word in range(spec.words):
            at = self.stored.at(self._at(row, loop.index), word * spec.how.depth)
            chain = word % len(sums)
            sums[chain] = self._with_sum_of(self.words.load_splat(at), sums[chain])
        return reduce(self.sums.add, loop.close(sums, const(spec.whole), spec.depth))

    def _sum_of_what_is_left(self, row: int) -> Value:
        loop = Loop(self.builder, [self.sums.zero], "sum")
        total = self._with_sum_of(self.alone(row, loop.index), loop.carried[0])
        return loop.close([total], self.depth, 1)[0]

    def _with_sum_of(self, word: Value, total: Value) -> Value:
        ones = ir.Constant(self.words.type, [_ONES] * self.spec.lanes)
        return multiply_add(self.sums, self.spec.how.instruction, ones, word, total)

    def _at(self, row: int, step: Value) -> Value:
        return self.stored.at(self.stored.offset(self.first, step), row * self.spec.a_row)
