"""The products of a chunk of B's rows with its words of A, added to the sums of some columns."""

from collections.abc import Callable, Iterator

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import Loop
from tilewise.kernels.native.ir.dot_products import add_offset, join, multiply_add, widen
from tilewise.kernels.native.ir.shuffles import (
    in_order_of_columns,
    in_order_of_words,
    interleaved,
)
from tilewise.kernels.native.ir.vectors import ELEMENTS, Value, Vectors, const
from tilewise.kernels.native.microkernels.abi import SweepArguments
from tilewise.kernels.native.microkernels.sweep.chunk_of_a import ChunkOfA
from tilewise.kernels.native.microkernels.sweep.spec import SweepSpec
from tilewise.kernels.native.microkernels.sweep.spread_fetch import SpreadFetch
from tilewise.kernels.nest import Fetch


class Products:
    """Emits the products of a register tile of rows."""

    def __init__(
        self, builder: Builder, spec: SweepSpec, arg: SweepArguments[Value], a: ChunkOfA
    ) -> None:
        self.builder, self.spec, self.arg, self.a = builder, spec, arg, a
        how, lanes = spec.how, spec.lanes
        self.v = Vectors(builder, ELEMENTS[how.accumulator], lanes)
        self.stored = Vectors(builder, ELEMENTS[how.stored], lanes)
        self.words = Vectors(builder, ELEMENTS[how.word], lanes)

    def in_order_of_words(self, sums: list[Value]) -> list[Value]:
        """The sums in the order of the words that are joined."""
        return self._ordered(in_order_of_words, sums)

    def in_order_of_columns(self, sums: list[Value]) -> list[Value]:
        """The reverse."""
        return self._ordered(in_order_of_columns, sums)

    def _ordered(
        self, order: Callable[[Builder, list[Value]], list[Value]], sums: list[Value]
    ) -> list[Value]:
        deep = self.spec.how.depth
        groups = [sums[at : at + deep] for at in range(0, len(sums), deep)]
        return [x for group in groups for x in order(self.builder, group)]

    def of_chunk(
        self,
        sums: list[Value],
        col: Value,
        vectors: int,
        mask: Value | None,
        put_at: Value | None = None,
        beside: Callable[[int], None] = lambda word: None,
    ) -> list[Value]:
        """The sums plus the products of a whole chunk; where words are joined, in their order.

        With `put_at` the words are also stored there. What `beside` emits comes before each word.
        """
        b_at = self.stored.offset(self.arg.b, col)
        if mask is None and self.spec.fetch:
            beside = self._spread(self.spec.fetch, col, vectors)
        for word in range(self.spec.words):
            beside(word)
            for first, joined in self._words_of_b(b_at, word, vectors, mask):
                if put_at is not None:
                    self._put(joined, put_at, word * vectors + first)
                sums = self._added(sums, word, vectors, first, joined)
        return sums

    def of_words_put(
        self, sums: list[Value], at: Value, vectors: int, beside: Callable[[int], None]
    ) -> list[Value]:
        """The sums plus the products of a whole chunk whose words were put at `at`."""
        for word in range(self.spec.words):
            beside(word)
            row = word * vectors * self.spec.lanes
            joined = [
                self.words.load(self.words.at(at, row + j * self.spec.lanes))
                for j in range(vectors)
            ]
            sums = self._added(sums, word, vectors, 0, joined)
        return sums

    def put_words(self, at: Value, col: Value, vectors: int) -> None:
        """Join a whole chunk of B in some columns to words, and store them."""
        b_at = self.stored.offset(self.arg.b, col)
        fetch = self.spec.fetch
        beside = self._spread(fetch, col, vectors) if fetch else lambda word: None
        for word in range(self.spec.words):
            beside(word)
            for first, joined in self._words_of_b(b_at, word, vectors, None):
                self._put(joined, at, word * vectors + first)

    def _spread(self, fetch: Fetch, col: Value, vectors: int) -> Callable[[int], None]:
        """What emits the prefetches beside a word, of all rows in some columns."""
        rows, cols = (const(0), self.spec.depth), (col, vectors)
        return SpreadFetch(self.builder, self.spec, self.arg, fetch, rows, cols).beside

    def _put(self, joined: list[Value], at: Value, first: int) -> None:
        for j, value in enumerate(joined, start=first):
            self.words.store(value, self.words.at(at, j * self.spec.lanes))

    def _added(
        self, sums: list[Value], word: int, vectors: int, first: int, joined: list[Value]
    ) -> list[Value]:
        """The sums plus the products of a word of each row of A with neighbouring vectors."""
        out = list(sums)
        for j, value in enumerate(joined, start=first):
            for i in range(self.spec.rows):
                at, a = i * vectors + j, self.a.word(i, word)
                out[at] = multiply_add(self.v, self.spec.how.instruction, value, a, out[at])
        return out

    def _words_of_b(
        self, b_at: Value, word: int, vectors: int, mask: Value | None
    ) -> Iterator[tuple[int, list[Value]]]:
        """Vectors of one word, so many as come at a time, each time with the first one's number.

        Where whole vectors of rows are joined, they are in the order of words.
        """
        spec, deep = self.spec, self.spec.how.depth
        rows = [self._row(word * deep + d) for d in range(deep)]
        if mask is not None or not self.spec.joins(vectors):
            for j in range(vectors):
                places = [row + j * spec.lanes for row in rows]
                parts = [self.stored.load(self.stored.at(b_at, at), mask) for at in places]
                yield j, [self._joined(parts)]
            return
        wide = Vectors(self.builder, self.stored.element, deep * spec.lanes)
        for group in range(0, vectors, deep):
            parts = [wide.load(wide.at(b_at, row + group * spec.lanes)) for row in rows]
            if spec.how.offset:
                parts = [add_offset(self.builder, part, spec.how.offset) for part in parts]
            yield group, interleaved(self.builder, parts)

    def _row(self, place: int) -> int:
        """Elements of B from the chunk's first row to the one at a place of it."""
        return self.spec.step(place) * self.spec.b_row

    def of_what_is_left(
        self, sums: list[Value], col: Value, vectors: int, mask: Value | None
    ) -> list[Value]:
        """The sums plus the products of the rows of B that are left, one by one."""
        b, spec, b_at = self.builder, self.spec, self.stored.offset(self.arg.b, col)
        loop = Loop(b, sums, "left")
        row = self.stored.offset(b_at, b.mul(loop.index, const(spec.b_row)))
        out = list(loop.carried)
        for j in range(vectors):
            joined = self._joined([self.stored.load(self.stored.at(row, j * spec.lanes), mask)])
            for i in range(spec.rows):
                at, a = i * vectors + j, self.a.alone(i, loop.index)
                out[at] = multiply_add(self.v, spec.how.instruction, joined, a, out[at])
        return loop.close(out, self.arg.depth, 1)

    def _joined(self, rows: list[Value]) -> Value:
        """Vectors of neighbouring rows of B as one vector of words."""
        how = self.spec.how
        if how.depth == 1:
            return widen(self.builder, rows[0], how.stored, how.word)
        word = join(self.builder, rows, how.stored)
        return add_offset(self.builder, word, how.offset) if how.offset else word
