"""The micro-kernel of results with few rows, such as a vector times a matrix.

    C[rows, cols] = relu?( (C | 0) + bias? + sum over the chunk's k of A[rows, k] * B[k, cols] )

B is read once and hardly used, so how it streams by decides. Register tiles would go down its
columns, a stripe of lines in every row; here several whole rows are read in parallel, each from one
end to the other, and the sums of all columns stay in the first cache, which takes a load and a
store for every chunk of rows. Few long streams are what prefetchers follow and what a page of
memory holds; with 16 or more, a power of two apart, they collapse.

With more rows than a register tile has, one tile comes after the other: the chunk of B is read
again for each, from a cache, and joined to words again, which still costs less than packs that are
used once. Words that whole vectors are joined to are joined once for all tiles.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from llvmlite import ir

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.instructions import Form
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import CountedLoop
from tilewise.kernels.native.ir.vectors import Value, const
from tilewise.kernels.native.microkernels.abi import SkinnyGemmArguments, epilogue_flags
from tilewise.kernels.native.microkernels.building_blocks import (
    begin_kernel,
    run_if,
    run_if_any,
    vectors_of_tile,
)
from tilewise.kernels.native.microkernels.microkernel import ANY_USE, Piece, Use
from tilewise.kernels.native.microkernels.skinny_products import SkinnyGemmSpec
from tilewise.kernels.native.microkernels.skinny_tiles import ColumnGroups, RowTile
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import Nest
from tilewise.kernels.target.model import Target


@dataclass(frozen=True)
class SkinnyGemm:
    """The micro-kernel of a schedule with a `skinny` step.

    Attributes:
        spec: what its code depends on.
    """

    spec: SkinnyGemmSpec

    form: ClassVar[Form] = Form.SKINNY

    @classmethod
    def serves(cls, nest: Nest) -> bool:
        """Return whether rows of B are read whole."""
        return nest.is_skinny

    @classmethod
    def of(cls, nest: Nest, target: Target, strides: Strides, how: Arithmetic) -> Self:
        """Return the one for a nest.

        Raises:
            LoweringError: the columns are not whole vectors of the target, or the depth is not a
                whole number of words; several streams of joined words whose factors of A do not fit
                the registers.
        """
        problem, tile, k_block = nest.problem, nest.tile, nest.k_block
        assert k_block is not None
        vectors, depth = vectors_of_tile(nest, target), k_block.step
        if depth % how.depth:
            raise LoweringError(
                f"{problem}: a k-block of {depth} rows of B is no multiple of the "
                f"{how.depth} elements that are multiplied at once"
            )
        whole = nest.extent(nest.k) // depth * depth
        spec = SkinnyGemmSpec(
            how=how,
            all_rows=nest.extent(nest.row),
            rows=tile.rows,
            vectors=vectors,
            lanes=tile.cols // vectors,
            depth=depth,
            streams=k_block.streams,
            whole=whole if k_block.streams > 1 or how.offset else 0,
            a_row=strides.a.dims[nest.row],
            b_row=strides.b.stream,
            registers=target.vector_registers,
            epilogue=epilogue_flags(nest.store),
            fetch=next(iter(nest.fetches), None),
        )
        if spec.streams > 1 and how.depth > 1 and not spec.holds_a:
            raise LoweringError(
                f"{problem}: {spec.words} words of {spec.rows} rows of A, gathered from "
                f"{spec.streams} streams, do not fit the {spec.registers} registers of "
                f"{target.cpu} with the sums; stream fewer rows at once, or drop the step "
                "k_streams"
            )
        return cls(spec)

    def pieces(self, use: Use = ANY_USE) -> dict[str, Piece]:
        """Return those for whole chunks, and for what is left of the reduction."""
        return {
            name: Piece(f"{name} skinny", (self.spec, whole), emit_skinny_gemm, is_as_written=True)
            for name, whole in (("full", True), ("edge", False))
        }


def emit_skinny_gemm(module: ir.Module, spec: SkinnyGemmSpec, is_whole: bool) -> ir.Function:
    """Add the micro-kernel for whole chunks, or the one for what is left of the reduction."""
    fn, builder, arg = begin_kernel(module, "full" if is_whole else "edge", SkinnyGemmArguments)
    if spec.all_rows == spec.rows:
        RowTile(builder, spec, arg, const(0), is_whole).prepare().emit()
    elif is_whole and spec.shares_words:
        whole = ColumnGroups(builder, spec, arg).emit()
        later = replace(spec, fetch=None)
        run_if(
            builder,
            builder.icmp_signed(">", arg.cols, whole),
            lambda: _emit_row_tiles(builder, later, arg, is_whole, behind=whole),
        )
    else:
        _emit_row_tiles(builder, spec, arg, is_whole)
    builder.ret_void()
    return fn


def _emit_row_tiles(
    builder: Builder,
    spec: SkinnyGemmSpec,
    arg: SkinnyGemmArguments[Value],
    is_whole: bool,
    behind: Value | None = None,
) -> None:
    """The register tiles of a block; the first one prefetches, and the last may be cut off.

    They compute all columns, or those `behind` so many.
    """
    rest = builder.srem(arg.rows, const(spec.rows))
    whole = builder.sub(arg.rows, rest)
    later = replace(spec, fetch=None)

    def tile(spec: SkinnyGemmSpec, row: Value) -> None:
        tile = RowTile(builder, spec, arg, row, is_whole).prepare()
        if behind is None:
            tile.emit()
        else:
            tile.emit_from(behind)

    def loop_over_tiles() -> None:
        loop = CountedLoop(builder, (), "rows")
        tile(later, builder.add(loop.index, first))
        loop.close((), builder.sub(whole, first), spec.rows)

    first = const(spec.rows if spec.fetch else 0)
    if spec.fetch:
        run_if_any(builder, whole, lambda: tile(spec, const(0)))
    run_if(builder, builder.icmp_signed(">", whole, first), loop_over_tiles)
    if spec.all_rows % spec.rows:
        last = replace(later, rows=spec.all_rows % spec.rows)
        run_if_any(builder, rest, lambda: tile(last, whole))
