"""The form that a script gives an op of a module: the loops of a schedule, in order.

Loops of one step are dropped. Of several loops with one role, such as two rows, one is the
schedule's and the others run around it: rows and columns outside of its tiles, reductions inside of
the register tile. An operand stays unpacked if its innermost axis is a row or the reduction (A) or
a column (B, C); a B whose innermost axis is the reduction is packed to panels, as by a schedule's
step. Others are packed as a whole by `transform.structured.pack` with the extents as sizes, where
upstream's `pack_greedily` has tiles. A convolution's pixels and taps cannot be packed, but its
channels can, so every order becomes [pixels, channels], with schedules of that layout.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.frontend.graph import LoneOp
from tilewise.kernels.mlir.frontend.nest import Dims
from tilewise.kernels.mlir.op_scripts.packing import (
    OpLoops,
    Packing,
    Reading,
    convolution_parts,
    packing,
    product_parts,
)
from tilewise.kernels.mlir.payload.contraction import contraction
from tilewise.kernels.mlir.payload.form import LinalgForm
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
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.problem.spatial import canonical
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.steps import Step, StepPhase


def op_nest(
    problem: Problem, schedule: Schedule, extents: Dims, parts: OpLoops, packed: Packing
) -> Nest:
    """Return the nest of a schedule over an op's dims, with a loop per dim that is visited alone.

    Partial sums are of one reduction loop; the others run around its tiles. Without a reduction
    loop nothing is split or packed, and without columns B has no panels. A B whose columns are not
    contiguous always has panels, made before the first loop over rows.
    """
    nest, dims = _before_steps(problem, extents, parts), parts.names_of(packed.order)
    steps = [step for step in schedule.steps if getattr(step, "dim", nest.k) in nest.extents]
    nest = _applied(nest, (step for step in steps if step.phase <= StepPhase.MICRO_KERNEL))
    tiled = _applied(nest, (step for step in steps if step.phase is StepPhase.LOOPS))
    nodes: Iterable[Node] = (here.node for here in tiled.visit())
    nodes = takewhile(lambda node: _kind(node) is not LoopKind.MICRO, nodes)
    finish = [step for step in steps if step.phase is StepPhase.FINISH]
    if nest.k not in dims:
        nodes, finish = tiled.loops_of(LoopKind.PARALLEL, LoopKind.TILE), []
        nest = nest.mapped(lambda n: replace(n, lanes=1) if isinstance(n, Compute) else n)
    if nest.col not in dims:
        nodes = (node for node in nodes if not _is_panels(node))
    for node in _in_order(nest, tuple(nodes), packed.needs_panels):
        nest = nest.around(node) if isinstance(node, Loop) else nest.inside(node)
    return _applied(nest, finish)


def _before_steps(problem: Problem, extents: Dims, parts: OpLoops) -> Nest:
    """Return the problem's nest over an op's dims."""
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
    """Return the nest after steps that the problem's own nest has checked."""
    for step in steps:
        nest = step.apply(nest)
    return nest


def _in_order(nest: Nest, nodes: tuple[Node, ...], needs_panels: bool) -> list[Node]:
    """Return the nodes outside of the macro-kernel, with those that an op adds.

    Threads come first, then loops visited alone, and reductions around a split or packed one.
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


@dataclass(frozen=True)
class NormalForm:
    """An op of a module as a schedule sees it.

    Attributes:
        problem: whose schedules apply.
        form: the normalised op.
        interchange: the op's loop for each of `Parts.order`, without loops of one step.
        has_units: whether the op has loops or axes of one step, which are dropped first.
        names: dims of A, B and C before the schedule's steps.
        has_own_loops: whether its loops are exactly the problem's.
    """

    problem: Problem
    form: LinalgForm
    interchange: Dims
    has_units: bool
    names: tuple[tuple[str, ...], ...]
    has_own_loops: bool
    packing: Packing


def schedulable(lone: LoneOp) -> Problem:
    """Return the problem whose schedules fit an op: its own, with pixels before channels.

    Raise UnsupportedError if there is none.
    """
    problem = parse_problem(lone.found.problem)
    pixels_first = problem.stored_as(channels_first=False, pad=canonical(problem.pads))
    nest = nest_of(pixels_first)
    if nest.group and not is_of_problem(lone):
        own = contraction(problem)
        named = "" if own.is_generic else f"{own.op}, or "
        raise UnsupportedError(
            f"{lone.found.where}: no script for this op with so few channels in a group "
            f"({nest.dim(nest.k).extent}); use {named}tilewise script {lone.within.problem}, "
            "which is of an op of its own",
            "place",
        )
    return pixels_first


def is_of_problem(lone: LoneOp) -> bool:
    """Return whether a convolution with few channels per group is the op of Tilewise's payload.

    The problem's script then applies: it tiles the op that stores the result, with this op inside.
    """
    problem = parse_problem(lone.found.problem)
    if not nest_of(problem).group:
        return False
    return not (op := contraction(problem)).is_generic and lone.found.op == op.op


def normal_form(lone: LoneOp, schedule: Schedule) -> NormalForm:
    """Return the form of an op for a schedule of `schedulable(lone)`.

    Raises:
        ScheduleError: the schedule cannot be applied to the problem.
        UnsupportedError: no script can normalise the op.
    """
    problem = schedulable(lone)
    nest = lone.nest.swapped() if lone.found.is_swapped else lone.nest
    planned = loop_nest(problem, schedule)
    if planned.algorithm is not None or planned.problem != problem:
        step = planned.algorithm.name if planned.algorithm else "fuse"
        raise UnsupportedError(
            f"{problem}: the step {step} has no script on an op of a module; "
            "give a schedule without it",
            "steps",
        )
    parts_of = convolution_parts if problem.spatial_axes else product_parts
    parts = parts_of(nest, lone.found)
    packed = packing(nest, parts, _reading(planned, parts))
    loops = op_nest(problem, schedule, nest.extents, parts, packed)
    kept = sorted(parts.order)
    return NormalForm(
        problem=problem,
        form=_form(lone, parts, packed, loops),
        interchange=tuple(kept.index(dim) for dim in parts.order),
        has_units=1 in nest.extents or any(1 in one.shape for one in (nest.a, nest.b, nest.c)),
        names=tuple(parts.names_of(dims) for dims in packed.operands),
        has_own_loops=not any(name[-1].isdigit() for name in parts.names.values()),
        packing=packed,
    )


def _reading(planned: Nest, parts: OpLoops) -> Reading:
    """Return how a nest reads operands: a split reduction runs along rows and columns."""
    problem, is_split = planned.problem, planned.compute.lanes > 1
    turns = (
        not is_split and problem.transpose_a and bool(parts.rows),
        not is_split and not problem.transpose_b and bool(parts.cols),
    )
    return Reading(turns, is_split, planned.tile.rows, problem.element.bytes)


def _form(lone: LoneOp, parts: OpLoops, packed: Packing, loops: Nest) -> LinalgForm:
    problem, numbers = parse_problem(lone.found.problem), lone.found.inputs
    a, b, c = (parts.names_of(dims) for dims in packed.operands)
    taps = {parts.names[dim]: lone.nest.extents[dim] for dim in parts.taps}
    return LinalgForm(
        nest=loops,
        op=lone.found.op,
        dims=parts.names_of(packed.order),
        result_dims=c,
        bias_dims=(),
        has_epilogue=False,
        writes_apart=False,
        more_inputs=(),
        tap_extents=taps,
        panels_first=_panels_first(b, loops, tuple(taps)),
        copied_dims=max(len(a) - 1, 0),
        contiguous=a[-1] if a else "",
        contiguous_b=b[-1] if b else "",
        rows_apart=_has_gaps(problem, (a, c), loops),
        image_operand=numbers[0] if loops.image else 0,
        group_extents={"f": 1},
        starts_from_fill=lone.starts_from_fill,
        operands=numbers,
        multiplies_columns_first=lone.first_factor == numbers[1],
    )


def _has_gaps(problem: Problem, operands: tuple[tuple[str, ...], ...], loops: Nest) -> bool:
    """Return whether neighbouring rows in A or the result, or A's depth, are not contiguous."""
    of_tile = {loops.row, loops.k}
    return max(problem.strides) > 1 or any(of_tile & set(names[:-2]) for names in operands)


def _panels_first(b: tuple[str, ...], loops: Nest, taps: tuple[str, ...]) -> tuple[int, ...]:
    """Return the origin of packed B's dims: those visited alone, panels, taps, depth."""
    wanted = (*loops.named(Role.LEAD), loops.col, *taps, loops.k)
    return tuple(b.index(dim) for dim in wanted if dim in b)
