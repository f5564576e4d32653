"""The micro-kernel: a tile of C in registers over a chunk of the reduction.

    C[rows, cols] = relu?( (C | 0) + bias? + sum over taps, k of A[rows, tap, k] * B[tap, k, cols] )

Outer products of a column of A (broadcast, one element at a time) with a row of B
(vectors), as in Goto and van de Geijn, Anatomy of High-Performance Matrix
Multiplication (ACM TOMS 34(3), 2008). The accumulators are phis over the reduction
loop, so they never leave registers; C is written once, and read only to accumulate.
A matmul has one tap; a convolution reads the image in place, tap by tap.

A panel of B can be packed while its first tile of rows is computed: its rows are in
registers then, and copying them takes stores alone, for which the multiply-adds leave room
(Yang et al., LibShalom: Optimizing Small and Irregular-Shaped Matrix Multiplications on
ARMv8 Multi-Cores, SC 2021). That needs words that are packed as they lie.
"""

from dataclasses import dataclass
from functools import partial

from llvmlite import ir

from kernels.native.ir.builder import Builder
from kernels.native.ir.control import Loop, Transform, branch, turns, when
from kernels.native.ir.dot_products import multiply_add
from kernels.native.ir.vectors import ELEMENTS, LINE_BYTES, Value, Vectors, const, internal_function
from kernels.native.microkernels.outer_product_spec import (
    ADD_BIAS,
    ARGUMENTS,
    LOAD_C,
    RELU,
    MicroKernelSpec,
)
from kernels.native.microkernels.use import Cut


def emit_microkernel(module: ir.Module, spec: MicroKernelSpec) -> ir.Function:
    """Add the micro-kernel for whole tiles to `module`."""
    fn = internal_function(module, "tilewise_kernel_full", len(ARGUMENTS))
    return _Emitter(fn, spec).emit()


def emit_edge_microkernel(module: ir.Module, spec: MicroKernelSpec, cut: Cut) -> ir.Function:
    """Add the micro-kernel for tiles of any rows <= MR, any cols <= NR, or both, as `cut` says."""
    fn = internal_function(module, "tilewise_kernel_edge", len(ARGUMENTS))
    return _Emitter(fn, spec, cut).emit()


def emit_filling_microkernel(module: ir.Module, spec: MicroKernelSpec) -> ir.Function:
    """Add the micro-kernel of a panel's first whole tile: it reads B in place and packs it."""
    fn = internal_function(module, "tilewise_kernel_filling", len(ARGUMENTS))
    return _Emitter(fn, spec, fills=True).emit()


@dataclass(frozen=True)
class _Weights:
    """Where rows of B lie, and where they are copied to by a kernel that fills a panel."""

    rows: Value
    panel: Value


class _Emitter:
    """One emission; holds the builder, the arguments by name, and the masks."""

    def __init__(
        self, fn: ir.Function, spec: MicroKernelSpec, cut: Cut = "", fills: bool = False
    ) -> None:
        self.fn, self.spec, self.fills = fn, spec, fills
        self.cuts_rows, self.cuts_cols = "rows" in cut, "cols" in cut
        self.b_row = spec.filled_row if fills else spec.b_row
        self.arg: dict[str, Value] = dict(zip(ARGUMENTS, fn.args, strict=True))
        self.builder = Builder(fn.append_basic_block("entry"))
        self.v = Vectors(self.builder, ELEMENTS[spec.how.accumulator], spec.lanes, spec.fma)
        self.words = Vectors(self.builder, ELEMENTS[spec.how.word], spec.lanes, spec.fma)
        self.vectors = spec.vectors
        self.col_masks: list[Value | None] = [None] * spec.vectors
        self.row_index: list[Value] = [const(i) for i in range(spec.rows)]
        self.a_offsets: list[Value] = []

    def emit(self) -> ir.Function:
        self._prepare_rows()
        if self.cuts_cols and self.spec.vectors > 1:
            narrow = self.builder.icmp_signed("<=", self.arg["cols"], const(self.spec.lanes))
            whole = partial(self._tile, self.spec.vectors)
            branch(self.builder, narrow, partial(self._tile, 1), [], whole)
        else:
            self._tile(self.spec.vectors, [])
        self.builder.ret_void()
        return self.fn

    def _tile(self, vectors: int, nothing: list[Value]) -> list[Value]:
        """The tile's first `vectors` vectors of columns; carries no value."""
        self.vectors = vectors
        c_rows = self._c_rows()
        accumulators = self._reduce(self._initial(c_rows))
        self._finish(accumulators, c_rows)
        return nothing

    def _prepare_rows(self) -> None:
        """Masks of columns, and the rows of A and C.

        Rows past the last one are that row again: it is read, and written, several times over,
        the same each time, and needs no mask.
        """
        b, spec = self.builder, self.spec
        if self.cuts_cols:
            self.col_masks = [
                self.v.first_lanes(self.arg["cols"], j * spec.lanes) for j in range(self.vectors)
            ]
        if self.cuts_rows:
            last = b.sub(self.arg["rows"], const(1))
            for i in range(1, spec.rows):
                inside = b.icmp_signed("<", const(i), self.arg["rows"])
                self.row_index[i] = b.select(inside, const(i), last)
        self.a_offsets = [b.mul(index, const(spec.a_row)) for index in self.row_index]

    def _c_rows(self) -> list[Value]:
        rows = [
            self.v.offset(self.arg["c"], self.builder.mul(self.arg["c_row"], index))
            for index in self.row_index
        ]
        if not (self.cuts_rows or self.cuts_cols):
            for row in rows:
                for j in range(self.vectors):
                    self.v.prefetch_for_write(self.v.at(row, j * self.spec.lanes))
        return rows

    def _tiles(self) -> list[tuple[int, int]]:
        return [(i, j) for i in range(self.spec.rows) for j in range(self.vectors)]

    def _initial(self, c_rows: list[Value]) -> list[Value]:
        """Zero or C, plus the bias: what the accumulators start from."""

        def loaded(_: list[Value]) -> list[Value]:
            return [
                self.v.load(self.v.at(c_rows[i], j * self.spec.lanes), self.col_masks[j])
                for i, j in self._tiles()
            ]

        def biased(values: list[Value]) -> list[Value]:
            bias = self._bias()
            return [self.v.add(x, y) for x, y in zip(values, bias, strict=True)]

        zeros = [self.v.zero] * len(self._tiles())
        start = self._when(ADD_BIAS, biased, self._when(LOAD_C, loaded, zeros))
        return self._corrected(start) if self.spec.how.offset else start

    def _bias(self) -> list[Value]:
        """The bias of every vector of the tile."""
        v, at, vectors = self.v, self.arg["bias"], self.vectors
        if self.spec.bias_rows:
            rows = [v.load_splat(v.offset(at, index)) for index in self.row_index]
            return [row for row in rows for _ in range(vectors)]
        cols = [v.load(v.at(at, j * self.spec.lanes), self.col_masks[j]) for j in range(vectors)]
        return cols * self.spec.rows

    def _corrected(self, values: list[Value]) -> list[Value]:
        """Less what the 128 that was added to A will contribute."""
        sums = [
            self.v.load(self.v.at(self.arg["beside"], j * self.spec.lanes))
            for j in range(self.vectors)
        ]
        return [self.v.add(x, sums[j]) for x, (_, j) in zip(values, self._tiles(), strict=True)]

    def _when(self, flag: int, then: Transform, values: list[Value]) -> list[Value]:
        """`then(values)` where the flag is set, else `values`; no code where it never is."""
        possible = self.spec.epilogue | LOAD_C
        return when(self.builder, self.arg["flags"], flag, possible, then, values)

    def _guarded(self, condition: Value, then: Transform, values: list[Value]) -> list[Value]:
        return branch(self.builder, condition, then, values)

    def _reduce(self, accumulators: list[Value]) -> list[Value]:
        if not self.spec.taps:
            weights = _Weights(self.arg["b"], self.arg["beside"])
            return self._reduce_depth(accumulators, self.arg["a"], weights, const(0))
        b, v = self.builder, self.words
        rows = Loop(b, accumulators, "tap.row")
        a_row = v.offset(self.arg["a"], b.mul(rows.index, self.arg["a_tap_row"]))
        first_tap = b.mul(rows.index, self.arg["tap_cols"])
        cols = Loop(b, rows.carried, "tap.col")
        a = v.offset(a_row, b.mul(cols.index, self.arg["a_tap_col"]))
        tap = b.add(first_tap, cols.index)
        weights = _Weights(
            v.offset(self.arg["b"], b.mul(tap, self.arg["b_tap"])),
            self._panel_row(self.arg["beside"], b.mul(tap, self.arg["depth"])),
        )
        turns = b.sdiv(self.arg["depth"], const(self.spec.unroll))
        done = self._reduce_depth(cols.carried, a, weights, b.mul(tap, turns))
        done = cols.close(done, self.arg["tap_cols"], 1)
        return rows.close(done, self.arg["tap_rows"], 1)

    def _panel_row(self, panel: Value, row: Value) -> Value:
        return self.words.offset(panel, self.builder.mul(row, const(self.spec.cols)))

    def _reduce_depth(
        self, accumulators: list[Value], a: Value, weights: _Weights, turn: Value
    ) -> list[Value]:
        """The unrolled loop over the chunk's depth, then the steps that are left one by one.

        `turn` counts the iterations before it, each of which prefetched a row.
        """
        b, unroll, depth = self.builder, self.spec.unroll, self.arg["depth"]
        rows = b.mul(turn, const(self.spec.how.depth))
        ahead = b.add(self.arg["ahead"], b.mul(rows, self.arg["ahead_step"]))
        if unroll == 1:
            return self._depth_loop(accumulators, a, weights, const(0), depth, 1, ahead)
        whole = b.sub(depth, b.srem(depth, const(unroll)))
        main = self._guarded(
            b.icmp_signed(">", whole, const(0)),
            lambda acc: self._depth_loop(acc, a, weights, const(0), whole, unroll, ahead),
            accumulators,
        )
        left = b.sub(depth, whole)
        return self._guarded(
            b.icmp_signed(">", left, const(0)),
            lambda acc: (
                self._depth_loop(acc, a, weights, whole, left, 1)
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
        ahead: Value | None = None,
    ) -> list[Value]:
        b = self.builder
        loop = Loop(b, accumulators, f"depth.by{unroll}")
        if ahead is not None and self.spec.prefetched:
            self._prefetch_rows(ahead, turns(b, loop.index, unroll))
        first = b.add(start, loop.index)
        done = self._steps(loop.carried, a, weights, first, unroll)
        return loop.close(done, count, unroll)

    def _steps(
        self, accumulators: list[Value], a: Value, weights: _Weights, first: Value, count: int
    ) -> list[Value]:
        """So many steps of the reduction from `first` on, one after another."""
        b = self.builder
        a_step = self.words.offset(a, b.mul(first, const(self.spec.a_step)))
        b_step = _Weights(
            self.words.offset(weights.rows, b.mul(first, const(self.b_row))),
            self._panel_row(weights.panel, first),
        )
        for u in range(count):
            accumulators = self._outer_product(accumulators, a_step, b_step, u)
        return accumulators

    def _prefetch_rows(self, ahead: Value, turn: Value) -> None:
        """The rows of B's next block that become one row of words."""
        b, deep = self.builder, self.spec.how.depth
        for r in range(deep):
            row = b.add(b.mul(turn, const(deep)), const(r))
            at = b.add(ahead, b.mul(row, self.arg["ahead_step"]))
            for line in range(self.spec.prefetched):
                self.v.prefetch_to_l2(b.add(at, const(line * LINE_BYTES)))

    def _outer_product(
        self, acc: list[Value], a_step: Value, b_step: _Weights, u: int
    ) -> list[Value]:
        spec, v = self.spec, self.words
        masks = [None] * self.vectors if spec.b_packed else self.col_masks
        row = [
            v.load(v.at(b_step.rows, u * self.b_row + j * spec.lanes), masks[j])
            for j in range(self.vectors)
        ]
        if self.fills:
            for j in range(self.vectors):
                v.store(row[j], v.at(b_step.panel, u * spec.cols + j * spec.lanes))
        out: list[Value] = []
        for i in range(spec.rows):
            at = v.at(v.offset(a_step, self.a_offsets[i]), u * spec.a_step)
            column = v.load_splat(at)
            out += [
                multiply_add(self.v, spec.how, column, row[j], acc[i * self.vectors + j])
                for j in range(self.vectors)
            ]
        return out

    def _finish(self, accumulators: list[Value], c_rows: list[Value]) -> None:
        values = self._when(RELU, lambda xs: [self.v.relu(x) for x in xs], accumulators)
        for value, (i, j) in zip(values, self._tiles(), strict=True):
            self.v.store(value, self.v.at(c_rows[i], j * self.spec.lanes), self.col_masks[j])
