"""Where each element lies: strides of operands in place and packed, for both operations.

The driver and the micro-kernel see a matmul and a convolution alike through this:
a row of the result moves A by a stride, a chunk of the reduction starts at an
offset, and a convolution adds taps.
"""

from dataclasses import dataclass, replace

from kernels.arithmetic import Arithmetic, must_pack, size_of
from kernels.errors import LoweringError
from kernels.loopnest import Nest
from kernels.native.ir.vectors import LINE_BYTES
from kernels.problem import Conv2d, Matmul, Problem
from kernels.problem.iteration import is_packed_by_rows
from kernels.schedule import Schedule


@dataclass(frozen=True)
class Geometry:
    """Strides: of operands in place in stored elements, of panels in packed elements.

    Attributes:
        a_dims: what one step along each row dim (or batch) moves A by, in place.
        b_dims: the same for B.
        c_dims: the same for C.
        bias_dims: what one step along each dim that the bias has moves it by.
        a_stream, b_stream: what one step of the reduction moves A and B by, in place.
        a_row, a_step, b_row: the micro-kernel's constant strides, in words.
        a_tap_row, a_tap_col: what one filter row or column moves the image by, in words.
        b_tap_source: what one filter tap moves B by in place.
        tap_rows, tap_cols: the micro-kernel's tap loops.
        depth_factor: 1, or kw where (kw, ci) are contiguous and fold into one reduction.
        filled_row: b_row of B in place, where the micro-kernel packs a panel in passing.
        packed_row: between rows (pixels) of packed A; between steps if A is transposed.
        packed_a_dims: what one step along m, oh, ow moves packed A by.
        a_transposed, b_transposed: whether the reduction is not the contiguous dim of A,
            or is that of B.
    """

    a_dims: dict[str, int]
    b_dims: dict[str, int]
    c_dims: dict[str, int]
    bias_dims: dict[str, int]
    a_stream: int
    b_stream: int
    a_row: int
    a_step: int
    b_row: int
    packed_row: int
    packed_a_dims: dict[str, int]
    a_tap_row: int = 0
    a_tap_col: int = 0
    b_tap_source: int = 0
    tap_rows: int = 1
    tap_cols: int = 1
    depth_factor: int = 1
    a_transposed: bool = False
    b_transposed: bool = False
    filled_row: int = 0


def geometry(problem: Problem, schedule: Schedule, nest: Nest, how: Arithmetic) -> Geometry:
    """The strides for `schedule` on `problem`.

    Raises:
        LoweringError: an operand that the arithmetic cannot read in place is not packed.
    """
    _check_packs(problem, schedule, nest, how)
    strides = _strides(problem, schedule, nest, how)
    if _fills_panels(problem, schedule, how):
        return replace(strides, filled_row=strides.b_stream)
    return strides


def _strides(problem: Problem, schedule: Schedule, nest: Nest, how: Arithmetic) -> Geometry:
    if isinstance(problem, Matmul):
        return _matmul(problem, schedule, nest, how)
    assert isinstance(problem, Conv2d)
    if nest.space.image == "B":
        return _patches(problem, schedule, nest, how)
    return _conv2d(problem, schedule, nest, how)


def _fills_panels(problem: Problem, schedule: Schedule, how: Arithmetic) -> bool:
    """Whether rows of B in registers are what the panels hold, so that they can be stored."""
    as_it_lies = is_packed_by_rows(problem) and not (how.packs_b or how.split)
    return schedule.packs("B") and as_it_lies


def _check_packs(problem: Problem, schedule: Schedule, nest: Nest, how: Arithmetic) -> None:
    for operand in sorted(must_pack(problem, how)):
        if not schedule.packs(operand):
            raise LoweringError(
                f"{problem}: {operand} cannot be read in place on this target; "
                f"add the step pack operand={operand}"
            )
    rows_apart = problem.operand_shapes["A"][-1] > 1 or schedule.packs("A")
    if how.split and problem.has_transposed_a and rows_apart:
        raise LoweringError(
            f"{problem}: a split reduction needs contiguous rows of A, and those of a "
            "transposed A are not, even packed; drop the step split"
        )
    extent = nest.space.extent(nest.space.stream)
    chunk = nest.kernel.depth
    if chunk != extent and chunk % how.depth:
        raise LoweringError(
            f"{problem}: a chunk of depth {chunk} is no multiple of the {how.depth} elements "
            "that are multiplied at once"
        )


def _odd_lines(elements: int, size: int) -> int:
    """The least stride of an odd number of cache lines that holds `elements`.

    Rows a power of two apart share a cache set; an odd number of lines visits them all.
    """
    lines = -(-elements * size // LINE_BYTES)
    return (lines | 1) * LINE_BYTES // size


def _matmul(problem: Matmul, schedule: Schedule, nest: Nest, how: Arithmetic) -> Geometry:
    m, n, k = problem.m, problem.n, problem.k
    packs_a = schedule.packs("A")
    if problem.transpose_a:
        rows = next((c.shape[0] for c in nest.copies if c.operand == "A"), 0)
        lanes = LINE_BYTES // size_of(how.word)
        packed_row = _odd_lines(-(-rows // lanes) * lanes, size_of(how.word)) * how.depth
        a_row, a_step = 1, packed_row // how.depth if packs_a else m
        packed_dims = {"m": how.depth}
    else:
        packed_row = _odd_lines(nest.kernel.depth, size_of(how.packed))
        a_row, a_step = (packed_row if packs_a else k) // how.depth, 1
        packed_dims = {"m": packed_row}
    return Geometry(
        a_dims={"batch": m * k, "m": 1 if problem.transpose_a else k},
        b_dims={"batch": k * n, "n": k if problem.transpose_b else 1},
        c_dims={"batch": m * n, "m": n, "n": 1},
        bias_dims={"n": 1},
        a_stream=m if problem.transpose_a else 1,
        b_stream=1 if problem.transpose_b else n,
        a_row=a_row,
        a_step=a_step,
        b_row=nest.kernel.cols if schedule.packs("B") else n,
        packed_row=packed_row,
        packed_a_dims=packed_dims,
        a_transposed=problem.transpose_a,
        b_transposed=problem.transpose_b,
    )


def _conv2d(problem: Conv2d, schedule: Schedule, nest: Nest, how: Arithmetic) -> Geometry:
    packed = schedule.packs("A")
    words = -(-nest.kernel.depth // how.depth)
    pixel = words * how.depth if packed else problem.ci
    width = problem.w
    if packed:
        width = next(c for c in nest.copies if c.operand == "A").shape[1]
    stride, dilation = problem.stride, problem.dilation
    depth, co = problem.ci // problem.groups, problem.co // problem.groups
    contiguous = packed or problem.groups == 1
    folds = nest.kernel.depth == depth and dilation == 1 and contiguous
    c_row = problem.ow * problem.co
    line = problem.w * problem.ci
    return Geometry(
        a_dims={
            "g": depth,
            "n": problem.h * line,
            "oh": stride * line,
            "ow": stride * problem.ci,
        },
        b_dims={"g": co, "co": 1},
        c_dims={"g": co, "n": problem.oh * c_row, "oh": c_row, "ow": problem.co, "co": 1},
        bias_dims={"g": co, "co": 1},
        a_stream=1,
        b_stream=problem.co,
        a_row=stride * pixel // how.depth,
        a_step=1,
        b_row=nest.kernel.cols if schedule.packs("B") else problem.co,
        packed_row=pixel,
        packed_a_dims={"oh": stride * width * pixel, "ow": stride * pixel},
        a_tap_row=dilation * width * pixel // how.depth,
        a_tap_col=dilation * pixel // how.depth,
        b_tap_source=depth * problem.co,
        tap_rows=problem.kh,
        tap_cols=1 if folds else problem.kw,
        depth_factor=problem.kw if folds else 1,
    )


def _patches(problem: Conv2d, schedule: Schedule, nest: Nest, how: Arithmetic) -> Geometry:
    """nchw: filter [co, k] times patches [k, p]; those of a 1x1 filter lie in the image."""
    depth = nest.space.extent("k")
    co, plane = problem.co // problem.groups, problem.h * problem.w
    packed_row = _odd_lines(nest.kernel.depth, size_of(how.packed))
    pixels = problem.oh * problem.ow
    return Geometry(
        a_dims={"g": co * depth, "co": depth},
        b_dims={"g": problem.ci // problem.groups * plane, "n": problem.ci * plane, "p": 1},
        c_dims={"g": co * pixels, "n": problem.co * pixels, "co": pixels, "p": 1},
        bias_dims={"g": co, "co": 1},
        a_stream=1,
        b_stream=plane,
        a_row=(packed_row if schedule.packs("A") else depth) // how.depth,
        a_step=1,
        b_row=nest.kernel.cols if schedule.packs("B") else plane,
        packed_row=packed_row,
        packed_a_dims={"co": packed_row},
    )
