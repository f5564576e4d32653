"""What the code of an outer-product micro-kernel depends on, from a schedule without a split."""

from dataclasses import dataclass

from kernels.arithmetic import Arithmetic, arithmetic_of
from kernels.errors import LoweringError
from kernels.native.ir.vectors import LINE_BYTES
from kernels.native.microkernels.abi import ADD_BIAS, RELU, epilogue_flags
from kernels.native.strides import Strides
from kernels.problem import Problem
from kernels.problem.iteration import is_packed_ahead, iteration_space
from kernels.schedule import Schedule
from kernels.target.model import Target


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
        fma: whether the target fuses multiply and add.
        prefetched: lines of the next block of B to fetch in every unrolled iteration.
        streams_ahead: whether panels of B that lie one behind the other are fetched further on.
        near_bytes: of a panel that one call reads, how far ahead it fetches to the first cache; 0
            where panels are fetched to the second, as far ahead as the driver says.
        bias_rows: whether the bias has an element for each row, not for each column.
        filled_row: words between rows of B in place, where a panel is packed while its first
            tile of rows is computed; 0 where it is packed before.
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
    fma: bool = True
    prefetched: int = 0
    streams_ahead: bool = False
    near_bytes: int = 0
    bias_rows: bool = False
    filled_row: int = 0
    epilogue: int = ADD_BIAS | RELU

    @property
    def cols(self) -> int:
        """Register columns NR in elements."""
        return self.vectors * self.lanes

    def steps(self, multiply_adds: int) -> int:
        """Steps of the reduction that so many vector multiply-adds take."""
        return multiply_adds // (self.rows * self.vectors * self.how.multiply_adds)

    @property
    def registers(self) -> int:
        """Vector registers that one step needs: accumulators, a row of B, a splat of A."""
        return self.rows * self.vectors + self.vectors + 1


def outer_product_spec(
    problem: Problem, schedule: Schedule, target: Target, strides: Strides
) -> OuterProductSpec:
    """The micro-kernel that a schedule without a split step asks for.

    Raises:
        LoweringError: register columns that are no whole vectors of the target.
    """
    register, lanes = schedule.register, target.lanes(problem.element.name)
    space = iteration_space(problem)
    in_panels = schedule.transforms or is_packed_ahead(problem, "B", space)
    fetches_block = schedule.prefetches and not in_panels
    if register.cols % lanes:
        raise LoweringError(
            f"step '{register}': cols={register.cols} is not a multiple of the "
            f"{lanes} {problem.element.name} lanes of {target.cpu}"
        )
    return OuterProductSpec(
        how=arithmetic_of(problem, target),
        rows=register.rows,
        vectors=register.cols // lanes,
        lanes=lanes,
        unroll=schedule.unroll,
        a_row=strides.words.a_row,
        a_step=strides.words.a_step,
        b_row=strides.words.b_row,
        b_packed=schedule.packs("B"),
        taps=strides.taps.rows * strides.taps.cols > 1,
        fma=target.has_fma,
        prefetched=_lines_of_a_row(problem, register.cols) if fetches_block else 0,
        streams_ahead=schedule.prefetches and in_panels,
        bias_rows=space.row in strides.bias,
        filled_row=strides.words.filled_row,
        epilogue=epilogue_flags(problem),
    )


def _lines_of_a_row(problem: Problem, cols: int) -> int:
    """Cache lines of one row of a panel's source."""
    return -(-cols * problem.element.bytes // LINE_BYTES)
