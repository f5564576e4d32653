"""The code of an outer-product micro-kernel: a tile of C in registers, over a chunk of k.

    C[rows, cols] = relu?( (C | 0) + bias? + sum over taps, k of A[rows, tap, k] * B[tap, k, cols] )

Outer products of a column of A (broadcast, one element at a time) with a row of B (vectors), as in
Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication (ACM TOMS 34(3), 2008). The
accumulators are phis over the loops, so they never leave registers; C is written once, and only
read to accumulate. A matmul has one tap; a convolution reads the image in place, tap by tap.

What C holds is added at the end of a call, not where the accumulators start: its lines may be far
away, and arrive while the products are computed. A tile at the edge of C has fewer columns, which
are masked, or fewer rows: those past the last one repeat it. It is read and written several times,
the same each time, and needs no mask.

A panel of B can be packed while its first tile of rows is computed: its rows are in registers then,
and copying them takes stores alone, for which the multiply-adds leave room (Yang et al., LibShalom:
Optimizing Small and Irregular-Shaped Matrix Multiplications on ARMv8 Multi-Cores, SC 2021). That
needs words that are packed as they are.
"""

from dataclasses import dataclass, replace
from functools import partial

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic, size_of
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import CountedLoop, branch, turns
from tilewise.kernels.native.ir.dot_products import corrections, multiply_add, widened_from_word
from tilewise.kernels.native.ir.vectors import ELEMENTS, LINE_BYTES, Value, Vectors, const
from tilewise.kernels.native.microkernels.abi import (
    ADD_BIAS,
    LOAD_C,
    RELU,
    Arguments,
    arguments_for,
)
from tilewise.kernels.native.microkernels.building_blocks import (
    EpilogueEmitter,
    TapLoops,
    begin_kernel,
    end_of_whole,
    if_any,
)
from tilewise.kernels.native.microkernels.microkernel import Cut
from tilewise.kernels.nest import Fetch, Fetched

STEPS_FOR_LINE = 4
"""Steps of the reduction in which a call fetches a line of its tile of C.

On Emerald Rapids as many lines of the last cache as a tile has take the time of 25 steps.
"""


@dataclass(frozen=True)
class OuterProductSpec:
    """All that the code of an outer-product micro-kernel depends on.

    Attributes:
        how: the arithmetic; it says what a word is.
        rows, vectors, lanes: register rows MR, register columns in vectors, elements of a vector.
        unroll: steps of the reduction in one iteration.
        a_row: words between rows of A (constant: it folds into addresses).
        a_step: words of A between steps of the reduction; 1 unless A is transposed.
        b_row: words between steps of B: a panel's row if packed, else a row of B itself.
        b_packed: whether B is in zero-filled panels, so that loads need no mask at an edge.
        taps: the loops over filter taps: none, two, or three for volumes.
        prefetched: lines of a row of B's next block to fetch in every unrolled iteration.
        fetch: what is prefetched; None for nothing.
        fetch_offset: bytes from where the macro-kernel says a panel is fetched to where it is.
        bias_rows: whether the bias has an element for each row, not for each column.
        filled_row: words between rows of B in place, where a panel is packed while its first
            tile of rows is computed; 0 where it is packed before.
        spreads_c: whether the lines of a whole tile of C are fetched while the reduction runs.
        epilogue: which of `ADD_BIAS` and `RELU` a call may ask for, and `CEILING`.
    """

    how: Arithmetic
    rows: int
    vectors: int
    lanes: int
    unroll: int
    a_row: int
    a_step: int
    b_row: int
    b_packed: bool
    taps: int
    prefetched: int = 0
    fetch: Fetch | None = None
    fetch_offset: int = 0
    bias_rows: bool = False
    filled_row: int = 0
    spreads_c: bool = False
    epilogue: int = ADD_BIAS | RELU

    @property
    def cols(self) -> int:
        """Register columns NR in elements."""
        return self.vectors * self.lanes

    @property
    def lines_of_c(self) -> int:
        """Cache lines of a row of the tile of C, as a power of two."""
        return lines_of_c(self.cols, self.how)

    def steps(self, multiply_adds: int) -> int:
        """Return the steps of the reduction that so many vector multiply-adds take."""
        return multiply_adds // (self.rows * self.vectors * self.how.multiply_adds)


def lines_of_c(cols: int, how: Arithmetic) -> int:
    """Return the cache lines of `cols` columns of a row of C, as a power of two."""
    lines = -(-cols * size_of(how.accumulator) // LINE_BYTES)
    return 1 << (lines - 1).bit_length()


def emit_outer_product(module: ir.Module, spec: OuterProductSpec) -> ir.Function:
    """Add the micro-kernel for whole tiles to `module`."""
    return _emit(module, "full", spec)


def emit_edge_outer_product(module: ir.Module, spec: OuterProductSpec, cut: Cut) -> ir.Function:
    """Add the micro-kernel for tiles of any rows <= MR, any cols <= NR, or both, as `cut` says."""
    return _emit(module, "edge", spec, cut)


def emit_filling_outer_product(module: ir.Module, spec: OuterProductSpec) -> ir.Function:
    """Add the micro-kernel of a panel's first whole tile: it reads B in place and packs it."""
    return _emit(module, "filling", spec, fills=True)


def _emit(
    module: ir.Module, name: str, spec: OuterProductSpec, cut: Cut = "", fills: bool = False
) -> ir.Function:
    """The whole function; one vector of columns alone where no more of them are left."""
    fn, builder, arg = begin_kernel(module, name, arguments_for(spec.taps))
    call = _Call.begin(builder, spec, arg, cut, fills)

    def compute(vectors: int, nothing: list[Value]) -> list[Value]:
        """The tile's first `vectors` vectors of columns; carries no value."""
        replace(call, vectors=vectors).emit()
        return nothing

    if "cols" in cut and spec.vectors > 1:
        narrow = builder.icmp_signed("<=", arg.cols, const(spec.lanes))
        branch(builder, narrow, partial(compute, 1), [], partial(compute, spec.vectors))
    else:
        call.emit()
    builder.ret_void()
    return fn


@dataclass(frozen=True)
class _At:
    """Addresses at a step: of A, of B, of the panel that is filled, and of what is fetched."""

    a: Value
    b: Value
    panel: Value
    ahead: Value


@dataclass(frozen=True)
class _Call:
    """Emits a call: what the accumulators start from, the loops over taps and k, and C's update.

    Attributes:
        builder, spec, arg: where it is emitted, what for, and the arguments.
        v, words, words_of_a: vectors of accumulators, of words of B, and of words of A.
        vectors: how many vectors of columns the tile has.
        col_masks: which columns exist, a mask for each vector; None for all of them.
        row_index: the row of C that each row of the tile is.
        a_offsets: words from A's first row to each row of the tile.
        is_whole: whether C cuts nothing off.
        fills: whether rows of B are read in place and copied to a panel.
    """

    builder: Builder
    spec: OuterProductSpec
    arg: Arguments[Value]
    v: Vectors
    words: Vectors
    words_of_a: Vectors
    vectors: int
    col_masks: list[Value | None]
    row_index: list[Value]
    a_offsets: list[Value]
    is_whole: bool
    fills: bool

    @classmethod
    def begin(
        cls, builder: Builder, spec: OuterProductSpec, arg: Arguments[Value], cut: Cut, fills: bool
    ) -> "_Call":
        """Return the call for a tile as wide as it can be."""
        how = spec.how
        v, words, words_of_a = (
            Vectors(builder, ELEMENTS[name], spec.lanes)
            for name in (how.accumulator, how.word, how.word_of_a)
        )
        masks: list[Value | None] = [None] * spec.vectors
        if "cols" in cut:
            masks = [v.first_lanes(arg.cols, j * spec.lanes) for j in range(spec.vectors)]
        rows: list[Value] = [const(i) for i in range(spec.rows)]
        if "rows" in cut:
            last = builder.sub(arg.rows, const(1))
            for i in range(1, spec.rows):
                inside = builder.icmp_signed("<", const(i), arg.rows)
                rows[i] = builder.select(inside, const(i), last)
        offsets = [builder.mul(index, const(spec.a_row)) for index in rows]
        return cls(
            builder, spec, arg, v, words, words_of_a, spec.vectors, masks, rows, offsets,
            is_whole=not cut, fills=fills,
        )  # fmt: skip

    def emit(self) -> None:
        """Emit the call."""
        c_rows = self._rows_of_c()
        self._finish(self._reduce(self._initial()), c_rows)

    # The tile of C

    @property
    def _epilogue(self) -> EpilogueEmitter:
        return EpilogueEmitter(self.v, self.arg.flags, self.spec.epilogue)

    @property
    def _places(self) -> list[tuple[int, int]]:
        """Row and vector of each accumulator."""
        return [(i, j) for i in range(self.spec.rows) for j in range(self.vectors)]

    def _rows_of_c(self) -> list[Value]:
        """Return the addresses of the rows; those of a whole tile are fetched to be written.

        Unless the loop over the reduction does so (`_fetch_lines`).
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

    def _fetch_lines(self, step: Value, unroll: int) -> None:
        """Fetch the next lines to be written at the end, one in `STEPS_FOR_LINE` steps.

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

    def _initial(self) -> list[Value]:
        """Return what the accumulators start from: the bias or zero.

        Where bytes of A were made unsigned, or have a zero point, less what that contributes.
        """
        zeros = [self.v.zero] * len(self._places)
        start = self._epilogue.add(ADD_BIAS, zeros, self._bias)
        how, arg = self.spec.how, self.arg
        if not how.corrects:
            return start
        sums = corrections(self.v, how, arg.extra, arg.zero, self.vectors)
        return [self.v.add(x, y) for x, y in zip(start, sums * self.spec.rows, strict=True)]

    def _bias(self) -> list[Value]:
        v, at, vectors = self.v, self.arg.bias, self.vectors
        if self.spec.bias_rows:
            rows = [v.load_splat(v.offset(at, index)) for index in self.row_index]
            return [row for row in rows for _ in range(vectors)]
        cols = [v.load(v.at(at, j * self.spec.lanes), self.col_masks[j]) for j in range(vectors)]
        return cols * self.spec.rows

    def _finish(self, accumulators: list[Value], c_rows: list[Value]) -> None:
        """Add C where the call accumulates, apply relu where it asks for it, and store."""
        places = [
            (self.v.at(c_rows[i], j * self.spec.lanes), self.col_masks[j]) for i, j in self._places
        ]
        # All of C is read before any of it is written: rows past the last one repeat it.
        sums = self._epilogue.add(
            LOAD_C, accumulators, lambda: [self.v.load(at, mask) for at, mask in places]
        )
        for value, (at, mask) in zip(self._epilogue.relu(sums), places, strict=True):
            self.v.store(value, at, mask)

    # Products

    @property
    def _b_row(self) -> int:
        """Words between rows of B where they are read."""
        return self.spec.filled_row if self.fills else self.spec.b_row

    def _reduce(self, accumulators: list[Value]) -> list[Value]:
        """Return the accumulators plus all products of the call."""
        b, arg, of_a = self.builder, self.arg, self.words_of_a
        if not self.spec.taps:
            at = _At(arg.a, arg.b, arg.extra, arg.ahead)
            return self._reduce_depth(accumulators, at, const(0))
        taps = TapLoops(b, arg, accumulators)
        tap = taps.tap
        at = _At(
            of_a.offset(arg.a, taps.moved),
            self.words.offset(arg.b, b.mul(tap, arg.b_tap)),
            self._panel_row(arg.extra, b.mul(tap, arg.depth)),
            b.add(arg.ahead, b.mul(b.mul(tap, arg.depth), arg.ahead_step)),
        )
        iterations = b.sdiv(arg.depth, const(self.spec.unroll))
        return taps.close(self._reduce_depth(taps.carried, at, b.mul(tap, iterations)))

    def _panel_row(self, panel: Value, row: Value) -> Value:
        return self.words.offset(panel, self.builder.mul(row, const(self.spec.cols)))

    def _reduce_depth(self, accumulators: list[Value], at: _At, iteration: Value) -> list[Value]:
        """The unrolled loop over the chunk's depth, then the steps that are left one by one.

        `iteration` counts those before it, each of which prefetched a row.
        """
        b, unroll, depth = self.builder, self.spec.unroll, self.arg.depth
        rows = b.mul(iteration, const(self.spec.how.depth))
        before = b.mul(iteration, const(unroll))
        ahead = b.add(self.arg.ahead, b.mul(rows, self.arg.ahead_step))

        def loop(
            acc: list[Value], start: Value, count: Value, unroll: int, ahead: Value | None
        ) -> list[Value]:
            return self._depth_loop(acc, at, start, count, unroll, before, ahead)

        if unroll == 1:
            return loop(accumulators, const(0), depth, 1, ahead)
        whole = end_of_whole(b, depth, unroll)
        main = if_any(b, whole, lambda acc: loop(acc, const(0), whole, unroll, ahead), accumulators)
        left = b.sub(depth, whole)
        return if_any(
            b,
            left,
            lambda acc: (
                loop(acc, whole, left, 1, None) if unroll > 2 else self._steps(acc, at, whole, 1)
            ),
            main,
        )

    def _depth_loop(
        self,
        accumulators: list[Value],
        at: _At,
        start: Value,
        count: Value,
        unroll: int,
        before: Value,
        ahead: Value | None,
    ) -> list[Value]:
        """A loop over `count` steps from `start` on, of a call that took `before` others before."""
        b = self.builder
        loop = CountedLoop(b, accumulators, f"depth.by{unroll}")
        if ahead is not None and self.spec.prefetched:
            self._prefetch_rows(ahead, turns(b, loop.index, unroll))
        first = b.add(start, loop.index)
        if self.spec.spreads_c and self.is_whole:
            self._fetch_lines(b.add(before, first), unroll)
        done = self._steps(loop.carried, at, first, unroll)
        return loop.close(done, count, unroll)

    def _steps(self, acc: list[Value], at: _At, first: Value, count: int) -> list[Value]:
        """So many steps of the reduction from `first` on, one after another."""
        b = self.builder
        here = _At(
            self.words_of_a.offset(at.a, b.mul(first, const(self.spec.a_step))),
            self.words.offset(at.b, b.mul(first, const(self._b_row))),
            self._panel_row(at.panel, first),
            b.add(at.ahead, b.mul(first, self.arg.ahead_step)),
        )
        for u in range(count):
            acc = self._outer_product(acc, here, u)
        return acc

    def _prefetch_rows(self, ahead: Value, iteration: Value) -> None:
        """The rows of B's next block that become one row of words."""
        b, deep = self.builder, self.spec.how.depth
        for r in range(deep):
            row = b.add(b.mul(iteration, const(deep)), const(r))
            at = b.add(ahead, b.mul(row, self.arg.ahead_step))
            for line in range(self.spec.prefetched):
                self._prefetch(b.add(at, const(line * LINE_BYTES)))

    def _fetch_panels(self, ahead: Value) -> None:
        """The lines that a step is to fetch, which may be parts of one line."""
        size = self.vectors * self.spec.lanes * self.words.element.bytes
        lines = -(-size // LINE_BYTES)
        b = self.builder
        ahead = b.add(ahead, const(self.spec.fetch_offset)) if self.spec.fetch_offset else ahead
        apart = b.sdiv(b.add(self.arg.ahead_step, const(lines - 1)), const(lines))
        for line in range(lines):
            self._prefetch(b.add(ahead, b.mul(apart, const(line))))

    def _prefetch(self, address: Value) -> None:
        assert self.spec.fetch is not None
        self.words.prefetch(address, self.spec.fetch.level)

    def _outer_product(self, acc: list[Value], at: _At, u: int) -> list[Value]:
        """The accumulators plus the products of the step `u` behind an address."""
        spec, v, vectors = self.spec, self.words, range(self.vectors)
        masks = [None] * len(vectors) if spec.b_packed else self.col_masks
        row = [v.load(v.at(at.b, u * self._b_row + j * spec.lanes), masks[j]) for j in vectors]
        if spec.fetch and spec.fetch.what is Fetched.NEXT_PANEL:
            ahead = self.builder.mul(self.arg.ahead_step, const(u))
            self._fetch_panels(self.builder.add(at.ahead, ahead))
        if self.fills:
            for j in vectors:
                v.store(row[j], v.at(at.panel, u * spec.cols + j * spec.lanes))
        of_a = self.words_of_a
        column = [
            of_a.at(of_a.offset(at.a, self.a_offsets[i]), u * spec.a_step) for i in range(spec.rows)
        ]
        if not spec.how.is_narrow:
            return self._products(acc, of_a, column, row)
        size = self.v.element.bytes
        for place in range(spec.how.depth):
            elements = [self.builder.add(address, const(place * size)) for address in column]
            alone = [widened_from_word(self.builder, word, spec.how, place) for word in row]
            acc = self._products(acc, self.v, elements, alone)
        return acc

    def _products(
        self, acc: list[Value], of_a: Vectors, column: list[Value], row: list[Value]
    ) -> list[Value]:
        """The accumulators plus the products of elements of A, by address, with vectors of B."""
        v, one, out = self.v, self.spec.how.instruction, []
        for i, at in enumerate(column):
            factor = of_a.load_splat(at)
            out += [
                multiply_add(v, one, factor, x, acc[i * len(row) + j]) for j, x in enumerate(row)
            ]
        return out
