"""The loops that a schedule makes of an op of a module."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile

from tilewise.kernels.mlir.frontend.nest import Dims
from tilewise.kernels.mlir.normalised.packing import Packing
from tilewise.kernels.mlir.normalised.parts import Parts
from tilewise.kernels.nest import (
    Compute,
    Dim,
    Layout,
    Loop,
    LoopKind,
    Nest,
    Node,
    Role,
    Stage,
    nest_of,
)
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.steps import Phase, Step


def op_nest(
    problem: Problem, schedule: Schedule, extents: Dims, parts: Parts, packed: Packing
) -> Nest:
    """Return the nest of a schedule over an op's dims, with a loop for each that is visited alone.

    Partial sums are of one loop over the reduction; the others run around its tiles. Without a
    loop over the reduction there is nothing to split, and nothing is read often enough to be
    packed; without columns B has no panels. A B without neighbouring columns has panels in any
    case, made before the first loop over rows.

    Args:
        problem: that the schedule is legal for.
        schedule: whose steps over other dims are left out.
        extents: of the op's loops.
        parts: the op's loops by what they do.
        packed: the operands.
    """
    nest, dims = _before_steps(problem, extents, parts), parts.names_of(packed.order)
    steps = [step for step in schedule.steps if getattr(step, "dim", nest.k) in nest.extents]
    nest = _applied(nest, (step for step in steps if step.phase <= Phase.MICRO_KERNEL))
    tiled = _applied(nest, (step for step in steps if step.phase is Phase.LOOPS))
    nodes: Iterable[Node] = (here.node for here in tiled.visit())
    nodes = takewhile(lambda node: _kind(node) is not LoopKind.MICRO, nodes)
    finish = [step for step in steps if step.phase is Phase.FINISH]
    if nest.k not in dims:
        nodes, finish = tiled.loops_of(LoopKind.PARALLEL, LoopKind.TILE), []
        nest = nest.mapped(lambda n: replace(n, lanes=1) if isinstance(n, Compute) else n)
    if nest.col not in dims:
        nodes = (node for node in nodes if not _is_panels(node))
    for node in _in_order(nest, tuple(nodes), packed.needs_panels):
        nest = nest.around(node) if isinstance(node, Loop) else nest.inside(node)
    return _applied(nest, finish)


def _before_steps(problem: Problem, extents: Dims, parts: Parts) -> Nest:
    """The nest of the problem over an op's dims: one of its rows and reductions, and others."""
    nest = nest_of(problem)
    found = {parts.names[dim]: extents[dim] for dim in parts.order}
    around = (name for name in parts.names_of(parts.rows) if name not in nest.rows)
    roles = {
        **dict.fromkeys(parts.names_of(parts.alone), Role.LEAD),
        **dict.fromkeys((*around, *nest.rows), Role.ROW),
        **{nest.col: Role.COL, nest.k: Role.K},
        **dict.fromkeys(parts.names_of(parts.taps), Role.TAP),
    }
    dims = tuple(Dim(name, found.get(name, 1), role) for name, role in roles.items())
    return replace(nest, dims=dims, group=0)


def _applied(nest: Nest, steps: Iterable[Step]) -> Nest:
    """The nest after steps, which the problem's own nest has checked."""
    for step in steps:
        nest = step.apply(nest)
    return nest


def _in_order(nest: Nest, nodes: tuple[Node, ...], needs_panels: bool) -> list[Node]:
    """The nodes outside of the macro-kernel, with those that an op adds.

    Threads come first, then what is visited alone, and reductions around one that is split or
    packed for a whole tile.
    """
    parallel = [node for node in nodes if _kind(node) is LoopKind.PARALLEL]
    rest = [node for node in nodes if _kind(node) is not LoopKind.PARALLEL]
    visited = {node.dim for node in rest if isinstance(node, Loop) and node.step == 1}
    lead = [dim for dim in nest.named(Role.LEAD) if dim not in visited]
    alone = [Loop(dim, 1, LoopKind.TILE) for dim in lead]
    is_split, adds_panels = nest.compute.lanes > 1, needs_panels and not any(map(_is_panels, rest))
    taps = nest.named(Role.TAP) if is_split or adds_panels else ()
    if adds_panels:
        over_rows = [isinstance(node, Loop) and node.dim in nest.rows for node in rest]
        layout = Layout.PANELS_ALONG_K if is_split else Layout.PANELS
        rest.insert([*over_rows, True].index(True), Stage("B", layout))
    return [*parallel, *alone, *(Loop(tap, 1, LoopKind.K_BLOCK) for tap in taps), *rest]


def _kind(node: Node) -> LoopKind | None:
    return node.kind if isinstance(node, Loop) else None


def _is_panels(node: Node) -> bool:
    return isinstance(node, Stage) and node.operand == "B"
