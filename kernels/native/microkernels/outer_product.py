"""The micro-kernel: a tile of C in registers over a chunk of the reduction.

    C[rows, cols] = relu?( (C | 0) + bias? + sum over taps, k of A[rows, tap, k] * B[tap, k, cols] )

Outer products of a column of A (broadcast, one element at a time) with a row of B
(vectors), as in Goto and van de Geijn, Anatomy of High-Performance Matrix
Multiplication (ACM TOMS 34(3), 2008). The accumulators are phis over the reduction
loop, so they never leave registers; C is written once, and read only to accumulate, then.
A matmul has one tap; a convolution reads the image in place, tap by tap.

A panel of B can be packed while its first tile of rows is computed: its rows are in
registers then, and copying them takes stores alone, for which the multiply-adds leave room
(Yang et al., LibShalom: Optimizing Small and Irregular-Shaped Matrix Multiplications on
ARMv8 Multi-Cores, SC 2021). That needs words that are packed as they lie.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.instructions import Form
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import branch
from tilewise.kernels.native.ir.vectors import ELEMENTS, Value, Vectors, const, internal_function
from tilewise.kernels.native.microkernels.abi import ARGUMENTS, Arguments
from tilewise.kernels.native.microkernels.outer_product_spec import (
    OuterProductSpec,
    outer_product_spec,
)
from tilewise.kernels.native.microkernels.reduction import Reduction
from tilewise.kernels.native.microkernels.specs import Piece, packs_of_a
from tilewise.kernels.native.microkernels.tile_of_c import TileOfC
from tilewise.kernels.native.microkernels.use import ANYHOW, Cut, Use
from tilewise.kernels.native.packing.panels import (
    emit_copy_patches,
    emit_pack_panel,
    emit_transpose_panel,
)
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import Nest
from tilewise.kernels.target.model import Target


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

    form: ClassVar[Form] = Form.OUTER_PRODUCT

    @classmethod
    def serves(cls, nest: Nest) -> bool:
        """Return whether the reduction is in one piece."""
        return nest.compute.lanes == 1 and not nest.is_macro

    @classmethod
    def of(cls, nest: Nest, target: Target, strides: Strides, how: Arithmetic) -> Self:
        """Return the one that a nest asks for; LoweringError for what the target has not."""
        spec, b = outer_product_spec(nest, target, strides, how), nest.operand("B")
        return cls(spec, strides.b.is_transposed, b.scale(nest.col) if b.is_gathered else 0)

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
    return _emit(fn, spec)


def emit_edge_outer_product(module: ir.Module, spec: OuterProductSpec, cut: Cut) -> ir.Function:
    """Add the micro-kernel for tiles of any rows <= MR, any cols <= NR, or both, as `cut` says."""
    fn = internal_function(module, "tilewise_kernel_edge", len(ARGUMENTS))
    return _emit(fn, spec, cut)


def emit_filling_outer_product(module: ir.Module, spec: OuterProductSpec) -> ir.Function:
    """Add the micro-kernel of a panel's first whole tile: it reads B in place and packs it."""
    fn = internal_function(module, "tilewise_kernel_filling", len(ARGUMENTS))
    return _emit(fn, spec, fills=True)


def _emit(
    fn: ir.Function, spec: OuterProductSpec, cut: Cut = "", fills: bool = False
) -> ir.Function:
    """The whole function; one vector of columns alone where no more of them are left."""
    builder, arg = Builder(fn.append_basic_block("entry")), Arguments[Value](*fn.args)
    tile = TileOfC.begin(builder, spec, arg, cut)
    offsets = [builder.mul(index, const(spec.a_row)) for index in tile.row_index]
    words, words_of_a = (
        Vectors(builder, ELEMENTS[name], spec.lanes) for name in (spec.how.word, spec.how.word_of_a)
    )

    def compute(vectors: int, nothing: list[Value]) -> list[Value]:
        """The tile's first `vectors` vectors of columns; carries no value."""
        part = tile.narrowed(vectors)
        reduction = Reduction(builder, spec, arg, words, words_of_a, part, offsets, fills)
        c_rows = part.rows_of_c()
        part.finish(reduction.reduce(part.initial()), c_rows)
        return nothing

    if "cols" in cut and spec.vectors > 1:
        narrow = builder.icmp_signed("<=", arg.cols, const(spec.lanes))
        branch(builder, narrow, partial(compute, 1), [], partial(compute, spec.vectors))
    else:
        compute(spec.vectors, [])
    builder.ret_void()
    return fn
