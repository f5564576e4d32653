"""The op that IREE's code generation sees of a problem, whose sizes a tuning spec chooses.

A spec is asked after IREE has formed dispatches. A convolution of one by one is a product of
matrices by then, with its pixels in one loop where nothing lies between them. What is said here
of each problem is held by the proofs: a matcher that is wrong about it matches nothing.
"""

from dataclasses import dataclass
from functools import singledispatch
from typing import Literal

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.problem import Conv2d, Matmul, Problem
from tilewise.kernels.target import target_kind

Op = Literal["contraction", "convolution"]
MOST_LOOPS = 7


@dataclass(frozen=True)
class Loop:
    """A loop of an op: its name in steps and its extent."""

    name: str
    extent: int


@dataclass(frozen=True)
class Form:
    """An op of two operands, as loops and the places that they visit.

    Attributes:
        op: what IREE's matchers call it.
        parallel: the loops over the result, in their order.
        reduction: those that are summed over, after them.
        a, b, c: of each operand the subscripts, in the names of loops.
        rows, cols: the parallel loops that a tile of vectors spans.
        depth: the reduction loop that is cut for it.
        a_type, c_type: MLIR's names of the elements of both factors and of the result.
    """

    op: Op
    parallel: tuple[Loop, ...]
    reduction: tuple[Loop, ...]
    a: tuple[str, ...]
    b: tuple[str, ...]
    c: tuple[str, ...]
    rows: str
    cols: str
    depth: str
    a_type: str
    c_type: str

    @property
    def loops(self) -> tuple[Loop, ...]:
        """All loops, in IREE's order."""
        return self.parallel + self.reduction

    def extent(self, name: str) -> int:
        """The extent of a loop."""
        return next(loop.extent for loop in self.loops if loop.name == name)

    @property
    def lead(self) -> tuple[Loop, ...]:
        """The parallel loops of which a tile of vectors has one iteration."""
        return tuple(loop for loop in self.parallel if loop.name not in (self.rows, self.cols))


def check_covered(problem: Problem, target: str) -> None:
    """Raise if a problem is to be searched through IREE, and no spec can choose its sizes.

    Args:
        problem: what is to be searched.
        target: canonical.

    Raises:
        UnsupportedError: says why.
    """
    if target_kind(target) == "iree":
        form_of(problem)


def form_of(problem: Problem) -> Form:
    """What IREE makes of a problem.

    Raises:
        UnsupportedError: no spec can choose its sizes; the message says why.
    """
    if problem.accumulates:
        raise UnsupportedError(
            f"{problem}: init=accumulate is not measured through IREE; give init=zero, whose "
            "entry serves both",
            "init",
        )
    return _form(problem)


@singledispatch
def _form(problem: Problem) -> Form:
    """`form_of` by operation."""
    raise UnsupportedError(f"op={problem.op} has no tuning spec; give a matmul or a conv2d")


@_form.register
def _matmul(problem: Matmul) -> Form:
    lead = (Loop("batch", problem.batch),) if problem.batch > 1 else ()
    names = tuple(loop.name for loop in lead)
    return Form(
        op="contraction",
        parallel=(*lead, Loop("m", problem.m), Loop("n", problem.n)),
        reduction=(Loop("k", problem.k),),
        a=(*names, *(("k", "m") if problem.transpose_a else ("m", "k"))),
        b=(*names, *(("n", "k") if problem.transpose_b else ("k", "n"))),
        c=(*names, "m", "n"),
        rows="m",
        cols="n",
        depth="k",
        **_types(problem),
    )


@_form.register
def _convolution(problem: Conv2d) -> Form:
    if problem.groups > 1:
        raise UnsupportedError(
            f"{problem}: groups={problem.groups}: IREE's grouped and depthwise convolutions take "
            "no sizes from a spec; flavor iree has kernels for them",
            "groups",
        )
    if problem.kh == problem.kw == 1:
        return _pointwise(problem)
    if problem.n == 1:
        raise UnsupportedError(
            f"{problem}: n=1 with kh={problem.kh}, kw={problem.kw} cannot be tuned by a spec: IREE "
            "drops the batch dim before and restores it after the spec is asked, and loses its "
            "sizes; give n>=2, or flavor iree",
            "n",
        )
    if 1 in (problem.kh, problem.kw, problem.oh, problem.ow):
        raise UnsupportedError(
            f"{problem}: a window or a result that is one row or column has no tuning spec: IREE "
            "drops the dim before the spec is asked; flavor iree has a kernel",
            "kh",
        )
    return _windows(problem)


def _pointwise(problem: Conv2d) -> Form:
    """A filter of one by one: a product of matrices."""
    if problem.stride > 1:
        return _strided(problem)
    pixels = problem.oh * problem.ow
    lead: tuple[Loop, ...] = ()
    if not problem.has_channels_first:
        return _product(problem, (), Loop("pixel", problem.n * pixels), Loop("co", problem.co),
                        a=("pixel", "ci"), b=("ci", "co"))  # fmt: skip
    if problem.n > 1:
        lead = (Loop("n", problem.n),)
    names = tuple(loop.name for loop in lead)
    return _product(problem, lead, Loop("co", problem.co), Loop("pixel", pixels),
                    a=(*names, "ci", "pixel"), b=("co", "ci"))  # fmt: skip


def _strided(problem: Conv2d) -> Form:
    """The pixels that are read lie apart, so rows and columns stay two loops."""
    lead = (Loop("n", problem.n),) if problem.n > 1 else ()
    names = tuple(loop.name for loop in lead)
    oh, ow, co = Loop("oh", problem.oh), Loop("ow", problem.ow), Loop("co", problem.co)
    if min(problem.oh, problem.ow) == 1:
        raise UnsupportedError(
            f"{problem}: stride={problem.stride} with a single row or column of pixels has no "
            "tuning spec; flavor iree has a kernel",
            "stride",
        )
    if problem.has_channels_first:
        return _product(problem, (*lead, co), oh, ow,
                        a=(*names, "ci", "oh", "ow"), b=("co", "ci"))  # fmt: skip
    return _product(problem, (*lead, oh), ow, co,
                    a=(*names, "oh", "ow", "ci"), b=("ci", "co"))  # fmt: skip


def _product(
    problem: Conv2d,
    lead: tuple[Loop, ...],
    rows: Loop,
    cols: Loop,
    *,
    a: tuple[str, ...],
    b: tuple[str, ...],
) -> Form:
    parallel = (*lead, rows, cols)
    return Form(
        op="contraction",
        parallel=parallel,
        reduction=(Loop("ci", problem.ci),),
        a=a,
        b=b,
        c=tuple(loop.name for loop in parallel),
        rows=rows.name,
        cols=cols.name,
        depth="ci",
        **_types(problem),
    )


def _windows(problem: Conv2d) -> Form:
    n, oh, ow, co = (
        Loop(name, extent)
        for name, extent in (
            ("n", problem.n), ("oh", problem.oh), ("ow", problem.ow), ("co", problem.co),
        )
    )  # fmt: skip
    kh, kw, ci = Loop("kh", problem.kh), Loop("kw", problem.kw), Loop("ci", problem.ci)
    row, col = _window(problem, "oh", "kh"), _window(problem, "ow", "kw")
    if problem.has_channels_first:
        parallel, reduction = (n, co, oh, ow), (ci, kh, kw)
        a, b = ("n", "ci", row, col), ("co", "ci", "kh", "kw")
        rows, cols = "co", "ow"
    else:
        parallel, reduction = (n, oh, ow, co), (kh, kw, ci)
        a, b = ("n", row, col, "ci"), ("kh", "kw", "ci", "co")
        rows, cols = "ow", "co"
    return Form(
        op="convolution",
        parallel=parallel,
        reduction=reduction,
        a=a,
        b=b,
        c=tuple(loop.name for loop in parallel),
        rows=rows,
        cols=cols,
        depth="ci",
        **_types(problem),
    )


def _window(problem: Conv2d, out: str, tap: str) -> str:
    """The subscript of the image along one of its sides."""
    place = out if problem.stride == 1 else f"{out} * {problem.stride}"
    reach = tap if problem.dilation == 1 else f"{tap} * {problem.dilation}"
    return f"{place} + {reach}"


def _types(problem: Problem) -> dict[str, str]:
    return {"a_type": problem.element.name, "c_type": problem.element.accumulator}
