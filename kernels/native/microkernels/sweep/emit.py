"""The code of a sweep: a chunk of rows of B times its columns of A, added to all columns of C.

    C[rows, cols] = relu?( (C | 0) + bias? + sum over the chunk's k of A[rows, k] * B[k, cols] )

One register tile of rows comes after the other, and finds the chunk of B in a cache from the second
on. Rows of B lie where they lie: elements of neighbouring rows are joined to words in registers.
Where bytes are multiplied, B is made unsigned on the way, and a correction by the sum of A's chunk
starts the sums.
"""

from collections.abc import Sequence
from dataclasses import replace

from llvmlite import ir

from kernels.native.ir.builder import Builder
from kernels.native.ir.control import Loop, Transform, branch, when
from kernels.native.ir.dot_products import add_offset, join, multiply_add, widen
from kernels.native.ir.interleave import (
    in_order_of_columns,
    in_order_of_words,
    interleaved,
)
from kernels.native.ir.vectors import ELEMENTS, LINE_BYTES, Value, Vectors, const, internal_function
from kernels.native.microkernels.abi import (
    ADD_BIAS,
    LOAD_C,
    RELU,
    SWEEP_ARGUMENTS,
    SweepArguments,
    ceiling_of,
)
from kernels.native.microkernels.sweep.chunk_of_a import ChunkOfA
from kernels.native.microkernels.sweep.spec import SweepSpec


def emit_sweep(module: ir.Module, spec: SweepSpec, is_whole: bool) -> ir.Function:
    """Add the micro-kernel for whole chunks, or the one for what is left of the reduction."""
    name = "full" if is_whole else "edge"
    fn = internal_function(module, f"tilewise_kernel_{name}", len(SWEEP_ARGUMENTS))
    builder = Builder(fn.append_basic_block("entry"))
    arg: SweepArguments[Value] = SweepArguments(*fn.args)
    if spec.all_rows == spec.rows:
        _RowTile(builder, spec, arg, const(0), is_whole).emit()
    else:
        _emit_row_tiles(builder, spec, arg, is_whole)
    builder.ret_void()
    return fn


def _emit_row_tiles(
    builder: Builder, spec: SweepSpec, arg: SweepArguments[Value], is_whole: bool
) -> None:
    """The register tiles of a block; the first one prefetches, and the last may be cut off."""
    rest = builder.srem(arg.rows, const(spec.rows))
    whole = builder.sub(arg.rows, rest)
    later = replace(spec, fetches_ahead=False)

    def tile(spec: SweepSpec, row: Value) -> Transform:
        def emit(nothing: list[Value]) -> list[Value]:
            _RowTile(builder, spec, arg, row, is_whole).emit()
            return nothing

        return emit

    first = const(spec.rows if spec.fetches_ahead else 0)
    if spec.fetches_ahead:
        branch(builder, builder.icmp_signed(">", whole, const(0)), tile(spec, const(0)), [])

    def loop_over_tiles(nothing: list[Value]) -> list[Value]:
        loop = Loop(builder, (), "rows")
        tile(later, builder.add(loop.index, first))([])
        loop.close((), builder.sub(whole, first), spec.rows)
        return nothing

    branch(builder, builder.icmp_signed(">", whole, first), loop_over_tiles, [])
    if spec.all_rows % spec.rows:
        last = replace(later, rows=spec.all_rows % spec.rows)
        branch(builder, builder.icmp_signed(">", rest, const(0)), tile(last, whole), [])


AHEAD_BYTES = 512  # of a row, from where a prefetch has its lines


class _RowTile:
    """One emission of the walk over all columns, for a register tile of rows from `row` on."""

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
        self.v = Vectors(builder, ELEMENTS[how.accumulator], lanes, spec.fma)
        self.stored = Vectors(builder, ELEMENTS[how.stored], lanes, spec.fma)
        a = self.stored.offset(arg.a, builder.mul(row, const(spec.a_row)))
        self.c = self.v.offset(arg.c, builder.mul(row, arg.c_row))
        self.a = ChunkOfA(builder, spec, a, arg.depth)
        if is_whole and spec.holds_a:
            self.a.hold()
        self.corrections = self.a.corrections(is_whole) if how.offset else []

    def emit(self) -> None:
        """Groups of columns, single vectors, and what is left of one."""
        b, spec, cols = self.builder, self.spec, self.arg.cols
        rest = b.srem(cols, const(spec.lanes))
        full = b.sub(cols, rest)
        whole = b.sub(cols, b.srem(cols, const(spec.cols)))
        self._walk(const(0), whole, spec.vectors)
        if spec.vectors > 1:
            self._walk(whole, full, 1)
        mask = self.v.first_lanes(rest, 0)

        def last(nothing: list[Value]) -> list[Value]:
            self._columns(full, 1, mask)
            return nothing

        branch(b, b.icmp_signed(">", rest, const(0)), last, [])

    def _walk(self, first: Value, end: Value, vectors: int) -> None:
        """Columns from `first` to `end`, so many vectors at a time."""
        b = self.builder
        count = b.sub(end, first)

        def body(nothing: list[Value]) -> list[Value]:
            loop = Loop(b, (), f"columns.by{vectors}")
            self._columns(b.add(first, loop.index), vectors, None)
            loop.close((), count, vectors * self.spec.lanes)
            return nothing

        branch(b, b.icmp_signed(">", count, const(0)), body, [])

    def _columns(self, col: Value, vectors: int, mask: Value | None) -> None:
        """All rows of the tile in some columns."""
        c = self.v.offset(self.c, col)
        rows = [
            self.v.offset(c, self.builder.mul(self.arg.c_row, const(i)))
            for i in range(self.spec.rows)
        ]
        places = [self.v.at(row, j * self.spec.lanes) for row in rows for j in range(vectors)]
        b_at = self.stored.offset(self.arg.b, col)
        sums = self._initial(places, col, vectors, mask)
        if not self.is_whole:
            sums = self._left(sums, b_at, vectors, mask)
        elif mask is None:
            if self.spec.fetches_ahead:
                self._fetch_ahead(b_at, col, vectors)
            sums = self._chunk(sums, b_at, vectors)
        else:
            for word in range(self.spec.words):
                sums = self._word(sums, b_at, word, vectors, mask)
        ceiling = ceiling_of(self.spec.epilogue)
        done = self._when(RELU, lambda xs: [self.v.relu(x, ceiling) for x in xs], sums)
        for value, at in zip(done, places, strict=True):
            self.v.store(value, at, mask)

    def _initial(
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

    # The reduction

    def _chunk(self, sums: list[Value], b_at: Value, vectors: int) -> list[Value]:
        """The sums plus the products of a chunk, by whole vectors of rows if words have several."""
        deep = self.spec.how.depth
        if deep == 1 or vectors % deep:
            for word in range(self.spec.words):
                sums = self._word(sums, b_at, word, vectors, None)
            return sums
        groups = [sums[at : at + deep] for at in range(0, len(sums), deep)]
        sums = [x for group in groups for x in in_order_of_words(self.builder, group)]
        for word in range(self.spec.words):
            sums = self._joined_word(sums, b_at, word, vectors)
        groups = [sums[at : at + deep] for at in range(0, len(sums), deep)]
        return [x for group in groups for x in in_order_of_columns(self.builder, group)]

    def _joined_word(self, sums: list[Value], b_at: Value, word: int, vectors: int) -> list[Value]:
        """The same as `_word` of sums in the order of words."""
        spec, out = self.spec, list(sums)
        deep = spec.how.depth
        wide = Vectors(self.builder, self.stored.element, deep * spec.lanes, fma=False)
        first = word * deep
        for group in range(0, vectors, deep):
            places = [(first + d) * spec.b_row + group * spec.lanes for d in range(deep)]
            rows = [wide.load(wide.at(b_at, place)) for place in places]
            if spec.how.offset:
                rows = [add_offset(self.builder, row) for row in rows]
            for j, joined in enumerate(interleaved(self.builder, rows)):
                for i in range(spec.rows):
                    at, a = i * vectors + group + j, self.a.word(i, word)
                    out[at] = multiply_add(self.v, spec.how, joined, a, out[at])
        return out

    def _word(
        self, sums: list[Value], b_at: Value, word: int, vectors: int, mask: Value | None
    ) -> list[Value]:
        """The sums plus the products of one word of each row of A."""
        spec, out = self.spec, list(sums)
        first = word * spec.how.depth
        for j in range(vectors):
            places = [(first + d) * spec.b_row + j * spec.lanes for d in range(spec.how.depth)]
            rows = [self.stored.load(self.stored.at(b_at, place), mask) for place in places]
            joined = self._joined(rows)
            for i in range(spec.rows):
                at, a = i * vectors + j, self.a.word(i, word)
                out[at] = multiply_add(self.v, spec.how, joined, a, out[at])
        return out

    def _left(
        self, sums: list[Value], b_at: Value, vectors: int, mask: Value | None
    ) -> list[Value]:
        """The sums plus the products of the rows of B that are left, one by one."""
        b, spec = self.builder, self.spec
        loop = Loop(b, sums, "left")
        row = self.stored.offset(b_at, b.mul(loop.index, const(spec.b_row)))
        out = list(loop.carried)
        for j in range(vectors):
            joined = self._joined([self.stored.load(self.stored.at(row, j * spec.lanes), mask)])
            for i in range(spec.rows):
                at, a = i * vectors + j, self.a.alone(i, loop.index)
                out[at] = multiply_add(self.v, spec.how, joined, a, out[at])
        return loop.close(out, self.arg.depth, 1)

    def _joined(self, rows: list[Value]) -> Value:
        """Vectors of neighbouring rows of B as one vector of words."""
        how = self.spec.how
        if how.depth == 1:
            return widen(self.builder, rows[0], how.stored, how.word)
        word = join(self.builder, rows, how.stored)
        return add_offset(self.builder, word) if how.offset else word

    def _fetch_ahead(self, b_at: Value, col: Value, vectors: int) -> None:
        """Prefetch each row further on, or where the next chunk's row begins."""
        b, spec, size = self.builder, self.spec, self.stored.element.bytes
        ahead = AHEAD_BYTES // size
        inside = b.icmp_signed("<", b.add(col, const(ahead)), self.arg.cols)
        beyond = b.add(const(AHEAD_BYTES), self.arg.wrap)
        at = b.add(b_at, b.select(inside, const(AHEAD_BYTES), beyond))
        lines = max(1, vectors * spec.lanes * size // LINE_BYTES)
        for row in range(spec.depth):
            first = self.stored.at(at, row * spec.b_row)
            for line in range(lines):
                self.v.prefetch(b.add(first, const(line * LINE_BYTES)))

    def _when(self, flag: int, then: Transform, values: list[Value]) -> list[Value]:
        """`then(values)` where the flag is set, else `values`."""
        return when(self.builder, self.arg.flags, flag, self.spec.epilogue | LOAD_C, then, values)
