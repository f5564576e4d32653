"""Nests that are convolutions of two dimensions: windows, channels, groups, and their layout."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import cast

from tilewise.kernels.mlir.frontend.nest import (
    Axis,
    Dims,
    Layout,
    Nest,
    Operand,
    RefusedError,
    check_whole,
    effort,
    orders,
)

LAYOUTS = ("nhwc_hwcf", "nchw_fchw")


@dataclass(frozen=True)
class Window:
    """An axis of the image along which the filter moves.

    Attributes:
        axis: of the image; None for one that the op does not have.
        size: of the image along it.
        out, tap: dims of the result and of the filter; None for one of length 1.
        stride, dilation: steps; 0 where it does not matter.
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


@dataclass(frozen=True)
class ConvolutionRoles:
    """The dims of a convolution by what they do."""

    images: frozenset[int]
    groups: frozenset[int]
    inputs: frozenset[int]
    outputs: frozenset[int]


def convolution_layout(nest: Nest, costs: tuple[int, int, int] = (1, 1, 1)) -> Layout:
    """The conv2d that a nest with windows is, with as few elements moved as there may be.

    The image's size is that of what the op reads, padded or not.

    Args:
        nest: with windows.
        costs: of moving an element of A, B and C; 0 for a constant.

    Raises:
        RefusedError: it is none.
    """
    is_swapped = not _has_windows(nest.a)
    image, filters = (nest.b, nest.a) if is_swapped else (nest.a, nest.b)
    if _has_windows(filters):
        raise RefusedError("both inputs are read through windows")
    for name, operand in (("the image", image), ("the filter", filters), ("the result", nest.c)):
        check_whole(nest, operand, name)
    windows = _windows(nest, image, filters)
    roles = _roles(nest, image, filters, windows)
    moving = (costs[1], costs[0], costs[2]) if is_swapped else costs
    found = list(_layouts(nest, (image, filters), windows, roles, moving))
    best = min(found, key=lambda layout: layout.moved)
    return Layout(best.sizes, best.axes, is_swapped, best.moved, best.columns, best.spatial)


def convolution_roles(nest: Nest) -> tuple[tuple[Window, Window], ConvolutionRoles]:
    """The windows of a nest whose first input is the image, and what its other loops do.

    Raises:
        RefusedError: it is no convolution.
    """
    windows = _windows(nest, nest.a, nest.b)
    return windows, _roles(nest, nest.a, nest.b, windows)


def _has_windows(operand: Operand) -> bool:
    return any(len(axis) > 1 or (axis and axis[0][1] != 1) for axis in operand.axes)


def _windows(nest: Nest, image: Operand, filters: Operand) -> tuple[Window, Window]:
    """The two windows in the order in which the result has them."""
    found = [
        _window(nest, filters, axis, i, image.shape[i])
        for i, axis in enumerate(image.axes)
        if len(axis) > 1 or (axis and axis[0][1] != 1)
    ]
    if len(found) > 2:
        raise RefusedError(f"convolves {len(found)} dimensions; conv2d has two")
    place = {dim: i for i, axis in enumerate(nest.c.axes) for dim, _ in axis}
    found.sort(key=lambda window: place.get(-1 if window.out is None else window.out, -1))
    if len(found) == 1:
        found.insert(0, Window())
    return found[0], found[1]


def _window(nest: Nest, filters: Operand, axis: Axis, place: int, size: int) -> Window:
    out = tap = None
    stride = dilation = 0
    for dim, step in axis:
        if step < 1:
            raise RefusedError("reads the image backwards")
        if dim in nest.c.dims and out is None:
            out, stride = dim, step
        elif dim not in nest.c.dims and tap is None:
            tap, dilation = dim, step
        else:
            raise RefusedError("reads the image at a sum of more than an output and a tap")
    if out is not None and out in filters.dims and nest.has_length(out):
        raise RefusedError("has another filter for each pixel")
    if tap is not None and tap not in filters.dims and nest.has_length(tap):
        raise RefusedError("sums windows without a filter, as a pooling does")
    outs = 1 if out is None else nest.extents[out]
    taps = 1 if tap is None else nest.extents[tap]
    return Window(
        place, size, out, tap, stride if outs > 1 else 0, dilation if taps > 1 else 0, outs, taps
    )


def _roles(
    nest: Nest, image: Operand, filters: Operand, windows: tuple[Window, Window]
) -> ConvolutionRoles:
    used = {dim for window in windows for dim in (window.out, window.tap)}
    in_a, in_b, in_c = (
        frozenset(dim for dim in operand.dims - used if nest.has_length(dim))
        for operand in (image, filters, nest.c)
    )
    if (in_a ^ in_b) - in_c:
        raise RefusedError("sums one input alone over an index that the other lacks")
    if in_c - in_a - in_b:
        raise RefusedError("repeats its result along an axis that neither input has")
    return ConvolutionRoles(
        in_a & in_c - in_b, in_a & in_b & in_c, in_a & in_b - in_c, in_b & in_c - in_a
    )


def _layouts(
    nest: Nest,
    inputs: tuple[Operand, Operand],
    windows: tuple[Window, Window],
    roles: ConvolutionRoles,
    costs: tuple[int, int, int],
) -> Iterator[Layout]:
    image, filters = inputs
    operands = (image, filters, nest.c)
    for seen in (windows, windows[::-1]):
        for n, g, c, f in product(
            _orders(roles.images, nest.c, image),
            _orders(roles.groups, nest.c, image, filters),
            _orders(roles.inputs, image, filters),
            _orders(roles.outputs, nest.c, filters),
        ):
            sizes = _sizes(nest, seen, (n, g, c, f))
            for layout in LAYOUTS:
                wanted = _wanted(layout, seen, (n, g, c, f))
                axes = tuple(
                    _axes(operand, order) for operand, order in zip(operands, wanted, strict=True)
                )
                yield Layout(
                    {**sizes, "layout": layout},
                    (axes[0], axes[1], axes[2]),
                    is_swapped=False,
                    moved=sum(
                        effort(order, operand.shape, cost)
                        for cost, order, operand in zip(costs, axes, operands, strict=True)
                    ),
                    columns=frozenset(
                        i for i, axis in enumerate(nest.c.axes) if axis and axis[0][0] in (*g, *f)
                    ),
                    spatial=(seen[0].axis, seen[1].axis),
                )


def _orders(dims: frozenset[int], *operands: Operand) -> tuple[Dims, ...]:
    return orders(
        *(tuple(dim for axis in operand.axes for dim, _ in axis if dim in dims)
          for operand in operands)
    )  # fmt: skip


def _wanted(
    layout: str, windows: tuple[Window, Window], roles: tuple[Dims, ...]
) -> tuple[Dims, Dims, Dims]:
    """Dims of the image, the filter and the result in a layout's order."""
    n, g, c, f = roles
    outs = cast("Dims", tuple(w.out if w.out is not None else w.tap for w in windows
                              if w.axis is not None))  # fmt: skip
    taps = tuple(w.tap for w in windows if w.tap is not None)
    pixels = tuple(w.out for w in windows if w.out is not None)
    if layout == LAYOUTS[0]:
        return (*n, *outs, *g, *c), (*taps, *c, *g, *f), (*n, *pixels, *g, *f)
    return (*n, *g, *c, *outs), (*g, *f, *c, *taps), (*n, *g, *f, *pixels)


def _axes(operand: Operand, dims: Dims) -> Dims:
    """The operand's axes in the order of dims; those of one element come first."""
    of_dim = {axis[0][0]: i for i, axis in enumerate(operand.axes) if axis}
    of_dim |= {dim: i for i, axis in enumerate(operand.axes) for dim, _ in axis}
    order = tuple(of_dim[dim] for dim in dims)
    rest = tuple(i for i in range(len(operand.axes)) if i not in order)
    return (*rest, *order)


def _sizes(
    nest: Nest, windows: tuple[Window, Window], roles: tuple[Dims, ...]
) -> dict[str, int | str | bool]:
    n, g, c, f = roles
    groups = nest.extent(g)
    stride = _shared("stride", [w.stride for w in windows])
    dilation = _shared("dilation", [w.dilation for w in windows])
    for window in windows:
        if (window.size - dilation * (window.taps - 1) - 1) // stride + 1 != window.outs:
            raise RefusedError(
                f"reads {window.outs} windows of an image of {window.size}, and leaves others out"
            )
    return {
        "n": nest.extent(n), "h": windows[0].size, "w": windows[1].size,
        "ci": groups * nest.extent(c), "co": groups * nest.extent(f),
        "kh": windows[0].taps, "kw": windows[1].taps,
        "stride": stride, "dilation": dilation, "groups": groups,
    }  # fmt: skip


def _shared(name: str, values: list[int]) -> int:
    """The one value of a key that both dimensions share."""
    told = {value for value in values if value}
    if len(told) > 1:
        raise RefusedError(f"has {name} {values[0]} along h and {values[1]} along w")
    return told.pop() if told else 1
