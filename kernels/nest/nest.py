"""The loop nest of a schedule: dims, operands and a tree of nodes, which every consumer reads.

A step of a schedule checks itself against a nest and rewrites it (`tilewise.kernels.steps`). Native
code, transform scripts, the cost model, counts and plots read the nest alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, TypeVar

from tilewise.kernels.nest.access import Axis, Dim, Operand, Role
from tilewise.kernels.nest.nodes import (
    Algorithm,
    Compute,
    Fetch,
    Layout,
    Loop,
    LoopKind,
    MicroTile,
    Node,
    Stage,
    Store,
)
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.keys import SMALL_WEIGHTS, WEIGHTS

NodeT = TypeVar("NodeT", bound=Node)


@dataclass(frozen=True)
class Nest:
    """A problem's dims and operands, and the nodes that compute it.

    Attributes:
        problem: what is computed; a step that changes the algorithm starts from it.
        dims: those of LEAD, ROW, COL and K in the order of the problem, then taps.
        operands: A, B, C and bias, by role.
        body: the nodes, in order.
        image: the role that a convolution's image plays; empty for a matmul.
        group: channels of the result in a group, where rows and columns run over all groups (a
            depthwise or grouped convolution of few channels); else 0.
        algorithm: what transforms operands and products; None for the direct method.
    """

    problem: Problem
    dims: tuple[Dim, ...]
    operands: tuple[Operand, ...]
    body: tuple[Node, ...]
    image: str = ""
    group: int = 0
    algorithm: Algorithm | None = None

    @cached_property
    def factors(self) -> str:
        """Return the types that are multiplied, of `FACTORS`; less zero points, bytes are i16."""
        a, b = (self.problem.type_of(self.operand(role).name) for role in "AB")
        if weights := self.problem.quantised_weights:
            return SMALL_WEIGHTS if weights.bits < 8 else WEIGHTS
        if self.operand("B").name.lower() in self.problem.zero:
            return "i16"
        return a if a == b else f"{a}*{b}"

    def dim(self, name: str) -> Dim:
        """Return the dim of a name; KeyError when there is none."""
        return self._named[name]

    def extent(self, name: str) -> int:
        """Return the extent of a dim; KeyError when there is none."""
        return self._named[name].extent

    @cached_property
    def _named(self) -> dict[str, Dim]:
        return {d.name: d for d in self.dims}

    def named(self, *roles: Role) -> tuple[str, ...]:
        """Return the names of the dims with one of these roles, in order."""
        return tuple(d.name for d in self.dims if d.role in roles)

    @cached_property
    def rows(self) -> tuple[str, ...]:
        """Return the dims of the rows; the register tile cuts the last one."""
        return self.named(Role.ROW)

    @cached_property
    def row(self) -> str:
        """Return the row dim that the register tile cuts."""
        return self.rows[-1]

    @cached_property
    def col(self) -> str:
        """Return the dim of the columns."""
        return self.named(Role.COL)[0]

    @cached_property
    def k(self) -> str:
        """Return the reduction that k-blocks cut."""
        return self.named(Role.K)[0]

    @cached_property
    def taps(self) -> int:
        """Return the number of filter positions around the reduction; 1 for a matmul."""
        return prod(self.dim(name).extent for name in self.named(Role.TAP))

    @property
    def scheduled(self) -> tuple[str, ...]:
        """Return the dims that a step can name."""
        return tuple(d.name for d in self.dims if d.role is not Role.TAP)

    @cached_property
    def extents(self) -> dict[str, int]:
        """Return the extent of every dim."""
        return {d.name: d.extent for d in self.dims}

    def operand(self, role: str) -> Operand:
        """Return the operand that plays a role."""
        return next(o for o in self.operands if o.role == role)

    def stage(self, role: str) -> Stage | None:
        """Return the stage of an operand; None where it is read in place."""
        return next((n for n in self.nodes(Stage) if n.operand == role), None)

    @property
    def fetches(self) -> tuple[Fetch, ...]:
        """Return the prefetches."""
        return tuple(self.nodes(Fetch))

    def nodes(self, kind: type[NodeT]) -> Iterator[NodeT]:
        """Return all nodes of a kind, outermost first."""
        return (node for node in self._flat if isinstance(node, kind))

    @cached_property
    def _flat(self) -> tuple[Node, ...]:
        return tuple(_flat(self.body))

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Return the loops, outermost first."""
        return tuple(self.nodes(Loop))

    def loops_of(self, *kinds: LoopKind) -> tuple[Loop, ...]:
        """Return the loops of some kinds, outermost first."""
        return tuple(loop for loop in self.loops if loop.kind in kinds)

    @property
    def k_block(self) -> Loop | None:
        """Return the loop over k-blocks; None where the whole reduction runs at once."""
        return next(iter(self.loops_of(LoopKind.K_BLOCK)), None)

    @property
    def compute(self) -> Compute:
        """Return the micro-kernel."""
        return next(self.nodes(Compute))

    @property
    def tile(self) -> MicroTile:
        """Return the register tile, of a nest that has one."""
        tile = self.compute.tile
        assert tile is not None
        return tile

    @property
    def store(self) -> Store:
        """Return what ends the sums."""
        return next(self.nodes(Store))

    @property
    def depth(self) -> int:
        """Return the elements of the reduction in one call of the micro-kernel."""
        return next(h.blocks[self.k] for h in self.visit() if isinstance(h.node, Compute))

    @property
    def is_macro(self) -> bool:
        """Return whether the micro-kernel's code has the loops over register tiles itself."""
        return any(loop.in_kernel for loop in self.loops_of(LoopKind.MICRO))

    @property
    def is_skinny(self) -> bool:
        """Return whether the micro-kernel visits all columns of a k-block: a skinny GEMM."""
        return self.is_macro and not self.group

    def unit(self, dim: str) -> int:
        """Return what blocks of `dim` are multiples of: the step of its MICRO loop."""
        micro = (loop.step for loop in self.loops_of(LoopKind.MICRO) if loop.dim == dim)
        return next(micro, 1)

    def part(self, dim: str) -> int:
        """Return the largest part of `dim` that a thread has."""
        parallel = (loop.step for loop in self.loops_of(LoopKind.PARALLEL) if loop.dim == dim)
        return next(parallel, self.dim(dim).extent)

    @cached_property
    def parts(self) -> tuple[dict[str, tuple[int, int]], ...]:
        """Return the first and end of every parallel dim, for each thread; one {} without any."""
        ranges = []
        for loop in self.loops_of(LoopKind.PARALLEL):
            extent = self.dim(loop.dim).extent
            starts = range(0, extent, loop.step)
            ranges.append([(loop.dim, (at, min(at + loop.step, extent))) for at in starts])
        return tuple(dict(part) for part in product(*ranges))

    def enclosing(self, dim: str) -> int:
        """Return the block of `dim` that the innermost loop over it leaves, or a thread's part."""
        outer = self.loops_of(LoopKind.TILE, LoopKind.K_BLOCK)
        blocks = [loop.step for loop in outer if loop.dim == dim]
        return blocks[-1] if blocks else self.part(dim)

    def visit(self) -> Iterator["Here"]:
        """Yield every node with what the loops around it leave, a loop before its body."""
        return _visit(self.body, (), self.extents)

    def inside(self, *nodes: Node) -> "Nest":
        """Return the nest with nodes put right before the macro-kernel."""
        return replace(self, body=_at_tiles(self.body, lambda tiles: (*nodes, *tiles)))

    def around(self, loop: Loop) -> "Nest":
        """Return the nest with a loop put around the macro-kernel."""
        return replace(self, body=_at_tiles(self.body, lambda tiles: (replace(loop, body=tiles),)))

    def mapped(self, change: Callable[[Node], Node]) -> "Nest":
        """Return the nest with every node changed, a loop after its body."""
        return replace(self, body=_mapped(self.body, change))

    def with_fields(self, of: type[Node] | LoopKind, **values: Any) -> "Nest":
        """Return the nest with fields set of all nodes of a type, or of all loops of a kind."""

        def is_meant(node: Node) -> bool:
            if isinstance(of, LoopKind):
                return isinstance(node, Loop) and node.kind is of
            return isinstance(node, of)

        return self.mapped(lambda node: replace(node, **values) if is_meant(node) else node)


@dataclass(frozen=True)
class Here:
    """A node, and where it is.

    Attributes:
        node: the node.
        blocks: the largest block of every dim that the loops around leave.
        loops: those, outermost first.
    """

    node: Node
    blocks: dict[str, int]
    loops: tuple[Loop, ...]

    @property
    def trips(self) -> int:
        """Return the most iterations of one execution of a loop."""
        assert isinstance(self.node, Loop)
        return -(-self.blocks[self.node.dim] // self.node.step)


def _flat(nodes: tuple[Node, ...]) -> Iterator[Node]:
    for node in nodes:
        yield node
        if isinstance(node, Loop):
            yield from _flat(node.body)


def _visit(
    nodes: tuple[Node, ...], loops: tuple[Loop, ...], blocks: dict[str, int]
) -> Iterator[Here]:
    for node in nodes:
        yield Here(node, blocks, loops)
        if isinstance(node, Loop):
            inner = blocks | {node.dim: min(node.step, blocks[node.dim])}
            yield from _visit(node.body, (*loops, node), inner)


def _at_tiles(
    nodes: tuple[Node, ...], wrap: Callable[[tuple[Node, ...]], tuple[Node, ...]]
) -> tuple[Node, ...]:
    """The nodes with the first loop over register tiles, and what follows it, wrapped."""
    for at, node in enumerate(nodes):
        if isinstance(node, Compute) or (isinstance(node, Loop) and node.kind is LoopKind.MICRO):
            return (*nodes[:at], *wrap(nodes[at:]))
        if isinstance(node, Loop):
            return (*nodes[:at], replace(node, body=_at_tiles(node.body, wrap)), *nodes[at + 1 :])
    raise AssertionError("a nest has a Compute")


def _mapped(nodes: tuple[Node, ...], change: Callable[[Node], Node]) -> tuple[Node, ...]:
    return tuple(
        change(replace(n, body=_mapped(n.body, change)) if isinstance(n, Loop) else n)
        for n in nodes
    )


def shape_of(nest: Nest, here: Here) -> tuple[int, ...]:
    """Return the shape of the largest block that a stage copies."""
    stage, tile = here.node, nest.tile
    assert isinstance(stage, Stage)
    depth, rows = here.blocks[nest.k], here.blocks[nest.row]
    points = here.blocks[nest.named(Role.POINT)[0]] if nest.algorithm else nest.taps
    if stage.layout in (Layout.PANELS, Layout.PANELS_ALONG_K):
        panels = -(-here.blocks[nest.col] // tile.cols)
        is_along_k = stage.layout is Layout.PANELS_ALONG_K
        return (panels, points, *((tile.cols, depth) if is_along_k else (depth, tile.cols)))
    if stage.layout is Layout.POINTS:
        return (points, rows, depth)
    if stage.layout is Layout.IMAGE:
        return (*halo(nest, here.blocks), depth)
    return (rows, depth)


def halo(nest: Nest, blocks: Mapping[str, int]) -> tuple[int, ...]:
    """Return the lines and pixels, of a volume first the slices, that a block of outputs reads."""
    taps = nest.named(Role.TAP)
    lengths = dict(blocks) | {name: nest.extent(name) for name in taps}

    def length(axis: Axis) -> int:
        first, last = axis.bounds(lengths)
        return last - first + 1

    axes = nest.operand(nest.image).axes
    return tuple(length(a) for a in axes if len(a.terms) > 1 and any(map(a.indexes, taps)))


def printed(nest: Nest) -> Iterator[str]:
    """Yield the nest as text, a line for each node."""
    for here in nest.visit():
        yield "  " * len(here.loops) + str(here.node) + _notes(nest, here)


def _notes(nest: Nest, here: Here) -> str:
    """What follows from the loops around a node and inside of it."""
    node = here.node
    if isinstance(node, Loop):
        notes = [node.kind.value, f"{here.trips} trips"]
        notes += ["in the micro-kernel"] if node.in_kernel else []
        notes += [f"of {node.streams} streams"] if node.streams > 1 else []
        return f":  # {', '.join(notes)}"
    if isinstance(node, Stage):
        shape = "x".join(map(str, shape_of(nest, here)))
        return f" {shape}{', ahead' * node.is_ahead}"
    if not isinstance(node, Compute) or node.tile is None:
        return ""
    jammed = f"{node.tile.lines}x" if node.tile.lines > 1 else ""
    taps = f" x {nest.taps} taps" if nest.taps > 1 else ""
    split = f" in {node.lanes} partial sums" if node.lanes > 1 else ""
    unroll = f", unrolled {node.unroll}" if node.unroll > 1 else ""
    how = f" by {node.instruction}" if node.instruction else ""
    size = f"{jammed}{node.tile.rows}x{node.tile.cols}"
    return f"  # {size} over {here.blocks[nest.k]}{taps}{split}{how}{unroll}"
