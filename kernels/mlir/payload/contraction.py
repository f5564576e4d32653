"""The contraction of a payload: the op, what it indexes by which dims, and its operands' views.

Named ops where MLIR has them. Other grouped convolutions and those of nchw are a linalg.generic
over views of the operands in which every dim of the schedule is a dim.
"""

from dataclasses import dataclass
from functools import singledispatch

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.payload.images import TAPS, SplitLines, splits_lines
from tilewise.kernels.mlir.payload.tensors import Shape, affine_map
from tilewise.kernels.nest import Role, nest_of
from tilewise.kernels.problem import Conv2d, Matmul, Problem


@dataclass(frozen=True)
class Contraction:
    """The op of a problem.

    Attributes:
        op: `linalg.generic` or the name of the op, which says how operands are indexed.
        dims: the iteration dims in MLIR's order.
        maps: how the dims index the roles A and B, and C.
        shapes: the operands as the op sees them, roles A and B, then C.
        options: the attributes of a named op.
    """

    op: str
    dims: tuple[str, ...]
    maps: tuple[str, str, str]
    shapes: tuple[Shape, Shape, Shape]
    options: str = ""

    @property
    def result_dims(self) -> tuple[str, ...]:
        """The dims of its result, in order."""
        return tuple(self.maps[2].split(", "))

    @property
    def is_generic(self) -> bool:
        """Whether the op has no name of its own."""
        return self.op == "linalg.generic"


@singledispatch
def contraction(problem: Problem) -> Contraction:
    """The contraction of `problem`; one function for each operation."""
    raise UnsupportedError(f"op={problem.op} has no payload; give a matmul or a conv2d", "op")


def gathers_patches(problem: Problem) -> bool:
    """Whether pixels are gathered first, of patches or of lines: vectors want neighbours."""
    nest = nest_of(problem)
    if not nest.group:
        return nest.operand("B").is_gathered
    return problem.has_channels_first and problem.stride > 1 and not splits_lines(problem)


def read_image(problem: Conv2d) -> Shape:
    """The shape of what is read of the padded image; a stride can leave its end unread."""
    extents = ((problem.oh, problem.kh), (problem.ow, problem.kw))
    h, w = (
        (outputs - 1) * problem.stride + problem.dilation * (taps - 1) + 1
        for outputs, taps in extents
    )
    if problem.has_channels_first:
        return problem.n, problem.ci, h, w
    return problem.n, h, w, problem.ci


@contraction.register
def _matmul(problem: Matmul) -> Contraction:
    """A single row of a transposed A lies as it would otherwise, and is seen that way.

    Else vectorisation takes the columns one by one. A single column of B is seen as transposed:
    its neighbours are elements of the reduction.
    """
    lead = ("batch",) if problem.batch > 1 else ()
    extents = nest_of(problem).extents
    transposed = problem.transpose_a and problem.m > 1
    lies_along = problem.transpose_b or problem.n == 1
    maps = (
        (*lead, *(("k", "m") if transposed else ("m", "k"))),
        (*lead, *(("n", "k") if lies_along else ("k", "n"))),
        (*lead, "m", "n"),
    )
    dims = (*lead, "m", "n", "k")
    a, b, c = (tuple(extents[dim] for dim in results) for results in maps)
    first, second, third = (_list(results) for results in maps)
    options = ""
    if transposed or lies_along:
        indexed = ", ".join(affine_map(dims, results) for results in (first, second, third))
        options = f" indexing_maps = [{indexed}]"
    op = "linalg.batch_matmul" if lead else "linalg.matmul"
    return Contraction(op, dims, (first, second, third), (a, b, c), options)


@contraction.register
def _convolution(problem: Conv2d) -> Contraction:
    if nest_of(problem).group:
        return _across_groups(problem)
    if problem.has_channels_first:
        return _nchw(problem)
    return _grouped(problem) if problem.groups > 1 else _nhwc(problem)


def _nhwc(problem: Conv2d) -> Contraction:
    shapes = problem.operand_shapes
    return Contraction(
        "linalg.conv_2d_nhwc_hwcf",
        ("n", "oh", "ow", "co", "kh", "kw", "ci"),
        (f"n, {pixels(problem)}, ci", "kh, kw, ci, co", "n, oh, ow, co"),
        (read_image(problem), shapes["B"], shapes["C"]),
        _windows(problem),
    )


def _grouped(problem: Conv2d) -> Contraction:
    """Channels are [groups, channels of a group] for the image, the filter and the result."""
    groups = problem.groups
    ci, co = problem.ci // groups, problem.co // groups
    return Contraction(
        "linalg.generic",
        ("g", "n", "oh", "ow", "co", "kh", "kw", "ci"),
        (f"n, {pixels(problem)}, g, ci", "kh, kw, ci, g, co", "n, oh, ow, g, co"),
        (
            (*read_image(problem)[:-1], groups, ci),
            (problem.kh, problem.kw, ci, groups, co),
            (problem.n, problem.oh, problem.ow, groups, co),
        ),
    )


def _across_groups(problem: Conv2d) -> Contraction:
    """Groups of few channels.

    In planes `co` counts groups, and `f` the channels of the result in one. With channels last,
    the image is one whose channels are spread over those of the result (`spread`).
    """
    inputs, outputs = problem.ci // problem.groups, problem.co // problem.groups
    f, ci = ("f",) if outputs > 1 else (), ("ci",) if inputs > 1 else ()
    group: Shape = (problem.groups,)
    many = {"f": (outputs,) * len(f), "ci": (inputs,) * len(ci)}
    image: Shape = read_image(problem)
    taps: Shape = (problem.kh, problem.kw)
    if problem.has_channels_first:
        seen: tuple[str, ...] = (pixels(problem),)
        across: tuple[str, ...] = ("kw",)
        extents = image[2:]
        line, _ = pixels(problem).split(", ")
        if gathers_patches(problem):
            seen, extents = (line, "kw", "ow"), (image[2], problem.kw, problem.ow)
        if splits_lines(problem):
            split, across = SplitLines.of(problem), TAPS
            seen, extents = (line, "tap", "ow + turn"), split.read[2:]
            taps = (problem.kh, split.turns, split.stride)
        return Contraction(
            "linalg.generic",
            ("n", "co", *f, "oh", "ow", "kh", *across, *ci),
            (
                _list(("co", *f, *ci, "kh", *across)),
                _list(("n", "co", *ci, *seen)),
                _list(("n", "co", *f, "oh", "ow")),
            ),
            (
                (*group, *many["f"], *many["ci"], *taps),
                (problem.n, *group, *many["ci"], *extents),
                (problem.n, *group, *many["f"], problem.oh, problem.ow),
            ),
        )
    is_depthwise = inputs == outputs == 1
    return Contraction(
        "linalg.depthwise_conv_2d_nhwc_hwc" if is_depthwise else "linalg.generic",
        ("n", "oh", "ow", "co", "kh", "kw", *ci),
        (
            _list(("n", pixels(problem), *ci, "co")),
            _list(("kh", "kw", *ci, "co")),
            _list(("n", "oh", "ow", "co")),
        ),
        (
            (*image[:-1], *many["ci"], problem.co),
            (*taps, *many["ci"], problem.co),
            (problem.n, problem.oh, problem.ow, problem.co),
        ),
        _windows(problem) if is_depthwise else "",
    )


def _windows(problem: Conv2d) -> str:
    """The attributes of a named convolution."""
    return (
        f" {{dilations = dense<{problem.dilation}> : tensor<2xi64>, "
        f"strides = dense<{problem.stride}> : tensor<2xi64>}}"
    )


def _nchw(problem: Conv2d) -> Contraction:
    """The filter [g, co, k] by the pixels [n, g, k, p]; g and n only where there are several."""
    nest = nest_of(problem)
    lead, extent = nest.named(Role.LEAD), nest.extents
    images, groups = (tuple(d for d in lead if d == name) for name in ("n", "g"))
    indices = (
        (*groups, "co", "k"),
        (*images, *groups, "k", "p"),
        (*images, *groups, "co", "p"),
    )
    a, b, c = (tuple(extent[dim] for dim in operand) for operand in indices)
    dims = (*lead, "co", "p", "k")
    maps = (_list(indices[0]), _list(indices[1]), _list(indices[2]))
    return Contraction("linalg.generic", dims, maps, (a, b, c))


def pixels(problem: Conv2d) -> str:
    """The indices of the pixel that a tap of an output reads, in affine terms."""
    return ", ".join(
        f"o{axis} * {problem.stride} + k{axis} * {problem.dilation}" for axis in ("h", "w")
    )


def _list(dims: tuple[str, ...]) -> str:
    return ", ".join(dims)
