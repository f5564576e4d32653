"""How tensors lie in memory, and what a node may be computed as in which layouts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.mlir.frontend.graph import Arrangement, Graph, Node, Occurrence, Size, Use
from tilewise.kernels.problem import Problem, parse_problem


@dataclass(frozen=True)
class Layout:
    """A layout of a tensor.

    Attributes:
        order: its axes that are longer than one, the outermost first.
        halo: zeros on both sides of each of the axes `around`.
        around: axes, in the tensor's order; none without a halo.
        block: elements of a block of channels; not 0 in plans of version 0.1 alone.
    """

    order: tuple[int, ...]
    halo: int = 0
    around: tuple[int, ...] = ()
    block: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether it lies as the model has it."""
        return self.order == tuple(sorted(self.order)) and not self.halo

    @property
    def name(self) -> str:
        """For people: `plain`, `axes 3,1,2`, `halo 1`, `blocks of 32`."""
        moved = self.order != tuple(sorted(self.order))
        parts = [f"axes {','.join(map(str, self.order))}"] if moved and not self.block else []
        parts += [f"blocks of {self.block}"] if self.block else []
        parts += [f"halo {self.halo}"] if self.halo else []
        return " ".join(parts) or "plain"


def ordered(axes: Sequence[int], shape: Sequence[Size]) -> Layout:
    """Return the layout of a tensor whose axes are stored in an order, without those of one."""
    return Layout(tuple(axis for axis in axes if shape[axis] != 1))


def plain(shape: Sequence[Size]) -> Layout:
    """The layout of a tensor as the model has it."""
    return ordered(range(len(shape)), shape)


Layouts = Literal["model", "all"]
"""Which layouts are tried: those that the model has, or all that kernels can do."""
_MOVED = {False: (0, 3, 1, 2), True: (0, 2, 3, 1)}
"""Axes of an image with channels last, or first, in the order of the other layout."""


@dataclass(frozen=True)
class Variant:
    """A problem that a node may be computed as, and the layouts that it then asks for.

    Attributes:
        problem: canonical; None for a node that is no problem.
        reads: of what it reads, in the node's order.
        makes: of what it makes.
    """

    problem: str | None
    reads: tuple[Layout, ...]
    makes: tuple[Layout, ...]


def variants(node: Node, graph: Graph, layouts: Layouts) -> tuple[Variant, ...]:
    """The variants of a contraction; the first is the problem as the model has it."""
    assert node.found is not None
    own = _as_found(node, graph, parse_problem(node.found.problem), node.found)
    if layouts == "model":
        return (own,)
    return tuple(dict.fromkeys((own, *_moved(node, graph))))


def problems_of(graph: Graph, layouts: Layouts = "all") -> tuple[str, ...]:
    """Every problem that a node may be computed as, each once: what a search may be asked for."""
    found = dict.fromkeys(
        variant.problem
        for node in graph.nodes
        if node.found is not None
        for variant in variants(node, graph, layouts)
    )
    return tuple(problem for problem in found if problem is not None)


def in_order(node: Node, graph: Graph, layout: Layout) -> Variant | None:
    """An elementwise node with all that it reads and makes in one layout; None if it cannot be.

    It can where each operand is read at the place that is written, axis by axis, in no other shape.
    """
    uses = (*node.reads, *node.makes)
    shapes = {(use.shape, graph.tensors[use.tensor].shape) for use in uses}
    is_one = len({shape for pair in shapes for shape in pair}) == 1
    if not is_one or any(use.role for use in uses):
        return None
    return Variant(None, (layout,) * len(node.reads), (layout,) * len(node.makes))


def as_it_is(node: Node, graph: Graph) -> Variant:
    """A node with everything as the model has it."""
    reads, makes = (
        tuple(plain(graph.tensors[use.tensor].shape) for use in uses)
        for uses in (node.reads, node.makes)
    )
    return Variant(None, reads, makes)


def needs_copy(node: Node, graph: Graph) -> bool:
    """Whether an operand has to be transposed where a view stands before: no layout says that."""
    assert node.found is not None
    roles = {"A": node.found.a, "B": node.found.b, "C": node.found.c}
    return any(
        roles[use.role].moves and not _is_whole(use, graph, roles[use.role])
        for use in (*node.reads, *node.makes)
        if use.role in roles
    )


def _as_found(node: Node, graph: Graph, problem: Problem, found: Occurrence) -> Variant:
    """The variant that asks for the layouts in which the arrangements of an occurrence lie."""
    roles = {"A": found.a, "B": found.b, "C": found.c}

    def layout(use: Use) -> Layout:
        return _stored(use, graph, roles.get(use.role))

    return Variant(problem.canonical, tuple(map(layout, node.reads)),
                   tuple(map(layout, node.makes)))  # fmt: skip


def _stored(use: Use, graph: Graph, arrangement: Arrangement | None) -> Layout:
    if arrangement is None or not _is_whole(use, graph, arrangement):
        return plain(graph.tensors[use.tensor].shape)
    return ordered(arrangement.axes, use.shape)


def _is_whole(use: Use, graph: Graph, arrangement: Arrangement) -> bool:
    """Whether a use has the axes of its tensor, and the arrangement speaks of all of them."""
    return use.shape == graph.tensors[use.tensor].shape and len(arrangement.axes) == len(use.shape)


def _moved(node: Node, graph: Graph) -> Iterator[Variant]:
    """A convolution's variants: with the halo in place, channels elsewhere, and both."""
    assert node.found is not None
    found, problem = node.found, parse_problem(node.found.problem)
    if not problem.spatial_axes or not _has_images(node, graph):
        return
    ways = [(problem, found)]
    if problem.has_constant_weights:  # else the filter would be transposed in each run
        is_first, pad = problem.has_channels_first, problem.pad
        axes = _MOVED[is_first]
        other = replace(found, a=_reordered(found.a, axes), c=_reordered(found.c, axes))
        ways.append((problem.stored_as(channels_first=not is_first, pad=pad), other))
    for way, at in ways:
        yield _as_found(node, graph, way, at)
        if way.pad:
            yield from _with_halo(node, graph, way, at)


def _with_halo(node: Node, graph: Graph, problem: Problem, found: Occurrence) -> Iterator[Variant]:
    """The variant that reads an image whose zeros are in memory."""
    try:
        padded = problem.stored_as(channels_first=problem.has_channels_first, pad=0)
    except ProblemError:  # the sizes have limits
        return
    around = tuple(sorted(found.a.axes[i] for i in problem.spatial_axes))
    if any(problem.operand_shapes["A"][i] == 1 for i in problem.spatial_axes):
        return  # a layout has no place for an axis of one element
    variant = _as_found(node, graph, padded, found)
    reads = tuple(
        replace(layout, halo=problem.pad, around=around) if use.role == "A" else layout
        for use, layout in zip(node.reads, variant.reads, strict=True)
    )
    yield replace(variant, reads=reads)


def _has_images(node: Node, graph: Graph) -> bool:
    """Whether what a convolution reads and makes as images are tensors of their own.

    So is what its sums start from. A view of another tensor has no layout of its own.
    """
    assert node.found is not None
    of_role = {"A": node.found.a, "C": node.found.c}
    read, made = ({use.role for use in uses} for uses in (node.reads, node.makes))
    return "A" in read and "C" in made and all(
        _is_image(use, graph, of_role[use.role])
        for use in (*node.reads, *node.makes) if use.role in of_role
    )  # fmt: skip


def _is_image(use: Use, graph: Graph, arrangement: Arrangement) -> bool:
    """Whether a tensor is the problem's image, its four axes in whatever order."""
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
