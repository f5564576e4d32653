"""The contraction of a payload: the op, and the dims that index its operands.

Named ops where MLIR has them; other grouped convolutions and those of nchw are a linalg.generic
over views of the operands, with a dim for every dim of the schedule.
"""

from dataclasses import dataclass
from functools import singledispatch

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.payload.images import TAPS, SplitLines, splits_lines
from tilewise.kernels.mlir.payload.tensors import Shape, affine_map
from tilewise.kernels.nest import Role, nest_of
from tilewise.kernels.problem import Convolution, Matmul, Problem

Dims = tuple[str, ...]


@dataclass(frozen=True)
class Contraction:
    """The op of a problem.

    Attributes:
        op: `linalg.generic`, or the name of an op that implies the indexing.
        extents: of the iteration dims, in MLIR's order.
        maps: affine terms that index each axis of A, B and C.
        options: the attributes of a named op.
    """

    op: str
    extents: dict[str, int]
    maps: tuple[Dims, Dims, Dims]
    options: str = ""

    @property
    def dims(self) -> Dims:
        """The iteration dims in MLIR's order."""
        return tuple(self.extents)

    @property
    def result_dims(self) -> Dims:
        """The dims of its result, in order."""
        return self.maps[2]

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of A, B and C as the op sees them."""
        return tuple(tuple(self._reach(term) for term in terms) for terms in self.maps)

    @property
    def is_generic(self) -> bool:
        """Whether the op has no name of its own."""
        return self.op == "linalg.generic"

    def _reach(self, term: str) -> int:
        """Return the extent of an axis that an affine term indexes completely."""
        reach = 1
        for part in term.split(" + "):
            dim, _, scale = part.partition(" * ")
            reach += (self.extents[dim] - 1) * int(scale or 1)
        return reach


@singledispatch
def contraction(problem: Problem) -> Contraction:
    """Return the contraction of `problem`; one function for each operation."""
    raise UnsupportedError(f"op={problem.op} has no payload; give a matmul or a convolution", "op")


def gathers_patches(problem: Problem) -> bool:
    """Return whether pixels of patches or lines are gathered first, to be contiguous."""
    nest = nest_of(problem)
    if not nest.group:
        return nest.operand("B").is_gathered
    return problem.has_channels_first and max(problem.strides) > 1 and not splits_lines(problem)


def read_image(problem: Convolution) -> Shape:
    """Return the shape of what is read of the padded image; a stride can leave its end unread."""
    sides = zip(problem.outputs, problem.strides, problem.reaches, strict=True)
    read = tuple((count - 1) * stride + reach for count, stride, reach in sides)
    if problem.has_channels_first:
        return problem.n, problem.ci, *read
    return problem.n, *read, problem.ci


@contraction.register
def _matmul(problem: Matmul) -> Contraction:
    """Return a matmul; a single row of A or column of B gets the order that vectorises.

    A single row of a transposed A is treated as plain, and a single column of B as transposed,
    since its elements are contiguous along the reduction.
    """
    lead = ("batch",) if problem.batch > 1 else ()
    extents = nest_of(problem).extents
    dims = (*lead, "m", "n", "k")
    transposed = problem.transpose_a and problem.m > 1
    along_k = problem.transpose_b or problem.n == 1
    maps = (
        (*lead, *(("k", "m") if transposed else ("m", "k"))),
        (*lead, *(("n", "k") if along_k else ("k", "n"))),
        (*lead, "m", "n"),
    )
    options = ""
    if transposed or along_k:
        indexed = ", ".join(affine_map(dims, ", ".join(terms)) for terms in maps)
        options = f" indexing_maps = [{indexed}]"
    op = "linalg.batch_matmul" if lead else "linalg.matmul"
    return Contraction(op, {dim: extents[dim] for dim in dims}, maps, options)


@contraction.register
def _convolution(problem: Convolution) -> Contraction:
    nest, groups = nest_of(problem), problem.groups
    if problem.has_channels_first:
        return _planes(problem) if nest.group else _nchw(problem)
    pixel = pixels(problem)
    outputs = {f"o{axis}": size for axis, size in zip(problem.axes, problem.outputs, strict=True)}
    taps = {f"k{axis}": size for axis, size in zip(problem.axes, problem.window, strict=True)}
    extents = {"n": problem.n, **outputs, "co": problem.co}
    inputs = problem.ci // groups
    if nest.group:  # the image's channels are spread over those of the result (`spread_image`)
        ci = {"ci": inputs} if inputs > 1 else {}
        is_depthwise = inputs == problem.co // groups == 1
        return Contraction(
            "linalg.depthwise_conv_2d_nhwc_hwc" if is_depthwise else "linalg.generic",
            extents | taps | ci,
            (("n", *pixel, *ci, "co"), ("kh", "kw", *ci, "co"), ("n", "oh", "ow", "co")),
            _windows(problem) if is_depthwise else "",
        )
    if groups > 1:  # channels are [groups, channels of a group] for all operands
        return Contraction(
            "linalg.generic",
            {"g": groups, **extents, "co": problem.co // groups, **taps, "ci": inputs},
            (("n", *pixel, "g", "ci"), ("kh", "kw", "ci", "g", "co"), ("n", "oh", "ow", "g", "co")),
        )
    return Contraction(
        f"linalg.conv_{problem.op[-2:]}_{problem.layout}",
        extents | taps | {"ci": inputs},
        (("n", *pixel, "ci"), (*taps, "ci", "co"), ("n", *outputs, "co")),
        _windows(problem),
    )


def _planes(problem: Convolution) -> Contraction:
    """Return the op for groups of few channels in planes.

    `co` counts groups, and `f` the result's channels in one.
    """
    inputs, outputs = problem.ci // problem.groups, problem.co // problem.groups
    f = {"f": outputs} if outputs > 1 else {}
    ci = {"ci": inputs} if inputs > 1 else {}
    line, column = pixels(problem)
    taps = {"kh": problem.kh, "kw": problem.kw}
    seen: Dims = (line, column)
    if gathers_patches(problem):
        seen = (line, "kw", "ow")
    if splits_lines(problem):
        split = SplitLines.of(problem)
        taps = {"kh": problem.kh, **dict(zip(TAPS, (split.turns, split.stride), strict=True))}
        seen = (line, "tap", "ow + turn")
    return Contraction(
        "linalg.generic",
        {"n": problem.n, "co": problem.groups} | f | {"oh": problem.oh, "ow": problem.ow}
        | taps | ci,
        (
            ("co", *f, *ci, *taps),
            ("n", "co", *ci, *seen),
            ("n", "co", *f, "oh", "ow"),
        ),
    )  # fmt: skip


def _nchw(problem: Convolution) -> Contraction:
    """Return the filter [g, co, k] times the pixels [n, g, k, p]; g and n only if above 1."""
    nest = nest_of(problem)
    lead, extents = nest.named(Role.LEAD), nest.extents
    images, groups = (tuple(d for d in lead if d == name) for name in ("n", "g"))
    return Contraction(
        "linalg.generic",
        {dim: extents[dim] for dim in (*lead, "co", "p", "k")},
        ((*groups, "co", "k"), (*images, *groups, "k", "p"), (*images, *groups, "co", "p")),
    )


def _windows(problem: Convolution) -> str:
    kind = f"tensor<{len(problem.axes)}xi64>"
    return (
        f" {{dilations = dense<{dense(problem.dilations)}> : {kind}, "
        f"strides = dense<{dense(problem.strides)}> : {kind}}}"
    )


def dense(values: Shape) -> str:
    """Return the elements of an attribute: one number where all are equal."""
    return str(values[0]) if len(set(values)) == 1 else str(list(values))


def pixels(problem: Convolution) -> Dims:
    """Return where the pixel is that a tap of an output reads: an affine term for each axis."""
    steps = zip(problem.axes, problem.strides, problem.dilations, strict=True)
    return tuple(f"o{axis} * {stride} + k{axis} * {by}" for axis, stride, by in steps)
