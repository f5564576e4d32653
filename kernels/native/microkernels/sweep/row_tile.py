"""A register tile of rows: its walk over all columns of a chunk."""

from collections.abc import Sequence
from typing import Self

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import Loop, Transform, branch, when
from tilewise.kernels.native.ir.vectors import ELEMENTS, Value, Vectors, const
from tilewise.kernels.native.microkernels.abi import (
    ADD_BIAS,
    FROM_WORDS,
    LOAD_C,
    RELU,
    TO_WORDS,
    SweepArguments,
    ceiling_of,
)
from tilewise.kernels.native.microkernels.sweep.chunk_of_a import ChunkOfA
from tilewise.kernels.native.microkernels.sweep.products import Products
from tilewise.kernels.native.microkernels.sweep.spec import SweepSpec

BETWEEN = LOAD_C | FROM_WORDS | TO_WORDS  # flags of a chunk with whole ones before and behind it


class RowTile:
    """One emission of the walk over all columns, for a register tile of rows from `row` on.

    Chunks between the first and the last whole one only add to sums in C, and leave them in the
    order of words; most of the time goes there, and their walk has nothing else in it.
    """

    def __init__(
        self,
        builder: Builder,
        spec: SweepSpec,
        arg: SweepArguments[Value],
        row: Value,
        is_whole: bool,
    ) -> None:
        self.builder, self.spec, self.arg, self.is_whole = builder, spec, arg, is_whole
        how, lanes = spec.how, spec.lanes
        self.v = Vectors(builder, ELEMENTS[how.accumulator], lanes)
        self.stored = Vectors(builder, ELEMENTS[how.stored], lanes)
        a = self.stored.offset(arg.a, builder.mul(row, const(spec.a_row)))
        self.c = self.v.offset(arg.c, builder.mul(row, arg.c_row))
        self.a = ChunkOfA(builder, spec, a, arg.depth)
        self.products = Products(builder, spec, arg, self.a)
        self.corrections: list[Value] = []

    def prepare(self) -> Self:
        """Before the walk: load what registers hold of A, and compute the corrections."""
        if self.is_whole and self.spec.holds_a:
            self.a.hold()
        if self.spec.how.offset:
            self.corrections = self._corrections()
        return self

    def _corrections(self) -> list[Value]:
        """What the sums of each row start from besides; of whole chunks the first has it all."""
        if not self.is_whole:
            return self.a.corrections_of_what_is_left()
        zeros = [self.v.zero] * self.spec.rows
        return branch(self.builder, self.lacks(FROM_WORDS), self._corrections_of_all, zeros)

    def _corrections_of_all(self, _zeros: list[Value]) -> list[Value]:
        return self.a.corrections_of_all()

    def emit(self) -> None:
        """Groups of columns, single vectors, and what is left of one."""
        b, spec, cols = self.builder, self.spec, self.arg.cols
        whole = b.sub(cols, b.srem(cols, const(spec.cols)))
        if self.is_whole:
            is_between = b.icmp_signed("==", self.arg.flags, const(BETWEEN))
            between, other = (self._walk_of_groups(whole, is_so) for is_so in (True, False))
            branch(b, is_between, between, [], other)
        else:
            self._walk(const(0), whole, spec.vectors)
        self.emit_from(whole)

    def emit_from(self, whole: Value) -> None:
        """What is left behind the groups of columns."""
        b, spec, cols = self.builder, self.spec, self.arg.cols
        rest = b.srem(cols, const(spec.lanes))
        full = b.sub(cols, rest)
        if spec.vectors > 1:
            self._walk(whole, full, 1)
        mask = self.v.first_lanes(rest, 0)

        def last(nothing: list[Value]) -> list[Value]:
            self.columns(full, 1, mask)
            return nothing

        branch(b, b.icmp_signed(">", rest, const(0)), last, [])

    def _walk_of_groups(self, end: Value, is_between: bool) -> Transform:
        def walk(nothing: list[Value]) -> list[Value]:
            self._walk(const(0), end, self.spec.vectors, is_between)
            return nothing

        return walk

    def _walk(self, first: Value, end: Value, vectors: int, is_between: bool = False) -> None:
        """Columns from `first` to `end`, so many vectors at a time."""
        b = self.builder
        count = b.sub(end, first)

        def body(nothing: list[Value]) -> list[Value]:
            loop = Loop(b, (), f"columns.by{vectors}")
            self.columns(b.add(first, loop.index), vectors, None, is_between)
            loop.close((), count, vectors * self.spec.lanes)
            return nothing

        branch(b, b.icmp_signed(">", count, const(0)), body, [])

    def columns(
        self, col: Value, vectors: int, mask: Value | None, is_between: bool = False
    ) -> None:
        """All rows of the tile in some columns."""
        places = self.places(col, vectors)
        if is_between:
            sums = [self.v.load(at) for at in places]
            done = self.products.of_chunk(sums, col, vectors, None)
        else:
            done = self._first_or_last(places, col, vectors, mask)
        for value, at in zip(done, places, strict=True):
            self.v.store(value, at, mask)

    def places(self, col: Value, vectors: int) -> list[Value]:
        """The addresses in C of all rows of the tile in some columns."""
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
        sums = self.initial(places, col, vectors, mask)
        if self.is_whole:
            takes_words = mask is None and self.spec.joins(vectors)
            if takes_words:
                in_words = self.products.in_order_of_words
                sums = branch(self.builder, self.lacks(FROM_WORDS), in_words, sums)
            sums = self.products.of_chunk(sums, col, vectors, mask)
            if takes_words:
                in_columns = self.products.in_order_of_columns
                sums = branch(self.builder, self.lacks(TO_WORDS), in_columns, sums)
        else:
            sums = self.products.of_what_is_left(sums, col, vectors, mask)
        return self.ended(sums)

    def ended(self, sums: list[Value]) -> list[Value]:
        """What the sums end as, in the order of columns."""
        ceiling = ceiling_of(self.spec.epilogue)
        return self._when(RELU, lambda xs: [self.v.relu(x, ceiling) for x in xs], sums)

    def initial(
        self, places: Sequence[Value], col: Value, vectors: int, mask: Value | None
    ) -> list[Value]:
        """Zero or C, plus the bias and what makes up for bytes that were made unsigned."""
        v = self.v

        def biased(sums: list[Value]) -> list[Value]:
            bias = v.offset(self.arg.bias, col)
            row = [v.load(v.at(bias, j * self.spec.lanes), mask) for j in range(vectors)]
            return [v.add(x, y) for x, y in zip(sums, row * self.spec.rows, strict=True)]

        zeros = [v.zero] * len(places)
        start = self._when(LOAD_C, lambda _: [v.load(at, mask) for at in places], zeros)
        start = self._when(ADD_BIAS, biased, start)
        if not self.corrections:
            return start
        apart = [row for row in self.corrections for _ in range(vectors)]
        return [v.add(x, y) for x, y in zip(start, apart, strict=True)]

    def lacks(self, flag: int) -> Value:
        """Whether a flag of the call is not set."""
        b = self.builder
        return b.icmp_signed("==", b.and_(self.arg.flags, const(flag)), const(0))

    def _when(self, flag: int, then: Transform, values: list[Value]) -> list[Value]:
        """`then(values)` where the flag is set, else `values`."""
        return when(self.builder, self.arg.flags, flag, self.spec.epilogue | LOAD_C, then, values)
