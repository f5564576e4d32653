"""Loop nests that multiply and add, and the problem that each is, without MLIR.

In `C[..] += A[..] * B[..]` each axis is indexed by a sum of loop dims times constants. A problem's
operands may have another order of axes; the order that moves the fewest elements is chosen.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import cast

from tilewise.kernels.problem.spatial import canonical

Term = tuple[int, int]
"""A loop dim and its coefficient."""
Axis = tuple[Term, ...]
Dims = tuple[int, ...]
Loops = frozenset[int]
Keys = dict[str, int | str | bool]
Costs = tuple[int, int, int]
"""Of moving an element of the nest's operands."""


class NestRefusedError(Exception):
    """The nest is not a problem; the message tells the author of the op why."""


def dims_of(axes: Iterable[Axis]) -> frozenset[int]:
    """Return the dims along which some axes are read."""
    return frozenset(dim for axis in axes for dim, _ in axis)


def slides(axis: Axis) -> bool:
    """Return whether an axis is read at a sum or a multiple of dims, as by a window."""
    return len(axis) > 1 or bool(axis and axis[0][1] != 1)


@dataclass(frozen=True)
class NestOperand:
    """How a nest indexes a tensor; an axis that is read at 0 has no term."""

    axes: tuple[Axis, ...]
    shape: tuple[int, ...]

    @property
    def dims(self) -> frozenset[int]:
        """The dims that index it."""
        return dims_of(self.axes)

    @property
    def has_windows(self) -> bool:
        """Whether an axis is indexed by sums or multiples of dims, as in a convolution."""
        return any(map(slides, self.axes))

    def transposed(self, axes: Sequence[int] | None) -> "NestOperand":
        """Return the operand with its axes in another order, or some of them; itself for None."""
        if axes is None:
            return self
        return NestOperand(tuple(self.axes[i] for i in axes), tuple(self.shape[i] for i in axes))


@dataclass(frozen=True)
class ContractionNest:
    """A nest of loops around one multiplication and one addition."""

    extents: tuple[int, ...]
    a: NestOperand
    b: NestOperand
    c: NestOperand

    @property
    def has_windows(self) -> bool:
        """Whether an input is read through windows."""
        return self.a.has_windows or self.b.has_windows

    def extent(self, dims: Iterable[int]) -> int:
        """Return the product of extents."""
        return prod(self.extents[dim] for dim in dims)

    def has_length(self, dim: int) -> bool:
        """Return whether a loop has more than one step."""
        return self.extents[dim] > 1

    def swapped(self) -> "ContractionNest":
        """Return the nest with its inputs exchanged."""
        return replace(self, a=self.b, b=self.a)


@dataclass(frozen=True)
class OperandLayout:
    """A problem that a nest is, and how the operands become those of the problem.

    Attributes:
        sizes: the problem's keys that follow from the nest.
        axes: of A, B and C, in the problem's order.
        is_swapped: whether the nest's B is the problem's A.
        moved: cost of transpositions, in elements.
        columns: axes of C along which a bias varies.
        spatial: axes of the image along h and w; empty for a matmul.
    """

    sizes: Keys
    axes: tuple[Dims, Dims, Dims]
    is_swapped: bool
    moved: int
    columns: frozenset[int]
    spatial: tuple[int | None, ...] = ()

    @property
    def is_convolution(self) -> bool:
        """Whether it is a conv2d."""
        return bool(self.spatial)

    @property
    def inputs(self) -> tuple[int, int]:
        """The numbers of the nest's inputs that are the problem's A and B."""
        return (1, 0) if self.is_swapped else (0, 1)


def moves(axes: Sequence[int], shape: Sequence[int]) -> bool:
    """Return whether a transposition moves elements in memory."""
    long = [axis for axis in axes if shape[axis] > 1]
    return long != sorted(long)


def effort(axes: Sequence[int], shape: Sequence[int], cost: int) -> int:
    """Return a transposition's cost: elements copied, plus 1.

    `cost` is that of one element, 0 for a constant, which is transposed ahead.
    """
    return cost * prod(shape) + 1 if moves(axes, shape) else 0


def _orders(dims: frozenset[int], *operands: NestOperand) -> tuple[Dims, ...]:
    """Return the distinct orders in which operands have some dims."""
    return tuple(dict.fromkeys(
        tuple(dim for axis in operand.axes for dim, _ in axis if dim in dims)
        for operand in operands
    ))  # fmt: skip


def _check_whole(nest: ContractionNest, a: str, b: str) -> None:
    """Refuse diagonals, and operands that are only partly read; A and B have these names."""
    for name, operand in ((a, nest.a), (b, nest.b), ("the result", nest.c)):
        seen = [dim for axis in operand.axes for dim, _ in axis]
        if len(seen) != len(set(seen)):
            raise NestRefusedError(f"reads {name} along a diagonal: one index runs over two axes")
        for axis, size in zip(operand.axes, operand.shape, strict=True):
            if not slides(axis) and size != nest.extent(dims_of([axis])):
                raise NestRefusedError(f"reads a part of {name} alone")


def matmul_layout(
    nest: ContractionNest, costs: Costs = (1, 1, 1), *, is_swapped: bool | None = None
) -> OperandLayout:
    """Return the matmul that a nest is, with the fewest elements moved, or raise RefusedError.

    `is_swapped` says whether the nest's second input has to be A; None for either.
    """
    _check_whole(nest, "the first input", "the second input")
    swaps = (False, True) if is_swapped is None else (is_swapped,)
    found = [one for swapped in swaps for one in _product_layouts(nest, costs, is_swapped=swapped)]
    return min(found, key=_rank)


def contraction_roles(nest: ContractionNest) -> tuple[Loops, Loops, Loops, Loops]:
    """Return the batch, m, n and k loops of a contraction, or raise RefusedError.

    A loop of one step has no role.
    """
    in_a, in_b, in_c = _long_loops(nest, "the first input", "the second input")
    return in_a & in_b & in_c, in_a - in_b, in_b - in_a, in_a & in_b - in_c


def _long_loops(
    nest: ContractionNest, a: str, b: str, without: Collection[int | None] = ()
) -> tuple[Loops, Loops, Loops]:
    """Return the loops of A, B (in a message by these names) and the result, with several steps."""
    in_a, in_b, in_c = (
        frozenset(dim for dim in operand.dims.difference(without) if nest.has_length(dim))
        for operand in (nest.a, nest.b, nest.c)
    )
    if alone := (in_a ^ in_b) - in_c:
        which = a if alone & in_a else b
        raise NestRefusedError(f"sums {which} alone over an index that the other lacks")
    if in_c - in_a - in_b:
        raise NestRefusedError("repeats its result along an axis that neither input has")
    return in_a, in_b, in_c


def _rank(layout: OperandLayout) -> tuple[int, bool, int]:
    flags = bool(layout.sizes["transpose_a"]) + bool(layout.sizes["transpose_b"])
    return layout.moved, layout.is_swapped, flags


def _product_layouts(
    nest: ContractionNest, costs: Costs, *, is_swapped: bool
) -> Iterator[OperandLayout]:
    """Yield every way to name the dims and to order them."""
    batches, rows, columns, sums = contraction_roles(nest)
    if is_swapped:
        nest, costs, rows, columns = nest.swapped(), _swapped(costs), columns, rows
    for batch, m, n, k in product(
        _orders(batches, nest.c, nest.a, nest.b),
        _orders(rows, nest.c, nest.a),
        _orders(columns, nest.c, nest.b),
        _orders(sums, nest.a, nest.b),
    ):
        named = zip(("batch", "m", "n", "k"), (batch, m, n, k), strict=True)
        sizes: Keys = {name: nest.extent(dims) for name, dims in named}
        for transpose_a, transpose_b in product((False, True), repeat=2):
            wanted = (
                (*batch, *k, *m) if transpose_a else (*batch, *m, *k),
                (*batch, *n, *k) if transpose_b else (*batch, *k, *n),
                (*batch, *m, *n),
            )
            keys = {**sizes, "transpose_a": transpose_a, "transpose_b": transpose_b}
            yield _layout(nest, costs, keys, wanted, n, is_swapped=is_swapped)


def _swapped(costs: Costs) -> Costs:
    first, second, result = costs
    return second, first, result


def _layout(
    nest: ContractionNest,
    costs: Costs,
    sizes: Keys,
    wanted: tuple[Dims, Dims, Dims],
    columns: Dims,
    spatial: tuple[int | None, ...] = (),
    *,
    is_swapped: bool,
) -> OperandLayout:
    """Return the layout of a nest of A, B and C that have their dims in the `wanted` orders."""
    operands = nest.a, nest.b, nest.c
    a, b, c = map(_axes_in_order, operands, wanted)
    shapes = (operand.shape for operand in operands)
    moved = sum(map(effort, (a, b, c), shapes, costs))
    along = frozenset(i for i, axis in enumerate(nest.c.axes) if axis and axis[0][0] in columns)
    return OperandLayout(sizes, (a, b, c), is_swapped, moved, along, spatial)


def _axes_in_order(operand: NestOperand, dims: Dims) -> Dims:
    """Return an operand's axes in the order of dims; axes of one element come first."""
    of_dim = {axis[0][0]: i for i, axis in enumerate(operand.axes) if axis}
    of_dim |= {dim: i for i, axis in enumerate(operand.axes) for dim, _ in axis}
    order = tuple(of_dim[dim] for dim in dims)
    rest = tuple(i for i in range(len(operand.axes)) if i not in order)
    return (*rest, *order)


LAYOUTS = ("nhwc_hwcf", "nchw_fchw")


@dataclass(frozen=True)
class WindowAxis:
    """An axis of the image along which the filter moves.

    Attributes:
        axis: of the image; None if the op has no such axis.
        out, tap: dims of the result and of the filter; None for length 1.
        stride, dilation: 0 if irrelevant.
        outs, taps: lengths of the two dims.
    """

    axis: int | None = None
    size: int = 1
    out: int | None = None
    tap: int | None = None
    stride: int = 0
    dilation: int = 0
    outs: int = 1
    taps: int = 1


def convolution_layout(nest: ContractionNest, costs: Costs = (1, 1, 1)) -> OperandLayout:
    """Return the conv2d that a nest is, with the fewest elements moved, or raise RefusedError.

    The image's size is that of what the op reads, padded or not.
    """
    is_swapped = not nest.a.has_windows
    if is_swapped:
        nest, costs = nest.swapped(), _swapped(costs)
    if nest.b.has_windows:
        raise NestRefusedError("both inputs are read through windows")
    _check_whole(nest, "the image", "the filter")
    found = _image_layouts(nest, costs, is_swapped=is_swapped)
    return min(found, key=lambda layout: (layout.moved, layout.sizes["w"] == 1))  # a line is long


def convolution_roles(
    nest: ContractionNest,
) -> tuple[tuple[WindowAxis, WindowAxis], tuple[Loops, Loops, Loops, Loops]]:
    """Return the windows of a nest whose first input is the image, and its other loops.

    These are the loops over images, groups, input channels and output channels.
    """
    windows = _windows(nest)
    used = {dim for window in windows for dim in (window.out, window.tap)}
    in_a, in_b, in_c = _long_loops(nest, "one input", "one input", used)
    return windows, (
        in_a & in_c - in_b, in_a & in_b & in_c, in_a & in_b - in_c, in_b & in_c - in_a
    )  # fmt: skip


def _windows(nest: ContractionNest) -> tuple[WindowAxis, WindowAxis]:
    """Return the two windows in the result's order."""
    found = [_window(nest, i) for i, axis in enumerate(nest.a.axes) if slides(axis)]
    if len(found) > 2:
        raise NestRefusedError(f"convolves {len(found)} dimensions; conv2d has two")
    place = {dim: i for i, axis in enumerate(nest.c.axes) for dim, _ in axis}
    found.sort(key=lambda window: place.get(-1 if window.out is None else window.out, -1))
    if len(found) == 1:
        found.insert(0, WindowAxis())
    return found[0], found[1]


def _window(nest: ContractionNest, place: int) -> WindowAxis:
    """Return the window along an axis of the image."""
    out = tap = None
    stride = dilation = 0
    for dim, step in nest.a.axes[place]:
        if step < 1:
            raise NestRefusedError("reads the image backwards")
        if dim in nest.c.dims and out is None:
            out, stride = dim, step
        elif dim not in nest.c.dims and tap is None:
            tap, dilation = dim, step
        else:
            raise NestRefusedError("reads the image at a sum of more than an output and a tap")
    if out is not None and out in nest.b.dims and nest.has_length(out):
        raise NestRefusedError("has another filter for each pixel")
    if tap is not None and tap not in nest.b.dims and nest.has_length(tap):
        raise NestRefusedError("sums windows without a filter, as a pooling does")
    outs = 1 if out is None else nest.extents[out]
    taps = 1 if tap is None else nest.extents[tap]
    is_strided = outs > 1 or nest.a.shape[place] > dilation * (taps - 1) + 1
    stride, dilation = stride if is_strided else 0, dilation if taps > 1 else 0
    return WindowAxis(place, nest.a.shape[place], out, tap, stride, dilation, outs, taps)


def _image_layouts(
    nest: ContractionNest, costs: Costs, *, is_swapped: bool
) -> Iterator[OperandLayout]:
    """Yield every way to name the dims and to order them."""
    windows, (images, groups, inputs, outputs) = convolution_roles(nest)
    for seen in (windows, windows[::-1]):
        for n, g, c, f in product(
            _orders(images, nest.c, nest.a),
            _orders(groups, nest.c, nest.a, nest.b),
            _orders(inputs, nest.a, nest.b),
            _orders(outputs, nest.c, nest.b),
        ):
            sizes, spatial = _sizes(nest, seen, (n, g, c, f)), (seen[0].axis, seen[1].axis)
            for layout in LAYOUTS:
                keys, wanted = {**sizes, "layout": layout}, _wanted(layout, seen, (n, g, c, f))
                yield _layout(nest, costs, keys, wanted, (*g, *f), spatial, is_swapped=is_swapped)


def _wanted(
    layout: str, windows: tuple[WindowAxis, WindowAxis], roles: tuple[Dims, ...]
) -> tuple[Dims, Dims, Dims]:
    """Return the dims of the image, the filter and the result in a layout's order."""
    n, g, c, f = roles
    outs = cast("Dims", tuple(w.out if w.out is not None else w.tap for w in windows
                              if w.axis is not None))  # fmt: skip
    taps = tuple(w.tap for w in windows if w.tap is not None)
    pixels = tuple(w.out for w in windows if w.out is not None)
    if layout == LAYOUTS[0]:
        return (*n, *outs, *g, *c), (*taps, *c, *g, *f), (*n, *pixels, *g, *f)
    return (*n, *g, *c, *outs), (*g, *f, *c, *taps), (*n, *g, *f, *pixels)


def _sizes(
    nest: ContractionNest, windows: tuple[WindowAxis, WindowAxis], roles: tuple[Dims, ...]
) -> Keys:
    n, g, c, f = roles
    groups = nest.extent(g)
    strides, dilations = (
        _filled([getattr(w, name) for w in windows]) for name in ("stride", "dilation")
    )
    for window, stride, dilation in zip(windows, strides, dilations, strict=True):
        if (window.size - dilation * (window.taps - 1) - 1) // stride + 1 != window.outs:
            raise NestRefusedError(
                f"reads {window.outs} windows of an image of {window.size}, and leaves others out"
            )
    return {
        "n": nest.extent(n), "h": windows[0].size, "w": windows[1].size,
        "ci": groups * nest.extent(c), "co": groups * nest.extent(f),
        "kh": windows[0].taps, "kw": windows[1].taps,
        "stride": canonical(strides), "dilation": canonical(dilations), "groups": groups,
    }  # fmt: skip


def _filled(values: list[int]) -> tuple[int, ...]:
    """Return the values of a key along both dimensions; a side without one takes the other's."""
    known = next((value for value in values if value), 1)
    return tuple(value or known for value in values)
