"""The loops of an op by what they do: visited alone, rows, columns, the reduction."""

from collections.abc import Iterable
from dataclasses import dataclass

from tilewise.kernels.mlir.frontend.graph import Arrangement, Occurrence
from tilewise.kernels.mlir.frontend.nest import (
    Axis,
    Dims,
    Nest,
    Operand,
    contraction_roles,
    convolution_roles,
)

MAINS = ("m", "n", "k", "ow", "co", "ci")
"""The names of the loops that a schedule tiles: rows, columns, the reduction."""


LONG = 16
"""Steps of a loop that a schedule may tile where a longer one would have an operand packed."""


@dataclass(frozen=True)
class Parts:
    """The loops of an op that are more than one step, outermost first.

    Attributes:
        lead: what both B and C have: batches, groups.
        rows: what A and C have: images and pixels of a convolution.
        cols: what B and C have.
        sums: what A and B have: channels and taps of a convolution.
        names: of the dims.
        fixed: the loops that stay where they are when operands are packed: images, and those that
            an image is read at sums of.
    """

    lead: Dims
    rows: Dims
    cols: Dims
    sums: Dims
    names: dict[int, str]
    fixed: frozenset[int] = frozenset()

    @property
    def alone(self) -> Dims:
        """The loops that both B and C have, and that are visited one step at a time."""
        return (*self.lead, *(dim for dim in self.cols if dim not in self.mains))

    @property
    def mains(self) -> Dims:
        """The loops that the schedule tiles: a row, a column, the reduction."""
        loops = (*self.rows, *self.cols, *self.sums)
        return tuple(dim for dim in loops if self.names[dim] in MAINS)

    @property
    def around(self) -> Dims:
        """The others."""
        outer = (dim for dim in (*self.rows, *self.sums) if dim not in self.mains)
        return (*self.alone, *outer)

    @property
    def taps(self) -> Dims:
        """The loops over the reduction that are not streamed."""
        return tuple(dim for dim in self.sums if dim not in self.mains)

    @property
    def order(self) -> Dims:
        """All of them, those of the schedule innermost."""
        return (*self.around, *self.mains)

    def within(self, own: Dims, *, reduction_first: bool = False) -> Dims:
        """The loops of an input with these rows or columns, in the order in which it is packed."""
        found = [dim for dim in self.order if dim in (*self.lead, *own, *self.sums)]
        if reduction_first:  # of the two that the schedule tiles
            found.sort(key=lambda dim: (dim in self.mains) + (dim in self.mains and dim in own))
        return tuple(found)

    @property
    def result(self) -> Dims:
        """The loops of the result in the order in which it is packed."""
        return tuple(dim for dim in self.order if dim not in self.sums)

    def names_of(self, dims: Iterable[int]) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.names[dim] for dim in dims)


def product_parts(nest: Nest, found: Occurrence) -> Parts:
    """The parts of a product of matrices, in the order of the problem's operands.

    Args:
        nest: with the problem's A and B as its inputs.
        found: the problem.
    """
    lead, rows, cols, sums = contraction_roles(nest)
    in_a, in_c = _arranged(nest.a, found.a), _arranged(nest.c, found.c)
    parts = (
        _in_order(lead, in_c),
        _inner_last(nest, _in_order(rows, in_c), lead),
        _in_order(cols, in_c),
        _inner_last(nest, _in_order(sums, in_a), lead),
    )
    names = {
        **_named("batch", parts[0], has_main=len(lead) == 1),
        **_named("m", parts[1]),
        **_named("n", parts[2]),
        **_named("k", parts[3]),
    }
    return Parts(*parts, names)


def convolution_parts(nest: Nest, found: Occurrence) -> Parts:
    """The parts of a convolution, as those of a product of pixels and filters.

    Args:
        nest: with the image and the filters as its inputs.
        found: the problem.
    """
    windows, roles = convolution_roles(nest)
    place = {axis: i for i, axis in enumerate(found.a.axes)}
    down, across = sorted(windows, key=lambda one: -1 if one.axis is None else place[one.axis])
    in_c, in_b = _arranged(nest.c, found.c), _arranged(nest.b, found.b)
    images, groups, outputs = (
        _in_order(one, in_c) for one in (roles.images, roles.groups, roles.outputs)
    )
    inputs = _largest_last(nest, _in_order(roles.inputs, in_b))
    pixels = {down.out: "oh", across.out: "ow"}
    taps = {down.tap: "kh", across.tap: "kw"}
    names = {
        **_named("g", groups, has_main=len(groups) == 1),
        **_named("n", images),
        **_named("co", outputs),
        **_named("ci", inputs),
        **{dim: name for dim, name in (pixels | taps).items() if dim is not None},
    }
    long = [dim for dim in names if nest.has_length(dim)]
    return Parts(
        groups,
        (*images, *(dim for dim in pixels if dim in long)),
        outputs,
        (*inputs[:-1], *(dim for dim in taps if dim in long), *inputs[-1:]),
        names,
        frozenset(dim for dim in (*images, *pixels, *taps) if dim is not None),
    )


def axes_of(nest: Nest, operand: Operand) -> Dims:
    """The dims of an operand's axes in order, without those of one step.

    An axis that is read at sums has the dim of the result, if that is a loop.
    """
    return tuple(dim for axis in operand.axes if (dim := _dim(nest, axis)) is not None)


def _dim(nest: Nest, axis: Axis) -> int | None:
    long = [dim for dim, _ in axis if nest.has_length(dim)]
    of_result = [dim for dim in long if dim in nest.c.dims]
    return next(iter((*of_result, *long)), None)


def _arranged(operand: Operand, how: Arrangement) -> Dims:
    """The dims of an operand in the order in which the problem has them."""
    return tuple(dim for i in how.axes for dim, _ in operand.axes[i])


def _in_order(dims: frozenset[int], order: Dims) -> Dims:
    return tuple(dim for dim in order if dim in dims)


def _largest_last(nest: Nest, dims: Dims) -> Dims:
    """The dims with the longest one at the end; of equals the last."""
    if not dims:
        return dims
    main = max(dims, key=lambda dim: (nest.extents[dim], dims.index(dim)))
    return (*(dim for dim in dims if dim != main), main)


def _inner_last(nest: Nest, dims: Dims, lead: frozenset[int]) -> Dims:
    """The dims with that at the end which is innermost in A, if it is long; else the longest.

    Where A's innermost axis is short or one of `lead`, A is packed, and the longest serves best.
    """
    inner = axes_of(nest, nest.a)
    if not inner or inner[-1] in lead or nest.extents[inner[-1]] < LONG:
        return _largest_last(nest, dims)
    long = [dim for dim in inner if dim in dims and nest.extents[dim] >= LONG]
    if not long:
        return _largest_last(nest, dims)
    return (*(dim for dim in dims if dim != long[-1]), long[-1])


def _named(name: str, dims: Dims, *, has_main: bool = True) -> dict[int, str]:
    """Names of the dims of a part: the last one has that of the problem, if it is to."""
    outer = dims[:-1] if has_main else dims
    names = {dim: f"{name}{i}" for i, dim in enumerate(outer)}
    return names | ({dims[-1]: name} if has_main and dims else {})
