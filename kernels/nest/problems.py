"""The nest of a problem before any step: its dims, its operands as accesses, one whole product.

Layouts, transposition, groups and patches are stated here, once, as accesses.

Rows of A are rows of the result, columns of B its columns; the contiguous dim of the result is the
columns. So for nhwc A is the image and B the filter, as the problem names them; for nchw they
change places, and B is what the filter sees of one image, a column for each pixel. In a depthwise
convolution, or a grouped one of few channels, columns (or rows, for nchw) run over all groups.
"""

from functools import lru_cache, singledispatch
from math import prod

from tilewise.kernels.nest.access import Axis, Dim, Operand, Role, Term
from tilewise.kernels.nest.nest import Nest
from tilewise.kernels.nest.nodes import Compute, Store
from tilewise.kernels.problem import Convolution, Matmul, Problem

FEW_CHANNELS = 8
FEW_TAPS = 128
FEW_PRODUCTS = 256
"""Channels of a group (of the image, of the result), taps of the filter, and products of an output,
up to which groups are computed together: there is code for every product of every output of a tile,
and more of it where tiles of a line read padding in different ways."""


@lru_cache(maxsize=256)
def nest_of(problem: Problem) -> Nest:
    """Return the nest of a problem: C += A * B over everything at once."""
    return before_steps(problem)


@singledispatch
def before_steps(problem: Problem) -> Nest:
    """Return the nest of an operation, which registers what makes it."""
    raise TypeError(f"no loop nest for {type(problem).__name__}")


def whole(problem: Problem) -> tuple[Compute, Store]:
    """Return the nodes of a product that nothing has cut."""
    store = Store(
        problem.accumulates,
        problem.has_bias,
        problem.function,
        rounds_to=problem.out,
        has_addition=problem.add,
        requant=problem.requant,
    )
    return Compute(), store


@before_steps.register
def _matmul(problem: Matmul) -> Nest:
    m, n, k = problem.m, problem.n, problem.k
    dims: tuple[Dim, ...] = ()
    lead: tuple[Axis, ...] = ()
    if problem.batch > 1:
        dims = (Dim("batch", problem.batch, Role.LEAD, single=True),)
        lead = (Axis(problem.batch, (Term("batch"),)),)
    rows, cols, depth = _axis("m", m), _axis("n", n), _axis("k", k)
    a = (depth, rows) if problem.transpose_a else (rows, depth)
    b = (cols, depth) if problem.transpose_b else (depth, cols)
    return Nest(
        problem,
        (*dims, Dim("m", m, Role.ROW), Dim("n", n, Role.COL), Dim("k", k, Role.K)),
        (
            Operand("A", "A", (*lead, *a)),
            Operand("B", "B", (*lead, *b), problem.keeps_panels),
            Operand("C", "C", (*lead, rows, cols)),
            Operand("bias", "bias", (cols,)),
        ),
        whole(problem),
    )


@before_steps.register
def _convolution(problem: Convolution) -> Nest:
    if _has_small_groups(problem):
        return _grouped(problem)
    return _nchw(problem) if problem.has_channels_first else _nhwc(problem)


def _has_small_groups(problem: Convolution) -> bool:
    """Whether columns run over all groups: a product per group would leave most lanes idle."""
    inputs, outputs = problem.ci // problem.groups, problem.co // problem.groups
    taps, has_groups = problem.kh * problem.kw, problem.groups > 1
    is_short = taps <= FEW_TAPS and taps * inputs <= FEW_PRODUCTS
    return has_groups and max(inputs, outputs) <= FEW_CHANNELS and is_short


def _nhwc(problem: Convolution) -> Nest:
    """Rows are pixels, columns are output channels, taps are loops of the micro-kernel."""
    ci, co = problem.ci // problem.groups, problem.co // problem.groups
    lead = (Dim("g", problem.groups, Role.LEAD, single=True),) if problem.groups > 1 else ()
    inputs, outputs = _of_group(problem, "ci", ci), _of_group(problem, "co", co)
    image = (_axis("n", problem.n), *_lines_and_pixels(problem), inputs)
    pixels = tuple(_axis(dim.name, dim.extent) for dim in _pixel_dims(problem))
    taps = tuple(_axis(dim.name, dim.extent) for dim in _tap_dims(problem))
    return Nest(
        problem,
        (
            *(*lead, *_pixel_dims(problem), Dim("co", co, Role.COL), Dim("ci", ci, Role.K)),
            *_tap_dims(problem),
        ),
        (
            Operand("A", "A", image),
            Operand("B", "B", (*taps, _axis("ci", ci), outputs), problem.keeps_panels),
            Operand("C", "C", (*pixels, outputs)),
            Operand("bias", "bias", (outputs,)),
        ),
        whole(problem),
        image="A",
    )


def _nchw(problem: Convolution) -> Nest:
    """Rows are output channels, columns are pixels, and B is what the filter sees of the image."""
    groups, taps = problem.groups, prod(problem.window)
    ci, co, pixels = problem.ci // groups, problem.co // groups, prod(problem.outputs)
    sizes = (("g", groups), ("n", problem.n))
    lead = tuple(Dim(name, size, Role.LEAD, single=True) for name, size in sizes if size > 1)
    images = _axis("n", problem.n) if problem.n > 1 else Axis(1, ())
    outputs = _of_group(problem, "co", co)
    k = Dim("k", ci * taps, Role.K)
    return Nest(
        problem,
        (*lead, Dim("co", co, Role.ROW), Dim("p", pixels, Role.COL), k),
        (
            Operand("A", "B", (outputs, _axis("k", k.extent))),
            Operand("B", "A", (images, *_patches(problem, taps))),
            Operand("C", "C", (images, outputs, _axis("p", pixels))),
            Operand("bias", "bias", (outputs,)),
        ),
        whole(problem),
        image="B",
    )


def _patches(problem: Convolution, taps: int) -> tuple[Axis, ...]:
    """Channels and places of the image for k = (ci, kh, kw) and p = (oh, ow), slices before."""
    ci = problem.ci // problem.groups
    group = (Term("g", ci),) if problem.groups > 1 else ()
    if taps == 1 and set(problem.strides) == {1} and not problem.is_padded:
        plane = Axis(prod(problem.image), (Term("p"),))
        return (Axis(problem.ci, (*group, Term("k"))), plane)
    outputs, window = problem.outputs, problem.window
    channels = Axis(problem.ci, (*group, Term("k", div=taps)))
    places = []
    for at, size in enumerate(problem.image):
        of_output = Term("p", problem.strides[at], prod(outputs[at + 1 :]), outputs[at] * (at > 0))
        of_tap = Term("k", problem.dilations[at], prod(window[at + 1 :]), window[at])
        places.append(Axis(size, (of_output, of_tap), -problem.pads.low[at]))
    return (channels, *places)


def _grouped(problem: Convolution) -> Nest:
    """A depthwise convolution, or one of small groups: columns run over all groups."""
    ci, group = problem.ci // problem.groups, problem.co // problem.groups
    inputs = Axis(problem.ci, (Term("co", ci, div=group), Term("ci")))
    outputs, taps = _axis("co", problem.co), (_axis("kh", problem.kh), _axis("kw", problem.kw))
    images, lines = _axis("n", problem.n), _lines_and_pixels(problem)
    pixels = (_axis("oh", problem.oh), _axis("ow", problem.ow))
    n, oh, ow = _pixel_dims(problem)
    if problem.has_channels_first:
        dims = (n, Dim("co", problem.co, Role.ROW), oh, Dim("ow", problem.ow, Role.COL))
        a = Operand("A", "B", (outputs, _axis("ci", ci), *taps))
        b = Operand("B", "A", (images, inputs, *lines))
        c = Operand("C", "C", (images, outputs, *pixels))
    else:
        dims = (n, oh, ow, Dim("co", problem.co, Role.COL))
        a = Operand("A", "A", (images, *lines, inputs))
        b = Operand("B", "B", (*taps, _axis("ci", ci), outputs))
        c = Operand("C", "C", (images, *pixels, outputs))
    return Nest(
        problem,
        (*dims, Dim("ci", ci, Role.K), *_tap_dims(problem)),
        (a, b, c, Operand("bias", "bias", (outputs,))),
        whole(problem),
        image="B" if problem.has_channels_first else "A",
        group=group,
    )


def _axis(dim: str, size: int) -> Axis:
    return Axis(size, (Term(dim),))


def _of_group(problem: Convolution, dim: str, each: int) -> Axis:
    group = (Term("g", each),) if problem.groups > 1 else ()
    return Axis(each * problem.groups, (*group, Term(dim)))


def _lines_and_pixels(problem: Convolution) -> tuple[Axis, ...]:
    """Of the image, with the padding around it."""
    steps = zip(problem.strides, problem.dilations, problem.pads.low, strict=True)
    return tuple(
        Axis(size, (Term(f"o{axis}", stride), Term(f"k{axis}", dilation)), -pad)
        for axis, size, (stride, dilation, pad) in zip(
            problem.axes, problem.image, steps, strict=True
        )
    )


def _pixel_dims(problem: Convolution) -> tuple[Dim, ...]:
    """Of the result, whose slices are visited one at a time, as images are."""
    outputs = zip(problem.axes, problem.outputs, strict=True)
    return (
        Dim("n", problem.n, Role.ROW, single=True),
        *(Dim(f"o{axis}", size, Role.ROW, single=axis == "d") for axis, size in outputs),
    )


def _tap_dims(problem: Convolution) -> tuple[Dim, ...]:
    taps = zip(problem.axes, problem.window, strict=True)
    return tuple(Dim(f"k{axis}", size, Role.TAP) for axis, size in taps)
