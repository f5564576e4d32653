"""Layouts of tensors, and the problems that a node may be computed as in them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.mlir.frontend.graph import (
    Arrangement,
    Graph,
    Node,
    Occurrence,
    Size,
    TensorUse,
)
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.problem.spatial import canonical
from tilewise.search.networks.request import Layouts


@dataclass(frozen=True)
class TensorLayout:
    """A layout of a tensor.

    Attributes:
        order: axes longer than one, outermost first.
        halo: zeros on both sides of each axis in `around`.
        block: elements of a channel block; nonzero only in plans of version 0.1.
    """

    order: tuple[int, ...]
    halo: int = 0
    around: tuple[int, ...] = ()
    block: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether it is the model's layout."""
        return self.order == tuple(sorted(self.order)) and not self.halo

    @property
    def name(self) -> str:
        """A name such as `plain`, `axes 3,1,2`, `halo 1` or `blocks of 32`."""
        moved = self.order != tuple(sorted(self.order))
        parts = [f"axes {','.join(map(str, self.order))}"] if moved and not self.block else []
        parts += [f"blocks of {self.block}"] if self.block else []
        parts += [f"halo {self.halo}"] if self.halo else []
        return " ".join(parts) or "plain"


def ordered(axes: Sequence[int], shape: Sequence[Size]) -> TensorLayout:
    """Return the layout of a tensor whose axes are stored in an order, without those of one."""
    return TensorLayout(tuple(axis for axis in axes if shape[axis] != 1))


def plain(shape: Sequence[Size]) -> TensorLayout:
    """Return the layout of a tensor in the model."""
    return ordered(range(len(shape)), shape)


_MOVED = {False: (0, 3, 1, 2), True: (0, 2, 3, 1)}
"""Axes of an image with channels last, or first, in the order of the other layout."""


@dataclass(frozen=True)
class ProblemVariant:
    """A problem that a node may be computed as, and the layouts that it requires.

    `problem` is None for a node that is no contraction.
    """

    problem: str | None
    reads: tuple[TensorLayout, ...]
    makes: tuple[TensorLayout, ...]


def variants(node: Node, graph: Graph, layouts: Layouts) -> tuple[ProblemVariant, ...]:
    """Return the variants of a contraction, the model's own first."""
    assert node.found is not None
    own = _as_found(node, graph, parse_problem(node.found.problem), node.found)
    if layouts == "model":
        return (own,)
    return tuple(dict.fromkeys((own, *_moved(node, graph))))


def problems_of(graph: Graph, layouts: Layouts = "all") -> tuple[str, ...]:
    """Return every problem that a node may be computed as, once."""
    found = dict.fromkeys(
        variant.problem
        for node in graph.nodes
        if node.found is not None
        for variant in variants(node, graph, layouts)
    )
    return tuple(problem for problem in found if problem is not None)


def in_order(node: Node, graph: Graph, layout: TensorLayout) -> ProblemVariant | None:
    """Return an elementwise node with all tensors in one layout; None if it cannot.

    Each operand has to be read where the result is written, in the same shape.
    """
    uses = (*node.reads, *node.makes)
    shapes = {(use.shape, graph.tensors[use.tensor].shape) for use in uses}
    is_one = len({shape for pair in shapes for shape in pair}) == 1
    if not is_one or any(use.role for use in uses):
        return None
    return ProblemVariant(None, (layout,) * len(node.reads), (layout,) * len(node.makes))


def as_it_is(node: Node, graph: Graph) -> ProblemVariant:
    """Return a node in the model's layouts."""
    reads, makes = (
        tuple(plain(graph.tensors[use.tensor].shape) for use in uses)
        for uses in (node.reads, node.makes)
    )
    return ProblemVariant(None, reads, makes)


def needs_copy(node: Node, graph: Graph) -> bool:
    """Return whether an operand has to be transposed behind a view, which no layout expresses."""
    assert node.found is not None
    roles = node.found.arrangements
    return any(
        roles[use.role].moves and not _is_whole(use, graph, roles[use.role])
        for use in (*node.reads, *node.makes)
        if use.role in roles
    )


def _as_found(node: Node, graph: Graph, problem: Problem, found: Occurrence) -> ProblemVariant:
    """Return the variant with the layouts of an occurrence's arrangements."""

    def layout(use: TensorUse) -> TensorLayout:
        arrangement = found.arrangements.get(use.role)
        if arrangement is None or not _is_whole(use, graph, arrangement):
            return plain(graph.tensors[use.tensor].shape)
        return ordered(arrangement.axes, use.shape)

    reads, makes = (tuple(map(layout, uses)) for uses in (node.reads, node.makes))
    return ProblemVariant(problem.canonical, reads, makes)


def _is_whole(use: TensorUse, graph: Graph, arrangement: Arrangement) -> bool:
    """Return whether a use has all axes of its tensor and the arrangement covers them."""
    return use.shape == graph.tensors[use.tensor].shape and len(arrangement.axes) == len(use.shape)


def _moved(node: Node, graph: Graph) -> Iterator[ProblemVariant]:
    """Yield a convolution's variants: with a stored halo, other channel order, and both."""
    assert node.found is not None
    found, problem = node.found, parse_problem(node.found.problem)
    if not problem.spatial_axes or not _has_images(node, graph):
        return
    ways = [(problem, found)]
    if problem.has_constant_weights:  # else the filter would be transposed in each run
        is_first, pad = problem.has_channels_first, canonical(problem.pads)
        axes = _MOVED[is_first]
        other = replace(found, a=_reordered(found.a, axes), c=_reordered(found.c, axes))
        ways.append((problem.stored_as(channels_first=not is_first, pad=pad), other))
    for way, at in ways:
        yield _as_found(node, graph, way, at)
        if way.pads.top and len(set(way.pads)) == 1:  # a layout has one halo for all sides
            yield from _with_halo(node, graph, way, at)


def _with_halo(
    node: Node, graph: Graph, problem: Problem, found: Occurrence
) -> Iterator[ProblemVariant]:
    """Yield the variant that reads an image with its zeros in memory."""
    try:
        padded = problem.stored_as(channels_first=problem.has_channels_first, pad=0)
    except ProblemError:  # the sizes have limits
        return
    around = tuple(sorted(found.a.axes[i] for i in problem.spatial_axes))
    if any(problem.operand_shapes["A"][i] == 1 for i in problem.spatial_axes):
        return  # a layout has no place for an axis of one element
    variant = _as_found(node, graph, padded, found)
    reads = tuple(
        replace(layout, halo=problem.pads.top, around=around) if use.role == "A" else layout
        for use, layout in zip(node.reads, variant.reads, strict=True)
    )
    yield replace(variant, reads=reads)


def _has_images(node: Node, graph: Graph) -> bool:
    """Return whether a convolution reads and makes whole tensors, not views."""
    assert node.found is not None
    of_role = {"A": node.found.a, "C": node.found.c}
    read, made = ({use.role for use in uses} for uses in (node.reads, node.makes))
    return "A" in read and "C" in made and all(
        _is_image(use, graph, of_role[use.role])
        for use in (*node.reads, *node.makes) if use.role in of_role
    )  # fmt: skip


def _is_image(use: TensorUse, graph: Graph, arrangement: Arrangement) -> bool:
    """Return whether a tensor is the problem's image, with its axes in any order."""
    if not _is_whole(use, graph, arrangement) or not len(use.shape) == len(arrangement.shape) == 4:
        return False
    stored: tuple[Size, ...] = tuple(use.shape[axis] for axis in arrangement.axes)
    return stored == arrangement.shape


def _reordered(arrangement: Arrangement, axes: tuple[int, ...]) -> Arrangement:
    return replace(
        arrangement,
        axes=tuple(arrangement.axes[i] for i in axes),
        shape=tuple(arrangement.shape[i] for i in axes),
    )
