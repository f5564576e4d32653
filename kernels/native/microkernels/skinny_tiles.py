"""Register tiles of a skinny GEMM: their loops over all columns of a chunk.

A `RowTile` has its sums in C. Where several tiles share words, a `SharingTile` has them in panels,
and `ColumnGroups` loops over groups of columns and their tiles.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import CountedLoop, branch
from tilewise.kernels.native.ir.vectors import ELEMENTS, Value, Vectors, const
from tilewise.kernels.native.microkernels.abi import ADD_BIAS, FROM_WORDS, LOAD_C, TO_WORDS
from tilewise.kernels.native.microkernels.building_blocks import (
    EpilogueEmitter,
    end_of_whole,
    run_if,
    run_if_any,
)
from tilewise.kernels.native.microkernels.skinny_products import (
    ChunkOfA,
    Emitter,
    Products,
    SkinnyGemmSpec,
    SpreadFetch,
)

BETWEEN = LOAD_C | FROM_WORDS | TO_WORDS  # flags of a chunk with whole ones before and behind it


@dataclass
class RowTile(Emitter):
    """Emits the loop over all columns, for a register tile of rows from `row` on.

    Chunks between the first and the last whole one only add to sums in C, and leave them in the
    order of words; most of the time goes there, and their loop has nothing else in it.

    Attributes:
        row: the first row.
        is_whole: whether the chunk is; else it is what is left of the reduction.
        corrections: what makes up for bytes that were made unsigned, for each row.
    """

    row: Value
    is_whole: bool
    corrections: list[Value] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Emit where the tile's rows of A and of C begin."""
        super().__post_init__()
        b, spec, arg = self.builder, self.spec, self.arg
        a = self.stored.offset(arg.a, b.mul(self.row, const(spec.a_row)))
        self.c = self.v.offset(arg.c, b.mul(self.row, arg.c_row))
        self.a = ChunkOfA(b, spec, arg, a)
        self.products = Products(b, spec, arg, self.a)
        self.epilogue = EpilogueEmitter(self.v, arg.flags, spec.epilogue)

    def prepare(self) -> Self:
        """Load what registers hold of A, and compute what the sums of each row start from."""
        if self.is_whole and self.spec.holds_a:
            self.a.hold()
        if not self.spec.how.offset:
            return self
        if self.is_whole:  # the first chunk has the corrections of all
            zeros = [self.v.zero] * self.spec.rows
            self.corrections = branch(
                self.builder,
                lacks(self.builder, self.arg.flags, FROM_WORDS),
                lambda _zeros: self.a.corrections(is_whole=True),
                zeros,
            )
        else:
            self.corrections = self.a.corrections(is_whole=False)
        return self

    def emit(self) -> None:
        """Emit groups of columns, single vectors, and what is left of one."""
        b, spec = self.builder, self.spec
        whole = end_of_whole(b, self.arg.cols, spec.cols)

        def groups(is_between: bool) -> None:
            self._loop(const(0), whole, spec.vectors, is_between)

        if self.is_whole:
            is_between = b.icmp_signed("==", self.arg.flags, const(BETWEEN))
            run_if(b, is_between, lambda: groups(True), lambda: groups(False))
        else:
            groups(False)
        self.emit_from(whole)

    def emit_from(self, whole: Value) -> None:
        """Emit what is left behind the groups of columns."""
        b, spec, cols = self.builder, self.spec, self.arg.cols
        rest = b.srem(cols, const(spec.lanes))
        full = b.sub(cols, rest)
        if spec.vectors > 1:
            self._loop(whole, full, 1, False)
        mask = self.v.first_lanes(rest, 0)
        run_if_any(b, rest, lambda: self._columns(full, 1, mask, False))

    def _loop(self, first: Value, end: Value, vectors: int, is_between: bool) -> None:
        """Columns from `first` to `end`, so many vectors at a time."""
        b = self.builder
        count = b.sub(end, first)

        def body() -> None:
            loop = CountedLoop(b, (), f"columns.by{vectors}")
            self._columns(b.add(first, loop.index), vectors, None, is_between)
            loop.close((), count, vectors * self.spec.lanes)

        run_if_any(b, count, body)

    def _columns(self, col: Value, vectors: int, mask: Value | None, is_between: bool) -> None:
        """All rows of the tile in some columns."""
        places = self.places(col, vectors)
        if is_between:
            sums = [self.v.load(at) for at in places]
            done = self.products.of_chunk(sums, col, vectors)
        else:
            done = self._first_or_last(places, col, vectors, mask)
        for value, at in zip(done, places, strict=True):
            self.v.store(value, at, mask)

    def places(self, col: Value, vectors: int) -> list[Value]:
        """Return the addresses in C of all rows of the tile in some columns."""
        c = self.v.offset(self.c, col)
        rows = [
            self.v.offset(c, self.builder.mul(self.arg.c_row, const(i)))
            for i in range(self.spec.rows)
        ]
        return [self.v.at(row, j * self.spec.lanes) for row in rows for j in range(vectors)]

    def _first_or_last(
        self, places: Sequence[Value], col: Value, vectors: int, mask: Value | None
    ) -> list[Value]:
        """The sums from what they start with to what they end as."""
        b, flags, products = self.builder, self.arg.flags, self.products
        sums = self.initial(places, col, vectors, mask)
        if not self.is_whole:
            sums = products.of_what_is_left(sums, col, vectors, mask)
        elif mask is None and self.spec.joins(vectors):
            sums = branch(b, lacks(b, flags, FROM_WORDS), products.in_order_of_words, sums)
            sums = products.of_chunk(sums, col, vectors)
            sums = branch(b, lacks(b, flags, TO_WORDS), products.in_order_of_columns, sums)
        else:
            sums = products.of_chunk(sums, col, vectors, mask)
        return self.epilogue.relu(sums)

    def initial(
        self, places: Sequence[Value], col: Value, vectors: int, mask: Value | None
    ) -> list[Value]:
        """Return zero or C, plus the bias and what makes up for bytes that were made unsigned."""
        v = self.v

        def bias() -> list[Value]:
            at = v.offset(self.arg.bias, col)
            row = [v.load(v.at(at, j * self.spec.lanes), mask) for j in range(vectors)]
            return row * self.spec.rows

        zeros = [v.zero] * len(places)
        start = self.epilogue.when(LOAD_C, lambda _: [v.load(at, mask) for at in places], zeros)
        start = self.epilogue.add(ADD_BIAS, start, bias)
        if not self.corrections:
            return start
        apart = [row for row in self.corrections for _ in range(vectors)]
        return [v.add(x, y) for x, y in zip(start, apart, strict=True)]


@dataclass
class SharingTile(RowTile):
    """A tile of a whole chunk that shares words with others, and has its sums in a panel.

    Words come from `words_at`; one tile of all puts them there.
    """

    words_at: Value
    puts_words: bool

    def group(
        self, col: Value, panel: Value, is_between: bool, before: Callable[[int], None] | None
    ) -> None:
        """Emit all rows of the tile in a group of columns.

        Args:
            col: the first column.
            panel: address of the tile's sums between chunks, in the order of words.
            is_between: whether whole chunks come before and behind this one.
            before: emits what comes before the products of each word.
        """
        spec, flags, c = self.spec, self.arg.flags, self.places(col, self.spec.vectors)
        places = [self.v.at(panel, i * spec.lanes) for i in range(spec.rows * spec.vectors)]

        def load(_zeros: list[Value]) -> list[Value]:
            return [self.v.load(at) for at in places]

        def store(sums: list[Value]) -> list[Value]:
            for value, at in zip(sums, places, strict=True):
                self.v.store(value, at)
            return sums

        def begin(_zeros: list[Value]) -> list[Value]:
            return self.products.in_order_of_words(self.initial(c, col, spec.vectors, None))

        def products(sums: list[Value]) -> list[Value]:
            if self.puts_words:
                at = self.words_at
                return self.products.of_chunk(sums, col, spec.vectors, None, at, before)
            return self.products.of_stored_words(sums, self.words_at, spec.vectors, before)

        def end(sums: list[Value]) -> list[Value]:
            done = self.epilogue.relu(self.products.in_order_of_columns(sums))
            for value, at in zip(done, c, strict=True):
                self.v.store(value, at)
            return sums

        if is_between:
            store(products(load([])))
            return
        zeros = [self.v.zero] * len(places)
        sums = branch(self.builder, lacks(self.builder, flags, FROM_WORDS), begin, zeros, load)
        branch(self.builder, lacks(self.builder, flags, TO_WORDS), end, products(sums), store)


@dataclass
class ColumnGroups(Emitter):
    """Emits the products of a whole chunk, in all whole groups of columns, of tiles sharing words.

    The first tile of rows joins the words of a group and stores them on the stack, between
    its products; the others find them there. On processors with one port for shuffles joining them
    again for each tile would take half as long as the products. A group's words fit the first
    cache; the rows of B that they come from need not.

    Between chunks the sums of a group are in a panel of their own, row behind row. Rows of C may be
    a multiple of a page apart, which meet in one set of the first cache, and are more pages than
    there are places for stores' addresses. The chunk's words of A are brought together on the stack
    for the same reason.

    Begin it in the function's first block, which has what is on the stack.
    """

    def __post_init__(self) -> None:
        """Emit what is on the stack: words, corrections, and the chunk of A."""
        super().__post_init__()
        spec = self.spec
        self.words_at = self._on_the_stack(spec.words * spec.vectors)
        self.corrections = self._on_the_stack(spec.all_rows) if spec.how.offset else None
        self.row_of_a = Vectors(self.builder, self.stored.element, spec.depth)
        bytes_of_a = spec.all_rows * spec.depth * self.stored.element.bytes
        self.a = self._on_the_stack(-(-bytes_of_a // (spec.lanes * self.v.element.bytes)))

    def _on_the_stack(self, vectors: int) -> Value:
        place = ir.ArrayType(ir.VectorType(ELEMENTS["i32"].type, self.spec.lanes), vectors)
        return self.builder.ptrtoint(self.builder.alloca(place))

    def emit(self) -> Value:
        """Emit all whole groups; return how many columns they are."""
        b, spec = self.builder, self.spec
        whole = end_of_whole(b, self.arg.cols, spec.cols)

        def groups(is_between: bool) -> None:
            loop = CountedLoop(b, (), "groups")
            self._tiles(loop.index, is_between)
            loop.close((), whole, spec.cols)

        def emit() -> None:
            if self.corrections is not None:
                run_if(b, self._is_first(), self._put_corrections)
            self._put_a()
            is_between = b.icmp_signed("==", self.arg.flags, const(BETWEEN))
            run_if(b, is_between, lambda: groups(True), lambda: groups(False))

        run_if_any(b, whole, emit)
        return whole

    def _put_a(self) -> None:
        """Copy the chunk of A, row behind row."""
        b, row = self.builder, self.row_of_a
        loop = CountedLoop(b, (), "rows.of.a")
        value = row.load(row.offset(self.arg.a, b.mul(loop.index, const(self.spec.a_row))))
        row.store(value, row.offset(self.a, b.mul(loop.index, const(self.spec.depth))))
        loop.close((), self.arg.rows, 1)

    def _is_first(self) -> Value:
        """Whether no chunk came before."""
        return lacks(self.builder, self.arg.flags, FROM_WORDS)

    def _put_corrections(self) -> None:
        """For each row what makes up for bytes of B that were made unsigned."""
        b = self.builder
        loop = CountedLoop(b, (), "corrections")
        row_bytes = self.spec.a_row * self.stored.element.bytes
        at = b.add(self.arg.a, b.mul(loop.index, const(row_bytes)))
        row = ChunkOfA(b, replace(self.spec, rows=1), self.arg, at)
        (total,) = row.corrections(is_whole=True)
        self.v.store(total, self._correction(loop.index))
        loop.close((), self.arg.rows, 1)

    def _correction(self, row: Value) -> Value:
        return self.v.offset(self.corrections, self.builder.mul(row, const(self.spec.lanes)))

    def _tiles(self, col: Value, is_between: bool) -> None:
        """All rows of a group; the first tile joins words, and the last may be cut off."""
        b, spec, rows = self.builder, self.spec, self.arg.rows
        rest = b.srem(rows, const(spec.rows))
        whole = b.sub(rows, rest)

        def words_alone() -> None:
            nothing = ChunkOfA(b, spec, self.arg, self.arg.a)
            products = Products(b, spec, self.arg, nothing)
            products.of_chunk([], col, spec.vectors, put_at=self.words_at)

        def later() -> None:
            loop = CountedLoop(b, (), "tiles")
            row = b.add(loop.index, const(spec.rows))
            self._tile(spec, row, col, is_between)
            loop.close((), b.sub(whole, const(spec.rows)), spec.rows)

        run_if(
            b,
            b.icmp_signed(">", whole, const(0)),
            lambda: self._tile(spec, const(0), col, is_between, puts_words=True),
            words_alone,
        )
        run_if(b, b.icmp_signed(">", whole, const(spec.rows)), later)
        if spec.all_rows % spec.rows:
            cut = replace(spec, rows=spec.all_rows % spec.rows)
            run_if_any(b, rest, lambda: self._tile(cut, whole, col, is_between))

    def _tile(
        self,
        spec: SkinnyGemmSpec,
        row: Value,
        col: Value,
        is_between: bool,
        puts_words: bool = False,
    ) -> None:
        b, arg = self.builder, self.arg
        near = replace(spec, a_row=spec.depth, fetch=None)
        tile = SharingTile(b, near, replace(arg, a=self.a), row, True, self.words_at, puts_words)
        if self.corrections is not None and not is_between:
            begin = self._correction(row)

            def load(_zeros: list[Value]) -> list[Value]:
                places = [self.v.at(begin, i * spec.lanes) for i in range(spec.rows)]
                return [self.v.load(at) for at in places]

            zeros = [self.v.zero] * spec.rows
            tile.corrections = branch(b, self._is_first(), load, zeros)
        sums_before = b.add(b.mul(col, arg.rows), b.mul(row, const(spec.cols)))
        panel = self.v.offset(arg.sums, sums_before)
        before = None
        if fetch := self.spec.fetch:
            share = -(-self.spec.depth // -(-self.spec.all_rows // self.spec.rows))
            first = b.mul(b.sdiv(row, const(self.spec.rows)), const(share))
            cols = (col, self.spec.vectors)
            before = SpreadFetch(b, self.spec, arg, fetch, first, share, *cols).before
        tile.group(col, panel, is_between, before)


def lacks(builder: Builder, flags: Value, flag: int) -> Value:
    """Return whether a flag of the call is not set."""
    return builder.icmp_signed("==", builder.and_(flags, const(flag)), const(0))
