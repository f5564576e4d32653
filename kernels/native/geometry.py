"""Where each element lies: strides of operands in place and packed, for both operations.

The driver and the micro-kernel see a matmul and a convolution alike through this:
a row of the result moves A by a stride, a chunk of the reduction starts at an
offset, and a convolution adds taps.
"""

from dataclasses import dataclass

from kernels.loopnest import Nest
from kernels.problem import Conv2d, Matmul, Problem
from kernels.schedule import Schedule

LINE_BYTES = 64


@dataclass(frozen=True)
class Geometry:
    """Strides in elements.

    Attributes:
        a_dims: what one step along each row dim (or batch) moves A by, in place.
        b_dims: the same for B.
        c_dims: the same for C.
        a_row, b_row: the micro-kernel's constant strides (see `MicroKernelSpec`).
        a_tap_row, a_tap_col: what one filter row or column moves the image by.
        b_tap: what one filter tap moves B by; for packed B it depends on the chunk's depth.
        b_tap_source: what one filter tap moves B by in place.
        tap_rows, tap_cols: the micro-kernel's tap loops.
        depth_factor: 1, or kw where (kw, ci) are contiguous and fold into one reduction.
        packed_row: elements between rows (pixels) of packed A.
        packed_a_dims: what one step along oh and ow moves packed A by.
    """

    a_dims: dict[str, int]
    b_dims: dict[str, int]
    c_dims: dict[str, int]
    a_row: int
    b_row: int
    a_tap_row: int
    a_tap_col: int
    b_tap_source: int
    tap_rows: int
    tap_cols: int
    depth_factor: int
    packed_row: int
    packed_a_dims: dict[str, int]


def geometry(problem: Problem, schedule: Schedule, nest: Nest) -> Geometry:
    """The strides for `schedule` on `problem`."""
    if isinstance(problem, Matmul):
        return _matmul(problem, schedule, nest)
    assert isinstance(problem, Conv2d)
    return _conv2d(problem, schedule, nest)


def _odd_lines(elements: int, size: int) -> int:
    """The least stride of an odd number of cache lines that holds `elements`.

    Rows a power of two apart share a cache set; an odd number of lines visits them all.
    """
    lines = -(-elements * size // LINE_BYTES)
    return (lines | 1) * LINE_BYTES // size


def _matmul(problem: Matmul, schedule: Schedule, nest: Nest) -> Geometry:
    m, n, k = problem.m, problem.n, problem.k
    packed_row = _odd_lines(nest.kernel.depth, problem.element.bytes)
    return Geometry(
        a_dims={"batch": m * k, "m": k},
        b_dims={"batch": k * n, "n": 1},
        c_dims={"batch": m * n, "m": n, "n": 1},
        a_row=packed_row if schedule.packs("A") else k,
        b_row=nest.kernel.cols if schedule.packs("B") else n,
        a_tap_row=0,
        a_tap_col=0,
        b_tap_source=0,
        tap_rows=1,
        tap_cols=1,
        depth_factor=1,
        packed_row=packed_row,
        packed_a_dims={"m": packed_row},
    )


def _conv2d(problem: Conv2d, schedule: Schedule, nest: Nest) -> Geometry:
    packed = schedule.packs("A")
    pixel = nest.kernel.depth if packed else problem.ci
    width = problem.w
    if packed:
        width = next(c for c in nest.copies if c.operand == "A").shape[1]
    stride, dilation = problem.stride, problem.dilation
    folds = nest.kernel.depth == problem.ci and dilation == 1
    c_row = problem.ow * problem.co
    line = problem.w * problem.ci
    return Geometry(
        a_dims={"n": problem.h * line, "oh": stride * line, "ow": stride * problem.ci},
        b_dims={"co": 1},
        c_dims={"n": problem.oh * c_row, "oh": c_row, "ow": problem.co, "co": 1},
        a_row=stride * pixel,
        b_row=nest.kernel.cols if schedule.packs("B") else problem.co,
        a_tap_row=dilation * width * pixel,
        a_tap_col=dilation * pixel,
        b_tap_source=problem.ci * problem.co,
        tap_rows=problem.kh,
        tap_cols=1 if folds else problem.kw,
        depth_factor=problem.kw if folds else 1,
        packed_row=pixel,
        packed_a_dims={"oh": stride * width * pixel, "ow": stride * pixel},
    )
