"""A module's ops that are one pass over rows: those whose values between nobody else reads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewise.kernels.dispatches.cutting.argmax import maximum_of
from tilewise.kernels.dispatches.cutting.joined import Member, Node, Writer, with_quick_maxima
from tilewise.kernels.dispatches.cutting.print import UnseenError, printed
from tilewise.kernels.dispatches.passes.row_pass import MOST_ON_STACK, RowPass, Uses
from tilewise.kernels.dispatches.patterns.graph import Value
from tilewise.kernels.dispatches.patterns.inner import Inner
from tilewise.kernels.dispatches.patterns.pattern import Pattern
from tilewise.kernels.mlir.frontend.child.actions import loops_of
from tilewise.kernels.mlir.frontend.child.constants import Constants
from tilewise.kernels.mlir.frontend.child.dataflow import Tensors, root_of
from tilewise.kernels.mlir.frontend.child.values import RESHAPES, owner, rank, splat
from tilewise.kernels.mlir.frontend.nest import RefusedError
from tilewise.kernels.mlir.frontend.program import (
    Split,
    first_column,
    lines_of,
    makes_columns,
    splits_of,
    whole_lines,
)
from tilewise.kernels.native.passes.rows.emit import stack_bytes
from tilewise.kernels.native.passes.rows.program import Source

MOST_IN_TABLE = 1 << 14  # rows
USUAL_COLUMNS = 64  # of rows that nothing else decides: shorter ones make more parts


class _Read(Tensors):
    """What a pass reads as it runs: every tensor that is not one number."""

    def is_activation(self, value: Any) -> bool:
        """Whether a value is such a tensor."""
        maker = owner(value)
        is_empty = maker is not None and maker.name == "tensor.empty"
        return bool(rank(value)) and not is_empty and splat(value) is None


def cut_passes(ops: Sequence[tuple[Any, str]], claimed: Mapping[Any, str]) -> list[RowPass]:
    """The passes over rows of a module, each with its pattern.

    Args:
        ops: those of the module outside of bodies, in order, each with its place.
        claimed: results of those that belong to problems, with the problem.
    """
    nodes = {node.result: node for node in _nodes(ops, claimed)}
    taken: set[Any] = set()
    found = []
    for result in reversed(nodes):
        if result in taken or len(nodes[result].op.results) > 1:
            continue  # a call gives one result
        group = _grown(nodes[result], nodes, taken)
        made = None if group is None else _made(*group, claimed)
        if made is None:
            continue
        taken |= {member.node.result for member in group[1]} if group else set()
        found.append(made)
    return found[::-1]


def _nodes(ops: Sequence[tuple[Any, str]], claimed: Mapping[Any, str]) -> Iterator[Node]:
    known, reading, constants = Tensors(), _Read(), Constants(None)
    for number, (op, where) in enumerate(ops):
        if not op.name.startswith("linalg.") or not len(op.results) or op.results[0] in claimed:
            continue
        if op.name == "linalg.fill" or all(map(known.is_known, op.operands)):
            continue  # the same in every run
        try:
            is_one = len(op.results) == 1
            loops = loops_of(op, reading, constants).loops if is_one else maximum_of(op)
        except RefusedError:
            continue
        reads = tuple(value for value in op.operands if reading.is_activation(value))
        yield Node(number, op, where, loops, reads)


def _grown(
    root: Node, nodes: Mapping[Any, Node], taken: set[Any]
) -> tuple[Split, list[Member]] | None:
    """A root with all before it that can be in one pass, by the shortest rows long enough."""
    group, ways = [root], _ways([root])
    while ways:
        for node in _before(group, nodes, taken):
            longer = sorted([*group, node], key=lambda one: one.number)
            if found := _ways(longer):
                group, ways = longer, found
                break
        else:
            split = min(ways, key=lambda one: (one.columns < USUAL_COLUMNS,
                        one.columns if one.columns >= USUAL_COLUMNS else -one.columns))  # fmt: skip
            return split, ways[split]
    return None


def _before(group: Sequence[Node], nodes: Mapping[Any, Node], taken: set[Any]) -> Iterator[Node]:
    """Nodes that make what a group reads, and nothing that anybody else does."""
    inside = {node.result for node in group}
    for node in group:
        for value in node.reads:
            made = root_of(value)
            if made in nodes and made not in inside | taken and _users(made) <= inside:
                yield nodes[made]


def _users(value: Any) -> set[Any]:
    """The first results of what reads a value, also through reshapes."""
    found = set()
    for use in value.uses:
        user = use.owner.operation
        if user.name in RESHAPES:
            found |= _users(user.results[0])
        else:
            found.add(user.results[0] if len(user.results) else None)
    return found


def _ways(group: Sequence[Node]) -> dict[Split, list[Member]]:
    """How all of a group see memory, by each split that they allow."""
    found = {}
    for split in splits_of(group[-1].loops):
        made: dict[Any, bool] = {}
        members = []
        for node in group:
            member = _member(node, split, made)
            if member is None:
                break
            made[node.result] = member.is_wide
            members.append(member)
        else:
            found[split] = members
    return found


def _member(node: Node, split: Split, made: Mapping[Any, bool]) -> Member | None:
    first = first_column(node.loops, split)
    if first is None:
        return None
    lines = []
    for access in node.loops.accesses:
        one = lines_of(access, node.loops.extents, first)
        if one is None or (one.table is not None and len(one.table) > MOST_IN_TABLE):
            return None
        assert access.read is not None
        own = made.get(root_of(node.reads[access.read]))
        if own is not None and one != whole_lines(split, is_wide=own):
            return None
        lines.append(one)
    return Member(node, tuple(lines), makes_columns(node.loops, split))


def _made(split: Split, members: Sequence[Member], claimed: Mapping[Any, str]) -> RowPass | None:
    """The pass of a group; None where it is none that a library takes."""
    writer = Writer()
    for member in members:
        writer.put(member)
    root = members[-1].node
    nowhere = Pattern((), _value("%result", root.result), "", 0, (), ())
    result = writer.value_of(root)
    body = with_quick_maxima(writer.body, result)
    one = RowPass(
        split.rows, split.columns, tuple(writer.readings), body, result,
        members[-1].is_wide, nowhere, (), (), where=(root.where,),
    )  # fmt: skip
    if not one.is_worthwhile or stack_bytes(one.program) > MOST_ON_STACK:
        return None
    moved: dict[str, Inner] = {}
    try:
        text, size = printed(root.op, writer.operands, moved)
    except UnseenError:
        return None
    operands = tuple(_value(f"%arg{i}", value) for i, value in enumerate(writer.operands))
    pattern = replace(nowhere, operands=operands, text=text, size=size)
    uses = tuple(_uses(root, members[:-1]))
    over, kept = _overwritten(one, members, writer.operands)
    makers = [claimed.get(root_of(value)) for value in writer.operands]
    after = tuple(dict.fromkeys(problem for problem in makers if problem is not None))
    return replace(one, pattern=pattern, uses=uses, inner=tuple(moved.values()), overwrites=over,
                   kept=kept, after=after)  # fmt: skip


def _overwritten(
    one: RowPass, members: Sequence[Member], operands: Sequence[Any]
) -> tuple[int | None, tuple[Uses, ...]]:
    """The operand whose memory the result may have, and who reads it and what it is a view of.

    Nobody else reads it, also by another view of it; it lies alike; and it is made as often as the
    pass runs, so no loop reads it again.
    """
    root = members[-1].node
    inside = {member.node.result for member in members}
    kind = one.pattern.result.element
    whole = whole_lines(Split(one.rows, one.columns), is_wide=True).row
    roots = [root_of(value) for value in operands]
    for at, value in enumerate(operands):
        made = owner(roots[at])
        sources = [reading.source for reading in one.readings if reading.operand == at]
        if (
            one.is_wide
            and sources == [Source(kind, is_wide=True, row=whole)]
            and roots.count(roots[at]) == 1
            and made is not None
            and made.name.startswith("linalg.")
            and _run_as_often(made, root.op)
            and value.type.shape == root.result.type.shape
            and _users(roots[at]) <= inside
        ):
            return at, tuple(_kept(root, value))
    return None, ()


def _run_as_often(op: Any, other: Any) -> bool:
    """Whether ops stand in the same block, as far as their parent has one alone."""
    same = op.parent == other.parent
    return same and all(len(list(region.blocks)) == 1 for region in op.parent.regions)


def _kept(root: Node, value: Any) -> Iterator[Uses]:
    """The uses of a value, then of what it is a view of."""
    path = _path(root.op, value)
    yield Uses(path, len(list(value.uses)))
    while (made := owner(value)) is not None and made.name in RESHAPES:
        value, path = made.operands[0], (*path, 0)
        yield Uses(path, len(list(value.uses)))


def _uses(root: Node, members: Sequence[Member]) -> Iterator[Uses]:
    for member in members:
        value = member.node.result
        yield Uses(_path(root.op, value), len(list(value.uses)))


def _path(op: Any, value: Any) -> tuple[int, ...]:
    """Which operand to follow at each op, from one to what makes a value."""
    waiting: list[tuple[Any, tuple[int, ...]]] = [(op, ())]
    seen: set[Any] = set()
    for at, path in waiting:
        for i, operand in enumerate(at.operands):
            if operand == value:
                return (*path, i)
            maker = owner(operand)
            if maker is not None and operand not in seen:
                seen.add(operand)
                waiting.append((maker, (*path, i)))
    raise AssertionError(f"{op.name} does not depend on its own pass")


def _value(name: str, value: Any) -> Value:
    return Value(name, tuple(value.type.shape), str(value.type.element_type))
