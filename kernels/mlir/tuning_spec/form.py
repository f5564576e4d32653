"""The op that IREE's code generation sees of a problem, whose sizes a tuning spec chooses.

Specs are applied after dispatch formation. By then a 1x1 convolution is a matmul, with contiguous
pixels in one loop. Proofs check this file: a wrong matcher matches nothing.
"""

from dataclasses import dataclass
from functools import singledispatch
from typing import Literal

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.payload.factors import widens_ahead
from tilewise.kernels.problem import Conv2d, Matmul, Problem
from tilewise.kernels.target import target_kind

Loops = dict[str, int]
"""Extents of loops by their names in steps, in order."""


@dataclass(frozen=True)
class LoopForm:
    """An op of two operands as loops and subscripts.

    Attributes:
        op: the name that IREE's matchers use.
        parallel, reduction: the loops over the result, and the inner ones that are summed over.
        a, b: the subscripts of each factor, in names of loops.
        rows, cols: the parallel loops that a vector tile spans.
        depth: the reduction loop that a vector tile splits.
        a_type, c_type: element types of both factors and of the result.
    """

    op: Literal["contraction", "convolution"]
    parallel: Loops
    reduction: Loops
    a: tuple[str, ...]
    b: tuple[str, ...]
    rows: str
    cols: str
    depth: str
    a_type: str
    c_type: str
    strides: tuple[int, ...] = (1, 1)
    dilations: tuple[int, ...] = (1, 1)

    @property
    def loops(self) -> Loops:
        """All loops, in IREE's order."""
        return self.parallel | self.reduction

    @property
    def c(self) -> tuple[str, ...]:
        """The subscripts of the result."""
        return tuple(self.parallel)

    def extent(self, name: str) -> int:
        """Return the extent of a loop."""
        return self.loops[name]

    @property
    def lead(self) -> Loops:
        """The parallel loops of which a vector tile has one iteration."""
        return {name: n for name, n in self.parallel.items() if name not in (self.rows, self.cols)}


def check_covered(problem: Problem, target: str) -> None:
    """Raise UnsupportedError if `target` searches through IREE and no spec covers the problem."""
    if target_kind(target) == "iree":
        form_of(problem)


def form_of(problem: Problem) -> LoopForm:
    """Return what IREE makes of a problem; raise UnsupportedError if no spec can tune it."""
    if problem.quantised_weights:
        raise UnsupportedError(
            f"{problem}: group={problem.quantised_weights.group}: IREE's code takes no quantised "
            "weights; tune for cpu:host",
            "group",
        )
    if problem.accumulates:
        raise UnsupportedError(
            f"{problem}: init=accumulate is not measured through IREE; give init=zero, whose "
            "entry serves both",
            "init",
        )
    if widens_ahead(problem):
        raise UnsupportedError(
            f"{problem}: unsigned bytes and zero points have no tuning spec; flavor iree has "
            "kernels for them",
            "dtype",
        )
    return _form(problem)


@singledispatch
def _form(problem: Problem) -> LoopForm:
    """Return the form of an operation."""
    raise UnsupportedError(f"op={problem.op} has no tuning spec; give a matmul or a conv2d")


@_form.register
def _matmul(problem: Matmul) -> LoopForm:
    lead = {"batch": problem.batch} if problem.batch > 1 else {}
    a = ("k", "m") if problem.transpose_a else ("m", "k")
    b = ("n", "k") if problem.transpose_b else ("k", "n")
    parallel = {**lead, "m": problem.m, "n": problem.n}
    return _product(problem, parallel, {"k": problem.k}, (*lead, *a), (*lead, *b))


@_form.register
def _convolution(problem: Conv2d) -> LoopForm:
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
            "drops the batch dim before and restores it after the spec is applied, and loses its "
            "sizes; give n>=2, or flavor iree",
            "n",
        )
    if 1 in (problem.kh, problem.kw, problem.oh, problem.ow):
        raise UnsupportedError(
            f"{problem}: a window or a result that is one row or column has no tuning spec: IREE "
            "drops the dim before the spec is applied; flavor iree has a kernel",
            "kh",
        )
    return _windows(problem)


def _pointwise(problem: Conv2d) -> LoopForm:
    """Return a 1x1 convolution as a matmul; with a stride, rows and columns stay two loops."""
    if max(problem.strides) > 1 and min(problem.oh, problem.ow) == 1:
        raise UnsupportedError(
            f"{problem}: stride={problem.stride} with a single row or column of pixels has no "
            "tuning spec; flavor iree has a kernel",
            "stride",
        )
    lead = {"n": problem.n} if problem.n > 1 else {}
    pixels, co, ci = {"oh": problem.oh, "ow": problem.ow}, {"co": problem.co}, {"ci": problem.ci}
    if problem.strides == (1, 1):
        pixels = {"pixel": problem.oh * problem.ow}
        if not problem.has_channels_first:
            lead, pixels = {}, {"pixel": problem.n * problem.oh * problem.ow}
    if problem.has_channels_first:
        return _product(problem, lead | co | pixels, ci, (*lead, "ci", *pixels), ("co", "ci"))
    return _product(problem, lead | pixels | co, ci, (*lead, *pixels, "ci"), ("ci", "co"))


def _product(
    problem: Problem, parallel: Loops, reduction: Loops, a: tuple[str, ...], b: tuple[str, ...]
) -> LoopForm:
    """Return a contraction whose vectors span the innermost parallel loops."""
    *_, rows, cols = parallel
    (depth,) = reduction
    element = problem.element
    return LoopForm("contraction", parallel, reduction, a, b, rows, cols, depth,
                element.name, element.accumulator)  # fmt: skip


def _windows(problem: Conv2d) -> LoopForm:
    n, co, ci = {"n": problem.n}, {"co": problem.co}, {"ci": problem.ci}
    pixels, taps = {"oh": problem.oh, "ow": problem.ow}, {"kh": problem.kh, "kw": problem.kw}
    row, col = (
        f"{_scaled(out, stride)} + {_scaled(tap, dilation)}"
        for out, tap, stride, dilation in zip(
            pixels, taps, problem.strides, problem.dilations, strict=True
        )
    )
    if problem.has_channels_first:
        parallel, reduction = n | co | pixels, ci | taps
        a, b = ("n", "ci", row, col), ("co", "ci", "kh", "kw")
        rows, cols = "co", "ow"
    else:
        parallel, reduction = n | pixels | co, taps | ci
        a, b = ("n", row, col, "ci"), ("kh", "kw", "ci", "co")
        rows, cols = "ow", "co"
    element = problem.element
    return LoopForm("convolution", parallel, reduction, a, b, rows, cols, "ci", element.name,
                element.accumulator, problem.strides, problem.dilations)  # fmt: skip


def _scaled(loop: str, by: int) -> str:
    return loop if by == 1 else f"{loop} * {by}"
