"""The chunk of A that a sweep multiplies rows of B with: its words, in every lane of a vector."""

from llvmlite import ir

from kernels.native.ir.builder import Builder
from kernels.native.ir.control import Loop
from kernels.native.ir.dot_products import OFFSET, multiply_add, widen
from kernels.native.ir.vectors import ELEMENTS, Value, Vectors, const
from kernels.native.microkernels.sweep.spec import SweepSpec

_ONES = 0x01010101  # four bytes


class ChunkOfA:
    """Emits words of A, from memory or from where they are held.

    Attributes:
        first: the address of the register tile's first row, where the chunk begins.
        depth: elements of the chunk.
    """

    def __init__(self, builder: Builder, spec: SweepSpec, first: Value, depth: Value) -> None:
        self.builder, self.spec, self.first, self.depth = builder, spec, first, depth
        how, lanes = spec.how, spec.lanes
        self.words = Vectors(builder, ELEMENTS[how.word], lanes, spec.fma)
        self.sums = Vectors(builder, ELEMENTS[how.accumulator], lanes, spec.fma)
        self.stored = Vectors(builder, ELEMENTS[how.stored], lanes, spec.fma)
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
        how, at = self.spec.how, self._at(row, const(word * self.spec.how.depth))
        if how.depth > 1:
            return self.words.load_splat(at)
        return widen(self.builder, self.stored.load_splat(at), how.stored, how.word)

    def alone(self, row: int, step: Value) -> Value:
        """The word of a single element; its others are zero."""
        how, at = self.spec.how, self._at(row, step)
        if how.depth == 1:
            return widen(self.builder, self.stored.load_splat(at), how.stored, how.word)
        stored = ELEMENTS[how.stored]
        pointer = self.builder.inttoptr(at, stored.type.as_pointer())
        element = self.builder.load(pointer, align=stored.bytes)
        return self.words.splat(self.builder.zext(element, ELEMENTS[how.word].type))

    def corrections(self, is_whole: bool) -> list[Value]:
        """For each row, -128 times the sum of its chunk: what makes up for B made unsigned."""
        factor = ir.Constant(self.sums.type, [-OFFSET] * self.spec.lanes)
        totals = [
            self._sum(row) if is_whole else self._sum_of_what_is_left(row)
            for row in range(self.spec.rows)
        ]
        return [self.builder.mul(total, factor) for total in totals]

    def _sum(self, row: int) -> Value:
        total = self.sums.zero
        for word in range(self.spec.words):
            total = self._with_sum_of(self.word(row, word), total)
        return total

    def _sum_of_what_is_left(self, row: int) -> Value:
        loop = Loop(self.builder, [self.sums.zero], "sum")
        total = self._with_sum_of(self.alone(row, loop.index), loop.carried[0])
        return loop.close([total], self.depth, 1)[0]

    def _with_sum_of(self, word: Value, total: Value) -> Value:
        ones = ir.Constant(self.words.type, [_ONES] * self.spec.lanes)
        return multiply_add(self.sums, self.spec.how, ones, word, total)

    def _at(self, row: int, step: Value) -> Value:
        return self.stored.at(self.stored.offset(self.first, step), row * self.spec.a_row)
