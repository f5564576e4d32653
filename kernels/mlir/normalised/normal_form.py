"""The form that a script gives an op of a module: the loops that a schedule speaks of, in order.

Loops of one step are dropped. Of several loops that play one part, such as two rows, one is the
schedule's, and the others run around it: rows and columns outside of its tiles, reductions inside
of the register tile. An operand stays as it lies where its innermost axis is a row or the reduction
(A), a column (B, C); a B whose innermost axis is the reduction is packed to panels of columns, as a
step of a schedule would. Others are packed to one form: whole operands, by
`transform.structured.pack` with the extents as sizes, where upstream's `pack_greedily` has tiles. A
convolution's pixels and taps cannot be packed, but its channels are, so that every order becomes
[pixels, channels]; its schedule is that of the problem in this layout.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.frontend.graph import LoneOp
from tilewise.kernels.mlir.frontend.nest import Dims
from tilewise.kernels.mlir.frontend.nest import Nest as OpNest
from tilewise.kernels.mlir.normalised.packing import (
    Packing,
    Parts,
    Reading,
    convolution_parts,
    packing,
    product_parts,
)
from tilewise.kernels.mlir.payload.contraction import contraction
from tilewise.kernels.mlir.payload.form import Form
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
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.steps import Phase, Step


def op_nest(
    problem: Problem, schedule: Schedule, extents: Dims, parts: Parts, packed: Packing
) -> Nest:
    """Return the nest of a schedule over an op's dims, with a loop for each that is visited alone.

    Partial sums are of one loop over the reduction; the others run around its tiles. Without a
    loop over the reduction there is nothing to split, and nothing is read often enough to be
    packed; without columns B has no panels. A B without neighbouring columns has panels in any
    case, made before the first loop over rows.
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


@dataclass(frozen=True)
class NormalForm:
    """An op of a module as a schedule sees it.

    Attributes:
        problem: whose schedules it takes.
        form: the op once the script has put it in order.
        numbers: of the op's inputs that play A and B.
        interchange: for each loop of `Parts.order` the op's loop, those of one step left out.
        has_units: whether the op has loops or axes of one step, which go first.
        names: of the dims of A, B and C, as the schedule's steps find them.
        has_own_loops: whether its loops are those of the problem, and no others run around them.
        packing: how the operands are packed.
    """

    problem: Problem
    form: Form
    numbers: tuple[int, int]
    interchange: Dims
    has_units: bool
    names: tuple[tuple[str, ...], ...]
    has_own_loops: bool
    packing: Packing


def schedulable(lone: LoneOp) -> Problem:
    """The problem whose schedules an op takes: its own, with pixels before channels.

    Raises:
        UnsupportedError: there is none; the message says why.
    """
    problem = parse_problem(lone.found.problem)
    pixels_first = problem.stored_as(channels_first=False, pad=problem.pad)
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
    """Whether a convolution with few channels in a group is the op that Tilewise writes for it.

    Its script is that of the problem: it tiles what stores the op's result, and the op inside. An
    op with a name says by it how its operands are indexed.
    """
    problem = parse_problem(lone.found.problem)
    if not nest_of(problem).group:
        return False
    return not (op := contraction(problem)).is_generic and lone.found.op == op.op


def normal_form(lone: LoneOp, schedule: Schedule) -> NormalForm:
    """The form that an op takes for a schedule of `schedulable(lone)`.

    Raises:
        ScheduleError: the schedule cannot be applied to the problem.
        UnsupportedError: no script can give it one; the message says why.
    """
    problem = schedulable(lone)
    numbers = (1, 0) if lone.found.is_swapped else (0, 1)
    inputs = lone.nest.a, lone.nest.b
    nest = OpNest(lone.nest.extents, inputs[numbers[0]], inputs[numbers[1]], lone.nest.c)
    planned = loop_nest(problem, schedule)
    if planned.algorithm is not None:
        raise UnsupportedError(
            f"{problem}: the step {planned.algorithm.name} has no script on an op of a module; "
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
        form=_form(lone, parts, packed, loops, numbers),
        numbers=numbers,
        interchange=tuple(kept.index(dim) for dim in parts.order),
        has_units=1 in nest.extents or any(1 in one.shape for one in (nest.a, nest.b, nest.c)),
        names=tuple(parts.names_of(dims) for dims in packed.operands),
        has_own_loops=not any(name[-1].isdigit() for name in parts.names.values()),
        packing=packed,
    )


def _reading(planned: Nest, parts: Parts) -> Reading:
    """How a nest reads operands: a split reduction goes along rows and columns."""
    problem, is_split = planned.problem, planned.compute.lanes > 1
    turns = (
        not is_split and problem.transpose_a and bool(parts.rows),
        not is_split and not problem.transpose_b and bool(parts.cols),
    )
    return Reading(turns, is_split, planned.tile.rows, problem.element.bytes)


def _form(
    lone: LoneOp,
    parts: Parts,
    packed: Packing,
    loops: Nest,
    numbers: tuple[int, int],
) -> Form:
    problem = parse_problem(lone.found.problem)
    a, b, c = (parts.names_of(dims) for dims in packed.operands)
    taps = {parts.names[dim]: lone.nest.extents[dim] for dim in parts.taps}
    return Form(
        nest=loops,
        op=lone.found.op,
        dims=parts.names_of(packed.order),
        result_dims=c,
        bias_dims=(),
        has_epilogue=False,
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
    """Whether others lie between neighbouring rows in A or the result, or between A's depth."""
    of_tile = {loops.row, loops.k}
    return problem.stride > 1 or any(of_tile & set(names[:-2]) for names in operands)


def _panels_first(b: tuple[str, ...], loops: Nest, taps: tuple[str, ...]) -> tuple[int, ...]:
    """Where packed B's dims come from: those visited one at a time, panels, taps, depth."""
    wanted = (*loops.named(Role.LEAD), loops.col, *taps, loops.k)
    return tuple(b.index(dim) for dim in wanted if dim in b)
