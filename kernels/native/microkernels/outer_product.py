"""The micro-kernel of a schedule without a split step, and the packs that feed it."""

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Self

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.instructions import Form
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.microkernels.abi import epilogue_flags
from tilewise.kernels.native.microkernels.building_blocks import vectors_of_tile
from tilewise.kernels.native.microkernels.microkernel import (
    ANY_USE,
    KernelSpec,
    Piece,
    Use,
    packs_of_a,
)
from tilewise.kernels.native.microkernels.outer_product_code import (
    STEPS_FOR_LINE,
    OuterProductSpec,
    emit_edge_outer_product,
    emit_filling_outer_product,
    emit_outer_product,
    lines_of_c,
)
from tilewise.kernels.native.packing.panels import (
    emit_copy_patches,
    emit_pack_panel,
    emit_transpose_panel,
)
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import Fetched, Nest
from tilewise.kernels.problem import Problem
from tilewise.kernels.target.model import Target

LEAST_SUMS_PER_LINE = 16
"""Multiply-adds of a step from which on the instructions that find a line of C cost no time."""


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
        """Return the one for a nest; LoweringError where it needs what the target lacks."""
        spec, b = outer_product_spec(nest, target, strides, how), nest.operand("B")
        return cls(spec, strides.b.is_transposed, nest.problem.strides[-1] if b.is_gathered else 0)

    def pieces(self, use: Use = ANY_USE) -> dict[str, Piece]:
        """Return its functions as they are used; where no tile is cut, `edge` takes all."""
        # Without what the code of these two does not depend on, so that more schedules share it.
        spec = replace(self.spec, filled_row=0)
        edge = (_as_used(spec, "edge", use), use.cut or ANY_USE.cut)
        made = {
            "full": Piece("full", (spec,), emit_outer_product, is_as_written=True),
            "edge": Piece("edge", edge, emit_edge_outer_product, is_as_written=True),
            **packs_of_b(spec, self.packs_transposed, self.patch_stride),
            **packs_of_a(spec),
        }
        if self.spec.filled_row and not self.patch_stride:
            filling = (_as_used(self.spec, "filling", use),)
            made["filling"] = Piece("filling", filling, emit_filling_outer_product, True)
        return made


def packs_of_b(
    spec: KernelSpec, is_transposed: bool, patch_stride: int, tile_rows: int = 0
) -> dict[str, Piece]:
    """Return the pack of a panel of B, and the copy of patches where packing gathers them.

    With `tile_rows` the vectors of so many rows of a panel are matrix tiles.
    """
    given = (spec.how, spec.lanes, spec.cols // spec.lanes)
    straight = Piece("panel of b", (*given, False, tile_rows), emit_pack_panel)
    transposed = Piece("transposed panel of b", (*given, tile_rows), emit_transpose_panel)
    made = {"pack_b_panel": transposed if is_transposed else straight}
    if patch_stride:
        patches = (spec.how, spec.lanes, patch_stride)
        made["copy_patches"] = Piece("patches", patches, emit_copy_patches)
    return made


def _as_used(spec: OuterProductSpec, name: str, use: Use) -> OuterProductSpec:
    """The spec of a micro-kernel that may be rarely called.

    One that prefetches stays as it is: the macro-kernel counts what each of its iterations fetches.
    """
    return replace(spec, unroll=1) if name in use.rare and not spec.prefetched else spec


def outer_product_spec(
    nest: Nest, target: Target, strides: Strides, how: Arithmetic
) -> OuterProductSpec:
    """Return the outer-product micro-kernel for a nest.

    Raises:
        LoweringError: the register columns are not whole vectors of the target.
    """
    vectors, tile, compute = vectors_of_tile(nest, target), nest.tile, nest.compute
    fetch = next(iter(nest.fetches), None)
    fetches_block = fetch is not None and fetch.what is Fetched.NEXT_BLOCK
    return OuterProductSpec(
        how=how,
        rows=tile.rows,
        vectors=vectors,
        lanes=tile.cols // vectors,
        unroll=compute.unroll,
        a_row=strides.words.a_row,
        a_step=strides.words.a_step,
        b_row=strides.words.b_row,
        b_packed=nest.stage("B") is not None,
        taps=strides.taps.loops,
        prefetched=_lines_fetched(nest, strides) if fetches_block else 0,
        fetch=fetch,
        bias_rows=nest.row in strides.bias,
        filled_row=strides.words.filled_row,
        spreads_c=_spreads_c(nest, how, vectors),
        epilogue=epilogue_flags(nest.store),
    )


def lines_of_a_row(problem: Problem, cols: int, strides: Strides) -> int:
    """Return the cache lines that a panel's part of one row of B may be in."""
    lines = -(-cols * problem.element.bytes // LINE_BYTES)
    row = strides.b.stream * problem.element.bytes
    return lines + (row % LINE_BYTES > 0)


def _lines_fetched(nest: Nest, strides: Strides) -> int:
    """The fewest lines of each iteration with which a block's calls fetch the next block.

    Each line takes one of the few places for lines under way to the first cache, until the last
    cache has given it. A whole row at once fills them, and what the iteration reads waits.
    """
    tiles = prod(-(-nest.part(dim) // nest.unit(dim)) for dim in nest.rows)
    lines = lines_of_a_row(nest.problem, nest.tile.cols, strides)
    return min(lines, -(-lines * nest.compute.unroll // tiles))


def _spreads_c(nest: Nest, how: Arithmetic, vectors: int) -> bool:
    """Whether a call has enough steps, and a step enough products, to fetch C line by line.

    Products of transformed operands are in L2 anyway.
    """
    tile = nest.tile
    if nest.algorithm or tile.rows * vectors < LEAST_SUMS_PER_LINE:
        return False
    lines = tile.rows * lines_of_c(tile.cols, how)
    return nest.depth // how.depth * nest.taps >= STEPS_FOR_LINE * lines
