"""What the code of a micro-kernel depends on, from a schedule without a split step."""

from dataclasses import dataclass

from kernels.arithmetic import Arithmetic, arithmetic
from kernels.errors import LoweringError
from kernels.native.ir.vectors import LINE_BYTES
from kernels.native.strides import Strides
from kernels.problem import Conv2d, Problem
from kernels.problem.iteration import iteration_space
from kernels.schedule import Schedule
from kernels.target.model import Target

LOAD_C, ADD_BIAS, RELU = 1, 2, 4

# Positions of the i64 arguments: addresses, strides in words (of C: elements), sizes, the
# address of the correction that an offset A needs, or of the panel to fill, and where the
# next block of B lies with the bytes between its rows.
ARGUMENTS = (
    "a", "b", "c", "bias",
    "c_row", "a_tap_row", "a_tap_col", "b_tap",
    "tap_rows", "tap_cols", "depth", "flags", "rows", "cols", "beside", "ahead", "ahead_step",
)  # fmt: skip


@dataclass(frozen=True)
class MicroKernelSpec:
    """All that a micro-kernel's code depends on.

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
        b_transposed: whether packing B transposes it.
        prefetched: lines of the next block of B to fetch in every unrolled iteration.
        bias_rows: whether the bias has an element for each row, not for each column.
        patch_stride: image columns between neighbouring patches where packing B gathers
            them; 0 where B is a matrix.
        filled_row: words between rows of B in place, where a panel is packed while its first
            tile of rows is computed; 0 where it is packed before.
        epilogue: which of `ADD_BIAS` and `RELU` a call may ask for.
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
    b_transposed: bool = False
    prefetched: int = 0
    bias_rows: bool = False
    patch_stride: int = 0
    filled_row: int = 0
    epilogue: int = ADD_BIAS | RELU

    @property
    def cols(self) -> int:
        """Register columns NR in elements."""
        return self.vectors * self.lanes

    def steps(self, multiply_adds: int) -> int:
        """Steps of the reduction that so many vector multiply-adds take."""
        return multiply_adds // (self.rows * self.vectors)

    @property
    def registers(self) -> int:
        """Vector registers that one step needs: accumulators, a row of B, a splat of A."""
        return self.rows * self.vectors + self.vectors + 1


def microkernel_spec(
    problem: Problem, schedule: Schedule, target: Target, strides: Strides
) -> MicroKernelSpec:
    """The micro-kernel that a schedule without a split step asks for.

    Raises:
        LoweringError: register columns that are no whole vectors of the target.
    """
    register, lanes = schedule.register, target.lanes(problem.element.name)
    space = iteration_space(problem)
    if register.cols % lanes:
        raise LoweringError(
            f"step '{register}': cols={register.cols} is not a multiple of the "
            f"{lanes} {problem.element.name} lanes of {target.cpu}"
        )
    return MicroKernelSpec(
        how=arithmetic(problem.element.name, target),
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
        b_transposed=strides.b.is_transposed,
        prefetched=_lines_of_a_row(problem, register.cols) if schedule.prefetches else 0,
        bias_rows=space.row in strides.bias,
        filled_row=strides.words.filled_row,
        patch_stride=problem.stride if isinstance(problem, Conv2d) and space.patches else 0,
        epilogue=epilogue_flags(problem),
    )


def epilogue_flags(problem: Problem) -> int:
    """Which of `ADD_BIAS` and `RELU` the problem asks for."""
    has_bias = problem.has_bias
    has_relu = problem.has_relu
    return ADD_BIAS * has_bias | RELU * has_relu


def _lines_of_a_row(problem: Problem, cols: int) -> int:
    """Cache lines of one row of a panel's source."""
    return -(-cols * problem.element.bytes // LINE_BYTES)
