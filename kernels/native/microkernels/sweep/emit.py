"""The code of a sweep: a chunk of rows of B times its columns of A, added to all columns of C.

    C[rows, cols] = relu?( (C | 0) + bias? + sum over the chunk's k of A[rows, k] * B[k, cols] )

One register tile of rows comes after the other, and finds the chunk of B in a cache from the second
on. Rows of B lie where they lie: elements of neighbouring rows are joined to words in registers, in
whole vectors once for all tiles. Where bytes are multiplied, B is made unsigned on the way, and a
correction by the sum of A starts the sums.
"""

from dataclasses import replace

from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import Loop, Transform, branch
from tilewise.kernels.native.ir.vectors import Value, const, internal_function
from tilewise.kernels.native.microkernels.abi import SWEEP_ARGUMENTS, SweepArguments
from tilewise.kernels.native.microkernels.sweep.column_groups import ColumnGroups
from tilewise.kernels.native.microkernels.sweep.row_tile import RowTile
from tilewise.kernels.native.microkernels.sweep.spec import SweepSpec


def emit_sweep(module: ir.Module, spec: SweepSpec, is_whole: bool) -> ir.Function:
    """Add the micro-kernel for whole chunks, or the one for what is left of the reduction."""
    name = "full" if is_whole else "edge"
    fn = internal_function(module, f"tilewise_kernel_{name}", len(SWEEP_ARGUMENTS))
    builder = Builder(fn.append_basic_block("entry"))
    arg: SweepArguments[Value] = SweepArguments(*fn.args)
    if spec.all_rows == spec.rows:
        RowTile(builder, spec, arg, const(0), is_whole).prepare().emit()
    elif is_whole and spec.shares_words:
        _emit_column_groups(builder, spec, arg)
    else:
        _emit_row_tiles(builder, spec, arg, is_whole)
    builder.ret_void()
    return fn


def _emit_column_groups(builder: Builder, spec: SweepSpec, arg: SweepArguments[Value]) -> None:
    """Groups of columns, whose words all tiles share; then each tile's columns behind them."""
    whole = ColumnGroups(builder, spec, arg).emit()

    def rest(nothing: list[Value]) -> list[Value]:
        later = replace(spec, fetch=None)
        _emit_row_tiles(builder, later, arg, is_whole=True, behind=whole)
        return nothing

    branch(builder, builder.icmp_signed(">", arg.cols, whole), rest, [])


def _emit_row_tiles(
    builder: Builder,
    spec: SweepSpec,
    arg: SweepArguments[Value],
    is_whole: bool,
    behind: Value | None = None,
) -> None:
    """The register tiles of a block; the first one prefetches, and the last may be cut off.

    They compute all columns, or those `behind` so many.
    """
    rest = builder.srem(arg.rows, const(spec.rows))
    whole = builder.sub(arg.rows, rest)
    later = replace(spec, fetch=None)

    def tile(spec: SweepSpec, row: Value) -> Transform:
        def emit(nothing: list[Value]) -> list[Value]:
            tile = RowTile(builder, spec, arg, row, is_whole).prepare()
            if behind is None:
                tile.emit()
            else:
                tile.emit_from(behind)
            return nothing

        return emit

    first = const(spec.rows if spec.fetch else 0)
    if spec.fetch:
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
