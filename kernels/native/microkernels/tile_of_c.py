"""A tile of C in registers: what its accumulators start from, and how C is updated by them.

What C holds is added at the end of a call, not where the accumulators start: its lines may be far
away, and arrive while the products are computed.

A tile at the edge of C has fewer columns, which are masked, or fewer rows: those past the last
one are that row again. It is read, and written, several times over, the same each time, and
needs no mask.
"""

from dataclasses import dataclass, replace

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import Transform, turns, when
from tilewise.kernels.native.ir.vectors import ELEMENTS, LINE_BYTES, Value, Vectors, const
from tilewise.kernels.native.microkernels.abi import ADD_BIAS, LOAD_C, RELU, Arguments, ceiling_of
from tilewise.kernels.native.microkernels.outer_product_spec import STEPS_FOR_LINE, OuterProductSpec
from tilewise.kernels.native.microkernels.use import Cut


@dataclass(frozen=True)
class TileOfC:
    """Emits the beginning and the end of one call.

    Attributes:
        builder: where.
        spec: the micro-kernel's.
        arg: its arguments.
        v: vectors of accumulators.
        vectors: how many vectors of columns the tile has.
        col_masks: which columns exist, a mask for each vector; None for all of them.
        row_index: the row of C that each row of the tile is.
        is_whole: whether C cuts nothing off.
    """

    builder: Builder
    spec: OuterProductSpec
    arg: Arguments[Value]
    v: Vectors
    vectors: int
    col_masks: list[Value | None]
    row_index: list[Value]
    is_whole: bool

    @classmethod
    def begin(
        cls, builder: Builder, spec: OuterProductSpec, arg: Arguments[Value], cut: Cut
    ) -> "TileOfC":
        """The tile as wide as it can be."""
        v = Vectors(builder, ELEMENTS[spec.how.accumulator], spec.lanes)
        masks: list[Value | None] = [None] * spec.vectors
        if "cols" in cut:
            masks = [v.first_lanes(arg.cols, j * spec.lanes) for j in range(spec.vectors)]
        rows: list[Value] = [const(i) for i in range(spec.rows)]
        if "rows" in cut:
            last = builder.sub(arg.rows, const(1))
            for i in range(1, spec.rows):
                inside = builder.icmp_signed("<", const(i), arg.rows)
                rows[i] = builder.select(inside, const(i), last)
        return cls(builder, spec, arg, v, spec.vectors, masks, rows, is_whole=not cut)

    def narrowed(self, vectors: int) -> "TileOfC":
        """The tile's first `vectors` vectors of columns."""
        return replace(self, vectors=vectors)

    def rows_of_c(self) -> list[Value]:
        """Where the rows lie; those of a whole tile are fetched to be written.

        Unless the loop over the reduction does so (`fetch_lines`).
        """
        rows = [
            self.v.offset(self.arg.c, self.builder.mul(self.arg.c_row, index))
            for index in self.row_index
        ]
        if self.is_whole and not self.spec.spreads_c:
            for row in rows:
                for j in range(self.vectors):
                    self.v.prefetch_for_write(self.v.at(row, j * self.spec.lanes))
        return rows

    def fetch_lines(self, step: Value, unroll: int) -> None:
        """The next lines to be written at the end; one for each so many steps of the reduction.

        All at once they would take the places for lines under way to the first cache, and what
        the products read would wait for them.
        """
        b, spread, last = self.builder, self.spec.lines_of_c, const(self.spec.rows - 1)
        for ahead in range(0, unroll, STEPS_FOR_LINE):
            line = turns(b, b.add(step, const(ahead)), STEPS_FOR_LINE)
            row = turns(b, line, spread)
            row = b.select(b.icmp_signed("<", row, last), row, last)
            at = self.v.offset(self.arg.c, b.mul(row, self.arg.c_row))
            column = b.mul(b.and_(line, const(spread - 1)), const(LINE_BYTES))
            self.v.prefetch_for_write(b.add(at, column))

    def initial(self) -> list[Value]:
        """Zero, plus the bias: what the accumulators start from."""

        def biased(values: list[Value]) -> list[Value]:
            bias = self._bias()
            return [self.v.add(x, y) for x, y in zip(values, bias, strict=True)]

        start = self._when(ADD_BIAS, biased, [self.v.zero] * len(self._places()))
        return self._corrected(start) if self.spec.how.offset else start

    def finish(self, accumulators: list[Value], c_rows: list[Value]) -> None:
        """C where the call accumulates, relu where it is asked for, and the store."""
        places = [
            (self.v.at(c_rows[i], j * self.spec.lanes), self.col_masks[j])
            for i, j in self._places()
        ]

        def added(values: list[Value]) -> list[Value]:
            # All of C before any of it is written: rows past C's last one are that row again.
            held = [self.v.load(at, mask) for at, mask in places]
            return [self.v.add(x, y) for x, y in zip(values, held, strict=True)]

        ceiling = ceiling_of(self.spec.epilogue)
        sums = self._when(LOAD_C, added, accumulators)
        values = self._when(RELU, lambda xs: [self.v.relu(x, ceiling) for x in xs], sums)
        for value, (at, mask) in zip(values, places, strict=True):
            self.v.store(value, at, mask)

    def _places(self) -> list[tuple[int, int]]:
        return [(i, j) for i in range(self.spec.rows) for j in range(self.vectors)]

    def _bias(self) -> list[Value]:
        """The bias of every vector of the tile."""
        v, at, vectors = self.v, self.arg.bias, self.vectors
        if self.spec.bias_rows:
            rows = [v.load_splat(v.offset(at, index)) for index in self.row_index]
            return [row for row in rows for _ in range(vectors)]
        cols = [v.load(v.at(at, j * self.spec.lanes), self.col_masks[j]) for j in range(vectors)]
        return cols * self.spec.rows

    def _corrected(self, values: list[Value]) -> list[Value]:
        """Less what the 128 that was added to A will contribute."""
        sums = [
            self.v.load(self.v.at(self.arg.beside, j * self.spec.lanes))
            for j in range(self.vectors)
        ]
        return [self.v.add(x, sums[j]) for x, (_, j) in zip(values, self._places(), strict=True)]

    def _when(self, flag: int, then: Transform, values: list[Value]) -> list[Value]:
        """`then(values)` where the flag is set, else `values`; no code where it never is."""
        possible = self.spec.epilogue | LOAD_C
        return when(self.builder, self.arg.flags, flag, possible, then, values)
