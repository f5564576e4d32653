"""What the code of an inner-product micro-kernel depends on, from a schedule with a split step."""

from dataclasses import dataclass

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.microkernels.abi import ADD_BIAS, RELU, epilogue_flags
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import Nest
from tilewise.kernels.target.model import Target


@dataclass(frozen=True)
class InnerProductSpec:
    """All that the code of an inner-product micro-kernel depends on.

    Attributes:
        how: the arithmetic, of a split reduction.
        rows, cols: the register tile, in elements of C.
        lanes: elements of an accumulator vector.
        vectors: accumulators of one element of C.
        unroll: times that all accumulators are added to in one iteration.
        a_row: elements between rows of A.
        b_col: elements between columns of B; 0 where they are packed, `depth` apart.
        at_once: whether all elements of the tile are summed side by side, not row by row.
        ahead: which operand is prefetched; empty for neither.
        c_down: whether the rows of C are neighbours in memory, C being one column.
        epilogue: which of `ADD_BIAS` and `RELU` a call may ask for, and `CEILING`.
    """

    how: Arithmetic
    rows: int
    cols: int
    lanes: int
    vectors: int
    unroll: int
    a_row: int
    b_col: int
    at_once: bool
    ahead: str
    c_down: bool
    epilogue: int = ADD_BIAS | RELU

    @property
    def span(self) -> int:
        """Elements of the reduction in one vector load."""
        return self.lanes * self.how.instruction.k

    def steps(self, multiply_adds: int) -> int:
        """Steps of the reduction that so many vector multiply-adds take."""
        return multiply_adds * self.span // (self.rows * self.cols)


def inner_product_spec(
    nest: Nest, target: Target, strides: Strides, how: Arithmetic
) -> InnerProductSpec:
    """Return the inner-product micro-kernel that a nest with a split reduction asks for.

    Raises:
        LoweringError: partial sums that are no whole vectors of the target.
    """
    tile, compute, dtype = nest.tile, nest.compute, nest.problem.element.name
    lanes = target.lanes(dtype)
    if compute.lanes % lanes:
        raise LoweringError(
            f"step split: lanes={compute.lanes} is not a multiple of the "
            f"{lanes} {dtype} lanes of {target.cpu}"
        )
    sums = compute.lanes // lanes * tile.cols * tile.rows
    at_once = sums + tile.cols + 1 <= target.vector_registers
    is_wide = nest.extent(nest.row) < nest.extent(nest.col)
    return InnerProductSpec(
        how=how,
        rows=tile.rows,
        cols=tile.cols,
        lanes=lanes,
        vectors=compute.lanes // lanes,
        unroll=compute.unroll,
        a_row=strides.words.a_row,
        b_col=0 if nest.stage("B") else strides.b.dims[nest.col],
        at_once=at_once,
        ahead="" if at_once and tile.rows * tile.cols > 1 else "ab"[is_wide],
        c_down=tile.cols == 1 and strides.c[nest.row] == 1,
        epilogue=epilogue_flags(nest.store),
    )
