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

from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from llvmlite import ir

from kernels.arithmetic import Arithmetic, arithmetic
from kernels.native.ir.builder import Builder
from kernels.native.ir.control import Loop, branch, turns
from kernels.native.ir.dot_products import multiply_add
from kernels.native.ir.vectors import ELEMENTS, LINE_BYTES, Value, Vectors, const, internal_function
from kernels.native.microkernels.abi import ARGUMENTS, Arguments
from kernels.native.microkernels.outer_product_spec import OuterProductSpec, outer_product_spec
from kernels.native.microkernels.specs import Piece, packs_of_a
from kernels.native.microkernels.tile_of_c import TileOfC
from kernels.native.microkernels.use import ANYHOW, Cut, Use
from kernels.native.packing.panels import emit_pack_panel, emit_transpose_panel
from kernels.native.packing.patches import emit_copy_patches
from kernels.native.strides import Strides
from kernels.problem import Conv2d, Problem
from kernels.problem.iteration import iteration_space
from kernels.schedule import Schedule
from kernels.target.model import Target


@dataclass(frozen=True)
class OuterProduct:
    """The micro-kernel of a schedule without a split step, and the packs that feed it.

    Attributes:
        spec: what its code depends on.
        packs_transposed: whether packing B transposes it.
        patch_stride: image columns between neighbouring patches where packing B gathers
            them; 0 where B is a matrix.
    """

    spec: OuterProductSpec
    packs_transposed: bool
    patch_stride: int

    @classmethod
    def serves(cls, schedule: Schedule) -> bool:
        """Whether the reduction is in one piece."""
        return schedule.lanes == 1

    @classmethod
    def arithmetic(cls, dtype: str, target: Target) -> Arithmetic:
        """That of words of A, each multiplied with a vector of B."""
        return arithmetic(dtype, target)

    @classmethod
    def of(cls, problem: Problem, schedule: Schedule, target: Target, strides: Strides) -> Self:
        """The one that a schedule asks for; LoweringError for what the target has not."""
        gathers = isinstance(problem, Conv2d) and iteration_space(problem).patches
        return cls(
            outer_product_spec(problem, schedule, target, strides),
            strides.b.is_transposed,
            problem.stride if isinstance(problem, Conv2d) and gathers else 0,
        )

    def pieces(self, use: Use = ANYHOW) -> dict[str, Piece]:
        """Its functions as they are used; where no tile is cut, `edge` takes all."""
        # Less what the code of these two does not depend on, so that more schedules share it.
        spec = replace(self.spec, filled_row=0)
        edge = (_as_used(spec, "edge", use), use.cut or ANYHOW.cut)
        return {
            "full": Piece("full", (spec,), emit_outer_product, is_as_written=True),
            "edge": Piece("edge", edge, emit_edge_outer_product, is_as_written=True),
            "pack_b_panel": self._pack_of_b(),
            **packs_of_a(spec.how, spec.lanes),
            **self._pieces_beside(use),
        }

    def _pack_of_b(self) -> Piece:
        given = (self.spec.how, self.spec.lanes, self.spec.vectors)
        if self.packs_transposed:
            return Piece("transposed panel of b", given, emit_transpose_panel)
        return Piece("panel of b", given, emit_pack_panel)

    def _pieces_beside(self, use: Use) -> dict[str, Piece]:
        """What gathers patches, or fills a panel."""
        if self.patch_stride:
            given = (self.spec.how, self.spec.lanes, self.patch_stride)
            return {"copy_patches": Piece("patches", given, emit_copy_patches)}
        if self.spec.filled_row:
            spec = _as_used(self.spec, "filling", use)
            emitter = emit_filling_outer_product
            return {"filling": Piece("filling", (spec,), emitter, is_as_written=True)}
        return {}


def _as_used(spec: OuterProductSpec, name: str, use: Use) -> OuterProductSpec:
    """The spec of a micro-kernel that may be called seldom.

    One that prefetches stays as it is: the driver counts what each of its iterations fetches.
    """
    return replace(spec, unroll=1) if name in use.seldom and not spec.prefetched else spec


def emit_outer_product(module: ir.Module, spec: OuterProductSpec) -> ir.Function:
    """Add the micro-kernel for whole tiles to `module`."""
    fn = internal_function(module, "tilewise_kernel_full", len(ARGUMENTS))
    return _Emitter(fn, spec).emit()


def emit_edge_outer_product(module: ir.Module, spec: OuterProductSpec, cut: Cut) -> ir.Function:
    """Add the micro-kernel for tiles of any rows <= MR, any cols <= NR, or both, as `cut` says."""
    fn = internal_function(module, "tilewise_kernel_edge", len(ARGUMENTS))
    return _Emitter(fn, spec, cut).emit()


def emit_filling_outer_product(module: ir.Module, spec: OuterProductSpec) -> ir.Function:
    """Add the micro-kernel of a panel's first whole tile: it reads B in place and packs it."""
    fn = internal_function(module, "tilewise_kernel_filling", len(ARGUMENTS))
    return _Emitter(fn, spec, fills=True).emit()


@dataclass(frozen=True)
class _Weights:
    """Where rows of B lie, and where they are copied to by a kernel that fills a panel."""

    rows: Value
    panel: Value


class _Emitter:
    """One emission: the reduction, between the beginning and the end of the tile of C."""

    def __init__(
        self, fn: ir.Function, spec: OuterProductSpec, cut: Cut = "", fills: bool = False
    ) -> None:
        self.fn, self.spec, self.fills = fn, spec, fills
        self.b_row = spec.filled_row if fills else spec.b_row
        self.arg: Arguments[Value] = Arguments(*fn.args)
        self.builder = Builder(fn.append_basic_block("entry"))
        self.words = Vectors(self.builder, ELEMENTS[spec.how.word], spec.lanes, spec.fma)
        self.cuts_cols = "cols" in cut
        self.tile = TileOfC.begin(self.builder, spec, self.arg, cut)
        self.a_offsets = [
            self.builder.mul(index, const(spec.a_row)) for index in self.tile.row_index
        ]

    def emit(self) -> ir.Function:
        """The whole function; one vector of columns alone where no more of them are left."""
        if self.cuts_cols and self.spec.vectors > 1:
            narrow = self.builder.icmp_signed("<=", self.arg.cols, const(self.spec.lanes))
            whole = partial(self._compute, self.spec.vectors)
            branch(self.builder, narrow, partial(self._compute, 1), [], whole)
        else:
            self._compute(self.spec.vectors, [])
        self.builder.ret_void()
        return self.fn

    def _compute(self, vectors: int, nothing: list[Value]) -> list[Value]:
        """The tile's first `vectors` vectors of columns; carries no value."""
        self.tile = self.tile.narrowed(vectors)
        c_rows = self.tile.rows_of_c()
        self.tile.finish(self._reduce(self.tile.initial(c_rows)), c_rows)
        return nothing

    def _reduce(self, accumulators: list[Value]) -> list[Value]:
        if not self.spec.taps:
            weights = _Weights(self.arg.b, self.arg.beside)
            return self._reduce_depth(accumulators, self.arg.a, weights, const(0))
        b, v = self.builder, self.words
        rows = Loop(b, accumulators, "tap.row")
        a_row = v.offset(self.arg.a, b.mul(rows.index, self.arg.a_tap_row))
        first_tap = b.mul(rows.index, self.arg.tap_cols)
        cols = Loop(b, rows.carried, "tap.col")
        a = v.offset(a_row, b.mul(cols.index, self.arg.a_tap_col))
        tap = b.add(first_tap, cols.index)
        weights = _Weights(
            v.offset(self.arg.b, b.mul(tap, self.arg.b_tap)),
            self._panel_row(self.arg.beside, b.mul(tap, self.arg.depth)),
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
        rows = b.mul(turn, const(self.spec.how.depth))
        ahead = b.add(self.arg.ahead, b.mul(rows, self.arg.ahead_step))
        if unroll == 1:
            return self._depth_loop(accumulators, a, weights, const(0), depth, 1, ahead)
        whole = b.sub(depth, b.srem(depth, const(unroll)))
        main = branch(
            b,
            b.icmp_signed(">", whole, const(0)),
            lambda acc: self._depth_loop(acc, a, weights, const(0), whole, unroll, ahead),
            accumulators,
        )
        left = b.sub(depth, whole)
        return branch(
            b,
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
            at = b.add(ahead, b.mul(row, self.arg.ahead_step))
            for line in range(self.spec.prefetched):
                self.tile.v.prefetch_to_l2(b.add(at, const(line * LINE_BYTES)))

    def _outer_product(
        self, acc: list[Value], a_step: Value, b_step: _Weights, u: int
    ) -> list[Value]:
        spec, v, vectors = self.spec, self.words, self.tile.vectors
        masks = [None] * vectors if spec.b_packed else self.tile.col_masks
        row = [
            v.load(v.at(b_step.rows, u * self.b_row + j * spec.lanes), masks[j])
            for j in range(vectors)
        ]
        if self.fills:
            for j in range(vectors):
                v.store(row[j], v.at(b_step.panel, u * spec.cols + j * spec.lanes))
        out: list[Value] = []
        for i in range(spec.rows):
            at = v.at(v.offset(a_step, self.a_offsets[i]), u * spec.a_step)
            column = v.load_splat(at)
            out += [
                multiply_add(self.tile.v, spec.how, column, row[j], acc[i * vectors + j])
                for j in range(vectors)
            ]
        return out
