"""The strides that a schedule asks for, for both operations."""

from tilewise.kernels.arithmetic import Arithmetic, must_pack, size_of
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.instructions import Form
from tilewise.kernels.loopnest import Nest
from tilewise.kernels.native.ir.vectors import LINE_BYTES
from tilewise.kernels.native.strides.lines import odd_lines
from tilewise.kernels.native.strides.records import Operand, PackedRows, Strides, Taps, Words
from tilewise.kernels.native.strides.transformed import (
    filter_in_place,
    quadrants_in_place,
    transformed,
)
from tilewise.kernels.problem import Conv2d, Matmul, Problem
from tilewise.kernels.problem.iteration import is_packed_by_rows
from tilewise.kernels.schedule import Schedule


def strides_of(problem: Problem, schedule: Schedule, nest: Nest, how: Arithmetic) -> Strides:
    """The strides for `schedule` on `problem`.

    Raises:
        LoweringError: an operand that the arithmetic cannot read in place is not packed, or the
            reduction is cut where no word ends.
    """
    _check_packs(problem, schedule, how)
    _check_chunks(problem, nest, how)
    if schedule.strassen is not None:
        return transformed(nest, how, *quadrants_in_place(problem, nest))
    if isinstance(problem, Matmul):
        return _matmul(problem, schedule, nest, how)
    assert isinstance(problem, Conv2d)
    if nest.space.spans_groups:
        return _across_groups(problem)
    if schedule.winograd is not None:
        return transformed(nest, how, *filter_in_place(problem))
    if nest.space.image == "B":
        return _patches(problem, schedule, nest, how)
    return _conv2d(problem, schedule, nest, how)


def _check_packs(problem: Problem, schedule: Schedule, how: Arithmetic) -> None:
    """Schedules that no space made may leave out a pack: no legality check knows the target."""
    for operand in sorted(must_pack(problem, how)):
        if not schedule.packs(operand):
            raise LoweringError(
                f"{problem}: {operand} cannot be read in place on this target; "
                f"add the step pack operand={operand}"
            )


def _check_chunks(problem: Problem, nest: Nest, how: Arithmetic) -> None:
    chunk = nest.kernel.depth
    if chunk != nest.space.extent(nest.space.stream) and chunk % how.depth:
        raise LoweringError(
            f"{problem}: a chunk of depth {chunk} is no multiple of the {how.depth} elements "
            "that are multiplied at once"
        )


def _words(
    problem: Problem, schedule: Schedule, nest: Nest, how: Arithmetic, a: tuple[int, int], b: int
) -> Words:
    """The micro-kernel's strides, from A's row and step in words and B's row in place."""
    # Rows of B in registers are then what the panels hold, and can be stored as they are.
    as_it_lies = is_packed_by_rows(problem) and not (how.packs_b or how.form is Form.SPLIT)
    if not schedule.packs("B"):
        return Words(*a, b_row=b)
    return Words(*a, b_row=nest.kernel.cols, filled_row=b if as_it_lies else 0)


def _matmul(problem: Matmul, schedule: Schedule, nest: Nest, how: Arithmetic) -> Strides:
    m, n, k = problem.m, problem.n, problem.k
    if problem.transpose_a:
        a = Operand({"batch": m * k, "m": 1}, stream=m, is_transposed=True)
        packed_a = PackedRows({"m": how.depth}, row=_packed_column(nest, how))
        in_words = (1, packed_a.row // how.depth if schedule.packs("A") else m)
    else:
        a = Operand({"batch": m * k, "m": k}, stream=1)
        row = odd_lines(nest.kernel.depth, size_of(how.packed))
        packed_a = PackedRows({"m": row}, row)
        in_words = ((row if schedule.packs("A") else k) // how.depth, 1)
    if problem.transpose_b:
        b = Operand({"batch": k * n, "n": k}, stream=1, is_transposed=True)
    else:
        b = Operand({"batch": k * n, "n": 1}, stream=n)
    return Strides(
        a,
        b,
        c={"batch": m * n, "m": n, "n": 1},
        bias={"n": 1},
        packed_a=packed_a,
        words=_words(problem, schedule, nest, how, in_words, b.stream),
    )


def _packed_column(nest: Nest, how: Arithmetic) -> int:
    """Packed elements between steps of the reduction of a transposed A."""
    rows = next((c.shape[0] for c in nest.copies if c.operand == "A"), 0)
    word, lanes = how.depth * size_of(how.packed), LINE_BYTES // size_of(how.word)
    return odd_lines(-(-rows // lanes) * lanes, word) * how.depth


def _conv2d(problem: Conv2d, schedule: Schedule, nest: Nest, how: Arithmetic) -> Strides:
    depth, co = problem.ci // problem.groups, problem.co // problem.groups
    stride = problem.stride
    pixel, width = _image_block(problem, schedule, nest, how)
    a = {
        "g": depth,
        "n": problem.h * problem.w * problem.ci,
        "oh": stride * problem.w * problem.ci,
        "ow": stride * problem.ci,
    }
    image, c_row = problem.oh * problem.ow * problem.co, problem.ow * problem.co
    return Strides(
        a=Operand(a, stream=1),
        b=Operand({"g": co, "co": 1}, stream=problem.co),
        c={"g": co, "n": image, "oh": c_row, "ow": problem.co, "co": 1},
        bias={"g": co, "co": 1},
        packed_a=PackedRows({"oh": stride * width * pixel, "ow": stride * pixel}, row=pixel),
        words=_words(problem, schedule, nest, how, (stride * pixel // how.depth, 1), problem.co),
        taps=_taps(problem, schedule, nest, how),
    )


def _image_block(
    problem: Conv2d, schedule: Schedule, nest: Nest, how: Arithmetic
) -> tuple[int, int]:
    """Elements of a pixel of the image that the micro-kernel reads, and pixels of its lines."""
    if not schedule.packs("A"):
        return problem.ci, problem.w
    words = -(-nest.kernel.depth // how.depth)
    return words * how.depth, next(c for c in nest.copies if c.operand == "A").shape[1]


def _taps(problem: Conv2d, schedule: Schedule, nest: Nest, how: Arithmetic) -> Taps:
    depth, dilation = problem.ci // problem.groups, problem.dilation
    pixel, width = _image_block(problem, schedule, nest, how)
    is_contiguous = schedule.packs("A") or problem.groups == 1
    folds = nest.kernel.depth == depth and dilation == 1 and is_contiguous
    return Taps(
        rows=problem.kh,
        cols=1 if folds else problem.kw,
        depth_factor=problem.kw if folds else 1,
        a_row=dilation * width * pixel // how.depth,
        a_col=dilation * pixel // how.depth,
        b_source=depth * problem.co,
    )


def _patches(problem: Conv2d, schedule: Schedule, nest: Nest, how: Arithmetic) -> Strides:
    """nchw: filter [co, k] times patches [k, p]; those of a 1x1 filter lie in the image."""
    depth = nest.space.extent("k")
    co, plane = problem.co // problem.groups, problem.h * problem.w
    pixels = problem.oh * problem.ow
    row = odd_lines(nest.kernel.depth, size_of(how.packed))
    b = {"g": problem.ci // problem.groups * plane, "n": problem.ci * plane, "p": 1}
    in_words = ((row if schedule.packs("A") else depth) // how.depth, 1)
    return Strides(
        a=Operand({"g": co * depth, "co": depth}, stream=1),
        b=Operand(b, stream=plane),
        c={"g": co * pixels, "n": problem.co * pixels, "co": pixels, "p": 1},
        bias={"g": co, "co": 1},
        packed_a=PackedRows({"co": row}, row),
        words=_words(problem, schedule, nest, how, in_words, plane),
    )


def _across_groups(problem: Conv2d) -> Strides:
    """Whole images and results; the micro-kernel knows what lies within them."""
    c = problem.oh * problem.ow * problem.co
    image = Operand({"n": problem.h * problem.w * problem.ci, "ow": 0}, stream=0)
    weights = Operand({"oh": 0}, stream=0)
    a, b = (weights, image) if problem.has_channels_first else (image, weights)
    return Strides(
        a,
        b,
        c={"n": c, "oh": 0, "ow": 0},
        bias={},
        packed_a=PackedRows({}, 0),
        words=Words(0, 0, 0),
    )
