"""The loops of an outer-product micro-kernel: over filter taps, and over the depth of a chunk.

The accumulators are phis over the loops. In each step a column of A, one element at a time, is
multiplied with a row of B, in vectors.
"""

from dataclasses import dataclass

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import Loop, branch, turns
from tilewise.kernels.native.ir.dot_products import multiply_add, widened_from_word
from tilewise.kernels.native.ir.vectors import LINE_BYTES, Value, Vectors, const
from tilewise.kernels.native.microkernels.abi import Arguments
from tilewise.kernels.native.microkernels.outer_product_spec import OuterProductSpec
from tilewise.kernels.native.microkernels.tile_of_c import TileOfC
from tilewise.kernels.nest import Fetched


@dataclass(frozen=True)
class _Weights:
    """Where rows of B lie, where a kernel that fills a panel copies them, and what is fetched."""

    rows: Value
    panel: Value
    ahead: Value


@dataclass(frozen=True)
class Reduction:
    """Emits the loops over taps and over the depth of a chunk.

    Attributes:
        builder: where.
        spec: the micro-kernel's.
        arg: its arguments.
        words: vectors of words of B.
        words_of_a: vectors of words of A.
        tile: what is computed.
        a_offsets: words from A's first row to each row of the tile.
        fills: whether rows of B are read in place and copied to a panel.
    """

    builder: Builder
    spec: OuterProductSpec
    arg: Arguments[Value]
    words: Vectors
    words_of_a: Vectors
    tile: TileOfC
    a_offsets: list[Value]
    fills: bool

    @property
    def b_row(self) -> int:
        """Words between rows of B where they are read."""
        return self.spec.filled_row if self.fills else self.spec.b_row

    def reduce(self, accumulators: list[Value]) -> list[Value]:
        """The accumulators plus all products of the call."""
        if not self.spec.taps:
            weights = _Weights(self.arg.b, self.arg.beside, self.arg.ahead)
            return self._reduce_depth(accumulators, self.arg.a, weights, const(0))
        b, of_a = self.builder, self.words_of_a
        rows = Loop(b, accumulators, "tap.row")
        a_row = of_a.offset(self.arg.a, b.mul(rows.index, self.arg.a_tap_row))
        first_tap = b.mul(rows.index, self.arg.tap_cols)
        cols = Loop(b, rows.carried, "tap.col")
        a = of_a.offset(a_row, b.mul(cols.index, self.arg.a_tap_col))
        tap = b.add(first_tap, cols.index)
        weights = _Weights(
            self.words.offset(self.arg.b, b.mul(tap, self.arg.b_tap)),
            self._panel_row(self.arg.beside, b.mul(tap, self.arg.depth)),
            b.add(self.arg.ahead, b.mul(b.mul(tap, self.arg.depth), self.arg.ahead_step)),
        )
        turns = b.sdiv(self.arg.depth, const(self.spec.unroll))
        done = self._reduce_depth(cols.carried, a, weights, b.mul(tap, turns))
        done = cols.close(done, self.arg.tap_cols, 1)
        return rows.close(done, self.arg.tap_rows, 1)

    def _panel_row(self, panel: Value, row: Value) -> Value:
        return self.words.offset(panel, self.builder.mul(row, const(self.spec.cols)))

    def _reduce_depth(
        self, accumulators: list[Value], a: Value, weights: _Weights, turn: Value
    ) -> list[Value]:
        """The unrolled loop over the chunk's depth, then the steps that are left one by one.

        `turn` counts the iterations before it, each of which prefetched a row.
        """
        b, unroll, depth = self.builder, self.spec.unroll, self.arg.depth
        rows, before = b.mul(turn, const(self.spec.how.depth)), b.mul(turn, const(unroll))
        ahead = b.add(self.arg.ahead, b.mul(rows, self.arg.ahead_step))
        if unroll == 1:
            return self._depth_loop(accumulators, a, weights, const(0), depth, 1, before, ahead)
        whole = b.sub(depth, b.srem(depth, const(unroll)))
        main = branch(
            b,
            b.icmp_signed(">", whole, const(0)),
            lambda acc: self._depth_loop(acc, a, weights, const(0), whole, unroll, before, ahead),
            accumulators,
        )
        left = b.sub(depth, whole)
        return branch(
            b,
            b.icmp_signed(">", left, const(0)),
            lambda acc: (
                self._depth_loop(acc, a, weights, whole, left, 1, before)
                if unroll > 2
                else self._steps(acc, a, weights, whole, 1)
            ),
            main,
        )

    def _depth_loop(
        self,
        accumulators: list[Value],
        a: Value,
        weights: _Weights,
        start: Value,
        count: Value,
        unroll: int,
        before: Value,
        ahead: Value | None = None,
    ) -> list[Value]:
        """A loop over `count` steps from `start` on, of a call that took `before` others before."""
        b = self.builder
        loop = Loop(b, accumulators, f"depth.by{unroll}")
        if ahead is not None and self.spec.prefetched:
            self._prefetch_rows(ahead, turns(b, loop.index, unroll))
        first = b.add(start, loop.index)
        if self.spec.spreads_c and self.tile.is_whole:
            self.tile.fetch_lines(b.add(before, first), unroll)
        done = self._steps(loop.carried, a, weights, first, unroll)
        return loop.close(done, count, unroll)

    def _steps(
        self, accumulators: list[Value], a: Value, weights: _Weights, first: Value, count: int
    ) -> list[Value]:
        """So many steps of the reduction from `first` on, one after another."""
        b = self.builder
        a_step = self.words_of_a.offset(a, b.mul(first, const(self.spec.a_step)))
        b_step = _Weights(
            self.words.offset(weights.rows, b.mul(first, const(self.b_row))),
            self._panel_row(weights.panel, first),
            b.add(weights.ahead, b.mul(first, self.arg.ahead_step)),
        )
        for u in range(count):
            accumulators = self._outer_product(accumulators, a_step, b_step, u)
        return accumulators

    def _prefetch_rows(self, ahead: Value, turn: Value) -> None:
        """The rows of B's next block that become one row of words."""
        b, deep = self.builder, self.spec.how.depth
        for r in range(deep):
            row = b.add(b.mul(turn, const(deep)), const(r))
            at = b.add(ahead, b.mul(row, self.arg.ahead_step))
            for line in range(self.spec.prefetched):
                self._prefetch(b.add(at, const(line * LINE_BYTES)))

    def _fetch_panels(self, ahead: Value) -> None:
        """The lines that a step is to fetch, which may be parts of one line."""
        size = self.tile.vectors * self.spec.lanes * self.words.element.bytes
        lines = -(-size // LINE_BYTES)
        b = self.builder
        ahead = b.add(ahead, const(self.spec.fetch_offset)) if self.spec.fetch_offset else ahead
        apart = b.sdiv(b.add(self.arg.ahead_step, const(lines - 1)), const(lines))
        for line in range(lines):
            self._prefetch(b.add(ahead, b.mul(apart, const(line))))

    def _prefetch(self, address: Value) -> None:
        assert self.spec.fetch is not None
        self.words.prefetch(address, self.spec.fetch.level)

    def _ahead_of(self, weights: _Weights, u: int) -> Value:
        b = self.builder
        return b.add(weights.ahead, b.mul(self.arg.ahead_step, const(u)))

    def _outer_product(
        self, acc: list[Value], a_step: Value, b_step: _Weights, u: int
    ) -> list[Value]:
        spec, v, vectors = self.spec, self.words, self.tile.vectors
        masks = [None] * vectors if spec.b_packed else self.tile.col_masks
        row = [
            v.load(v.at(b_step.rows, u * self.b_row + j * spec.lanes), masks[j])
            for j in range(vectors)
        ]
        if spec.fetch and spec.fetch.what is Fetched.NEXT_PANEL:
            self._fetch_panels(self._ahead_of(b_step, u))
        if self.fills:
            for j in range(vectors):
                v.store(row[j], v.at(b_step.panel, u * spec.cols + j * spec.lanes))
        of_a = self.words_of_a
        column = [
            of_a.at(of_a.offset(a_step, self.a_offsets[i]), u * spec.a_step)
            for i in range(spec.rows)
        ]
        if not spec.how.is_narrow:
            return self._products(acc, of_a, column, row)
        size = self.tile.v.element.bytes
        for place in range(spec.how.depth):
            elements = [self.builder.add(at, const(place * size)) for at in column]
            alone = [widened_from_word(self.builder, word, spec.how, place) for word in row]
            acc = self._products(acc, self.tile.v, elements, alone)
        return acc

    def _products(
        self, acc: list[Value], of_a: Vectors, column: list[Value], row: list[Value]
    ) -> list[Value]:
        """The accumulators plus the products of what lies at each place of A with vectors of B."""
        v, one, out = self.tile.v, self.spec.how.instruction, []
        for i, at in enumerate(column):
            factor = of_a.load_splat(at)
            out += [
                multiply_add(v, one, factor, x, acc[i * len(row) + j]) for j, x in enumerate(row)
            ]
        return out
