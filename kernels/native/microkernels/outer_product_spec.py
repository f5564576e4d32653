"""What the code of an outer-product micro-kernel depends on, from a schedule without a split."""

from dataclasses import dataclass
from math import prod

from tilewise.kernels.arithmetic import Arithmetic, size_of
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.microkernels.abi import ADD_BIAS, RELU, epilogue_flags
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import Fetch, Fetched, Nest
from tilewise.kernels.problem import Problem
from tilewise.kernels.target.model import Target

STEPS_FOR_LINE = 4
"""Steps of the reduction in which a call fetches a line of its tile of C.

On Emerald Rapids as many lines of the last cache as a tile has take the time of 25 steps.
"""

SUMS_BESIDE_A_LINE = 16
"""Multiply-adds of a step from which on the instructions that find a line of C cost no time."""


@dataclass(frozen=True)
class OuterProductSpec:
    """All that the code of an outer-product micro-kernel depends on.

    Attributes:
        how: the arithmetic; it says what a word is.
        rows: register rows MR.
        vectors: register columns NV, in vectors.
        lanes: elements of a vector.
        unroll: steps of the reduction in one iteration.
        a_row: words between rows of A (constant: it folds into addresses).
        a_step: words of A between steps of the reduction; 1 unless A is transposed.
        b_row: words between steps of B: a panel's row if packed, else a row of B itself.
        b_packed: whether B is in zero-filled panels, so that loads need no mask at an edge.
        taps: whether there is a loop over filter taps.
        prefetched: lines of a row of B's next block to fetch in every unrolled iteration.
        fetch: what is prefetched; None for nothing.
        fetch_offset: bytes from where the driver says a panel is fetched to where it is.
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
    taps: bool
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

    def steps(self, multiply_adds: int) -> int:
        """Steps of the reduction that so many vector multiply-adds take."""
        return multiply_adds // (self.rows * self.vectors * self.how.multiply_adds)

    @property
    def lines_of_c(self) -> int:
        """Cache lines of a row of the tile of C, as a power of two."""
        return _lines_of_c(self.cols, size_of(self.how.accumulator))

    @property
    def registers(self) -> int:
        """Vector registers that one step needs: accumulators, a row of B, a splat of A."""
        return self.rows * self.vectors + self.vectors + 1


def outer_product_spec(
    nest: Nest, target: Target, strides: Strides, how: Arithmetic
) -> OuterProductSpec:
    """Return the outer-product micro-kernel that a nest asks for.

    Raises:
        LoweringError: register columns that are no whole vectors of the target.
    """
    problem, tile, compute = nest.problem, nest.tile, nest.compute
    lanes = target.lanes(problem.element.name)
    fetch = next(iter(nest.fetches), None)
    looks_on = fetch is not None and fetch.what is Fetched.NEXT_BLOCK
    if tile.cols % lanes:
        raise LoweringError(
            f"step register: cols={tile.cols} is not a multiple of the "
            f"{lanes} {problem.element.name} lanes of {target.cpu}"
        )
    return OuterProductSpec(
        how=how,
        rows=tile.rows,
        vectors=tile.cols // lanes,
        lanes=lanes,
        unroll=compute.unroll,
        a_row=strides.words.a_row,
        a_step=strides.words.a_step,
        b_row=strides.words.b_row,
        b_packed=nest.stage("B") is not None,
        taps=strides.taps.rows * strides.taps.cols > 1,
        prefetched=_lines_fetched(nest, strides) if looks_on else 0,
        fetch=fetch,
        bias_rows=nest.row in strides.bias,
        filled_row=strides.words.filled_row,
        spreads_c=_spreads_c(nest, how, lanes),
        epilogue=epilogue_flags(nest.store),
    )


def lines_of_a_row(problem: Problem, cols: int, strides: Strides) -> int:
    """Cache lines that a panel's part of one row of B may lie in."""
    lines = -(-cols * problem.element.bytes // LINE_BYTES)
    row = strides.b.stream * problem.element.bytes
    return lines + (row % LINE_BYTES > 0)


def _lines_fetched(nest: Nest, strides: Strides) -> int:
    """Return the fewest lines of each iteration with which a block's calls fetch the next block.

    Each line takes one of the few places for lines under way to the first cache, until the last
    cache has given it. A whole row at once fills them, and what the iteration reads waits.
    """
    tiles = prod(-(-nest.part(dim) // nest.unit(dim)) for dim in nest.rows)
    lines = lines_of_a_row(nest.problem, nest.tile.cols, strides)
    return min(lines, -(-lines * nest.compute.unroll // tiles))


def _spreads_c(nest: Nest, how: Arithmetic, lanes: int) -> bool:
    """Return whether a call has steps enough, and a step room enough, to fetch C line by line.

    Products of transformed operands are in L2 anyway.
    """
    tile = nest.tile
    sums = tile.rows * tile.cols // lanes
    if nest.algorithm or sums < SUMS_BESIDE_A_LINE:
        return False
    lines = tile.rows * _lines_of_c(tile.cols, size_of(how.accumulator))
    return nest.depth // how.depth * nest.taps >= STEPS_FOR_LINE * lines


def _lines_of_c(cols: int, size: int) -> int:
    lines = -(-cols * size // LINE_BYTES)
    return 1 << (lines - 1).bit_length()
