"""The products of a skinny GEMM: rows of B, read where they are, times the words of a chunk of A.

Elements of neighbouring rows of B are joined to words in registers. Where bytes are multiplied, B
is made unsigned on the way, and a correction by the sum of A starts the sums.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic, size_of
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import CountedLoop
from tilewise.kernels.native.ir.dot_products import add_offset, join, multiply_add, widen
from tilewise.kernels.native.ir.shuffles import in_order_of_columns, in_order_of_words, interleaved
from tilewise.kernels.native.ir.vectors import ELEMENTS, LINE_BYTES, Value, Vectors, const
from tilewise.kernels.native.microkernels.abi import SkinnyGemmArguments
from tilewise.kernels.nest import Fetch

MOST_SHARING_ROWS = 64
_ONES = 0x01010101  # four bytes
_CHAINS = 4  # sums that are added to in parallel


@dataclass(frozen=True)
class SkinnyGemmSpec:
    """All that the code of a skinny-GEMM micro-kernel depends on.

    Attributes:
        how: the arithmetic; words are joined, and elements widened, as they are loaded.
        all_rows, rows: of the result, and of a register tile; the last tile has what is left.
        vectors, lanes: columns that are computed at once, in vectors, and elements of a vector.
        depth: rows of B that are read in parallel.
        streams: interleaved k-streams, parts of the reduction that a chunk has its rows from.
        whole: elements of the reduction that all whole chunks have; 0 where no code needs it.
        a_row, b_row: elements between rows of A and of B.
        registers: vector registers of the target.
        fetch: the prefetch of rows further on; None for none.
        epilogue: which of `ADD_BIAS` and `RELU` a call may ask for, and `CEILING`.
    """

    how: Arithmetic
    all_rows: int
    rows: int
    vectors: int
    lanes: int
    depth: int
    streams: int
    whole: int
    a_row: int
    b_row: int
    registers: int
    epilogue: int
    fetch: Fetch | None

    @property
    def cols(self) -> int:
        """Columns that are computed at once, in elements."""
        return self.vectors * self.lanes

    @property
    def words(self) -> int:
        """Words of a chunk."""
        return self.depth // self.how.depth

    def joins(self, vectors: int) -> bool:
        """Return whether whole vectors of rows are joined to words, which gives them an order."""
        return self.how.depth > 1 and vectors % self.how.depth == 0

    @property
    def shares_words(self) -> bool:
        """Whether words are joined once for all register tiles of a group of columns.

        Their sums are visited group by group then. What is joined anew for each tile lets registers
        hold A, which words gathered from several streams need. The stack has a correction of each
        row, so that there is room for few.
        """
        has_room = self.rows < self.all_rows <= MOST_SHARING_ROWS
        return self.joins(self.vectors) and has_room and self.streams == 1

    @property
    def holds_a(self) -> bool:
        """Whether registers hold A's chunk and the sums."""
        sums = self.rows * self.vectors
        return self.rows * self.words + sums + self.how.depth + 1 <= self.registers

    def step(self, place: int) -> int:
        """Return the rows of B from the chunk's first row to the row at a place of it."""
        return place % self.streams * (self.whole // self.streams) + place // self.streams

    def steps(self, multiply_adds: int) -> int:
        """Return the steps of the reduction that so many vector multiply-adds take."""
        return multiply_adds // (self.rows * self.vectors)


@dataclass
class Emitter:
    """What all parts of the code share.

    Attributes:
        builder: where they emit.
        spec: the micro-kernel's, or that of a part of it.
        arg: its arguments.
    """

    builder: Builder
    spec: SkinnyGemmSpec
    arg: SkinnyGemmArguments[Value]

    def __post_init__(self) -> None:
        """Make vectors of accumulators, of elements in memory, and of words."""
        how, lanes = self.spec.how, self.spec.lanes
        self.v = Vectors(self.builder, ELEMENTS[how.accumulator], lanes)
        self.stored = Vectors(self.builder, ELEMENTS[how.stored], lanes)  # or of A's: bytes, too
        self.words = Vectors(self.builder, ELEMENTS[how.word], lanes)


@dataclass
class ChunkOfA(Emitter):
    """Emits words of A in every lane of a vector, from memory or from where they are held.

    Attributes:
        first: the address of the register tile's first row, where the chunk begins.
        held: words in registers, by row and place.
    """

    first: Value
    held: dict[tuple[int, int], Value] = field(default_factory=dict)

    def hold(self) -> None:
        """Load all words now, for registers to hold them."""
        for row in range(self.spec.rows):
            for word in range(self.spec.words):
                self.held[row, word] = self.word(row, word)

    def word(self, row: int, word: int) -> Value:
        """Return a word of the chunk, whose elements are neighbours in the row."""
        held = self.held.get((row, word))
        if held is not None:
            return held
        how = self.spec.how
        if how.depth > 1 and self.spec.streams > 1:
            return self._gathered(row, word)
        at = self._at(row, const(self.spec.step(word * how.depth)))
        if how.depth == 1:
            return widen(self.builder, self.stored.load_splat(at), how.stored_as("A"), how.word)
        size = self.stored.element.bytes
        if size == size_of(how.packed):
            return self.words.load_splat(at)
        narrow = Vectors(self.builder, ELEMENTS[f"i{8 * size * how.depth}"], self.spec.lanes)
        stored = ir.VectorType(self.stored.element.type, how.depth * self.spec.lanes)
        elements = self.builder.bitcast(narrow.load_splat(at), stored)
        wide = widen(self.builder, elements, how.stored_as("A"), how.packed)
        return self.builder.bitcast(wide, self.words.type)

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
        """An element, widened if need be, as the lowest bits of a word."""
        stored, how = self.stored.element, self.spec.how
        pointer = self.builder.inttoptr(self._at(row, step), stored.type.as_pointer())
        element = self.builder.load(pointer, align=stored.bytes)
        extend = self.builder.zext if how.stored_as("A") == "u8" else self.builder.sext
        packed = extend(element, ELEMENTS[how.packed].type)
        return self.builder.zext(packed, self.words.element.type)

    def alone(self, row: int, step: Value) -> Value:
        """Return the word of a single element; its others are zero."""
        how = self.spec.how
        if how.depth == 1:
            stored = self.stored.load_splat(self._at(row, step))
            return widen(self.builder, stored, how.stored_as("A"), how.word)
        return self.words.splat(self._zero_extended(row, step))

    def corrections(self, *, is_whole: bool) -> list[Value]:
        """Return -128 times the sum of what each row multiplies, which makes up for unsigned B.

        That of all whole chunks, of which the first begins where the row does, or that of the last,
        short chunk.
        """
        sums = self._sum_of_all if is_whole else self._sum_of_what_is_left
        factor = ir.Constant(self.v.type, [-self.spec.how.offset] * self.spec.lanes)
        return [self.builder.mul(sums(row), factor) for row in range(self.spec.rows)]

    def _sum_of_all(self, row: int) -> Value:
        spec = self.spec
        loop = CountedLoop(self.builder, [self.v.zero] * min(spec.words, _CHAINS), "sum")
        sums = loop.carried
        for word in range(spec.words):
            at = self.stored.at(self._at(row, loop.index), word * spec.how.depth)
            chain = word % len(sums)
            sums[chain] = self._with_sum_of(self.words.load_splat(at), sums[chain])
        return reduce(self.v.add, loop.close(sums, const(spec.whole), spec.depth))

    def _sum_of_what_is_left(self, row: int) -> Value:
        loop = CountedLoop(self.builder, [self.v.zero], "sum")
        total = self._with_sum_of(self.alone(row, loop.index), loop.carried[0])
        return loop.close([total], self.arg.depth, 1)[0]

    def _with_sum_of(self, word: Value, total: Value) -> Value:
        ones = ir.Constant(self.words.type, [_ONES] * self.spec.lanes)
        return multiply_add(self.v, self.spec.how.instruction, ones, word, total)

    def _at(self, row: int, step: Value) -> Value:
        return self.stored.at(self.stored.offset(self.first, step), row * self.spec.a_row)


@dataclass
class SpreadFetch(Emitter):
    """Emits prefetches of the rows of B that a chunk reads next, spread over its words.

    All at once they would take every place for lines under way, and the tile's loads would wait
    behind lines of the last cache: skinny GEMMs of 16 rows of i8 ran at 0.8 times the speed that
    they have without any. One or two for each word of each tile make them 1.1 times as fast.

    Attributes:
        fetch: how far ahead lines are, and to which cache they come.
        first, rows: the first row in the chunk, and how many; all where there are several streams.
        col, vectors: the first column, and how many vectors.
    """

    fetch: Fetch
    first: Value
    rows: int
    col: Value
    vectors: int

    def __post_init__(self) -> None:
        """Emit where the first line is: in the chunk's rows, or where the next chunk's begin."""
        super().__post_init__()
        b, far, size = self.builder, self.fetch.distance, self.stored.element.bytes
        self.lines = max(1, self.vectors * self.spec.lanes * size // LINE_BYTES)
        begin = b.add(self.col, b.mul(self.first, const(self.spec.b_row)))
        inside = b.icmp_signed("<", b.add(self.col, const(far // size)), self.arg.cols)
        distance = b.select(inside, const(far), b.add(const(far), self.arg.wrap))
        self.at = b.add(self.stored.offset(self.arg.b, begin), distance)

    def before(self, word: int) -> None:
        """Emit the prefetches before the products of a word."""
        share = self.rows * self.lines
        first, end = (share * place // self.spec.words for place in (word, word + 1))
        for place in range(first, end):
            row, line = divmod(place, self.lines)
            at = self.stored.at(self.at, self.spec.step(row) * self.spec.b_row)
            self.stored.prefetch(self.builder.add(at, const(line * LINE_BYTES)), self.fetch.level)


@dataclass
class Products(Emitter):
    """Emits the products of a register tile of rows, added to the sums of some columns."""

    a: ChunkOfA

    def in_order_of_words(self, sums: list[Value]) -> list[Value]:
        """Return the sums in the order of the words that are joined."""
        return self._ordered(in_order_of_words, sums)

    def in_order_of_columns(self, sums: list[Value]) -> list[Value]:
        """Return the sums in the order of columns again."""
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
        mask: Value | None = None,
        put_at: Value | None = None,
        before: Callable[[int], None] | None = None,
    ) -> list[Value]:
        """Return the sums plus the products of a whole chunk; joined words have their order.

        Args:
            sums: what is added to; without any, words are only stored.
            col: the first column.
            vectors: how many.
            mask: of the columns that exist; None for all.
            put_at: where the words are stored, too; None for nowhere.
            before: emits what comes before each word; by default the prefetch of the spec.
        """
        b_at = self.stored.offset(self.arg.b, col)
        if before is None and mask is None and self.spec.fetch:
            rows = (const(0), self.spec.depth)
            fetch = self.spec.fetch
            before = SpreadFetch(
                self.builder, self.spec, self.arg, fetch, *rows, col, vectors
            ).before
        for word in range(self.spec.words):
            if before:
                before(word)
            for first, joined in self._words_of_b(b_at, word, vectors, mask):
                if put_at is not None:
                    for j, value in enumerate(joined, start=word * vectors + first):
                        self.words.store(value, self.words.at(put_at, j * self.spec.lanes))
                if sums:
                    sums = self._added(sums, word, vectors, first, joined)
        return sums

    def of_stored_words(
        self, sums: list[Value], at: Value, vectors: int, before: Callable[[int], None] | None
    ) -> list[Value]:
        """Return the sums plus the products of a whole chunk whose words are at `at`."""
        for word in range(self.spec.words):
            if before:
                before(word)
            row = word * vectors * self.spec.lanes
            joined = [
                self.words.load(self.words.at(at, row + j * self.spec.lanes))
                for j in range(vectors)
            ]
            sums = self._added(sums, word, vectors, 0, joined)
        return sums

    def of_what_is_left(
        self, sums: list[Value], col: Value, vectors: int, mask: Value | None
    ) -> list[Value]:
        """Return the sums plus the products of the rows of B that are left, one by one."""
        b, spec, b_at = self.builder, self.spec, self.stored.offset(self.arg.b, col)
        loop = CountedLoop(b, sums, "left")
        row = self.stored.offset(b_at, b.mul(loop.index, const(spec.b_row)))
        out = list(loop.carried)
        for j in range(vectors):
            joined = self._joined([self.stored.load(self.stored.at(row, j * spec.lanes), mask)])
            for i in range(spec.rows):
                at, a = i * vectors + j, self.a.alone(i, loop.index)
                out[at] = self._multiplied(joined, a, out[at])
        return loop.close(out, self.arg.depth, 1)

    def _added(
        self, sums: list[Value], word: int, vectors: int, first: int, joined: Iterable[Value]
    ) -> list[Value]:
        """The sums plus the products of a word of each row of A with neighbouring vectors."""
        out = list(sums)
        for j, value in enumerate(joined, start=first):
            for i in range(self.spec.rows):
                at, a = i * vectors + j, self.a.word(i, word)
                out[at] = self._multiplied(value, a, out[at])
        return out

    def _multiplied(self, b: Value, a: Value, total: Value) -> Value:
        """The sums plus products of words; made unsigned, B is the first factor."""
        how = self.spec.how
        is_as_named = how.stored_a and not how.offset
        x, y = (a, b) if is_as_named else (b, a)
        return multiply_add(self.v, how.instruction, x, y, total)

    def _words_of_b(
        self, b_at: Value, word: int, vectors: int, mask: Value | None
    ) -> Iterator[tuple[int, list[Value]]]:
        """Vectors of one word, as many as come at a time, each time with the first one's number.

        Where whole vectors of rows are joined, they are in the order of words.
        """
        spec, deep = self.spec, self.spec.how.depth
        rows = [spec.step(word * deep + d) * spec.b_row for d in range(deep)]
        if mask is not None or not spec.joins(vectors):
            for j in range(vectors):
                places = [row + j * spec.lanes for row in rows]
                parts = [self.stored.load(self.stored.at(b_at, at), mask) for at in places]
                yield j, [self._joined(parts)]
            return
        wide = Vectors(self.builder, self.stored.element, deep * spec.lanes)
        for group in range(0, vectors, deep):
            parts = [wide.load(wide.at(b_at, row + group * spec.lanes)) for row in rows]
            parts = [widen(self.builder, x, spec.how.stored, spec.how.packed) for x in parts]
            if spec.how.offset:
                parts = [add_offset(self.builder, part, spec.how.offset) for part in parts]
            yield group, interleaved(self.builder, parts)

    def _joined(self, rows: list[Value]) -> Value:
        """Vectors of neighbouring rows of B as one vector of words."""
        how = self.spec.how
        if how.depth == 1:
            return widen(self.builder, rows[0], how.stored, how.word)
        rows = [widen(self.builder, row, how.stored, how.packed) for row in rows]
        word = join(self.builder, rows, how.packed)
        return add_offset(self.builder, word, how.offset) if how.offset else word
