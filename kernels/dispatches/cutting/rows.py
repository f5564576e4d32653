"""A module's ops that are one pass over rows: those whose values between nobody else reads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernels.dispatches.cutting.print import UnseenError, printed
from kernels.dispatches.passes.row_pass import MOST_ON_STACK, Inner, Reading, RowPass, Uses
from kernels.dispatches.patterns.graph import Value
from kernels.dispatches.patterns.pattern import Pattern
from kernels.mlir.frontend.child.dataflow.tensors import Tensors, root_of
from kernels.mlir.frontend.child.program.constants import Constants
from kernels.mlir.frontend.child.program.loops import loops_of
from kernels.mlir.frontend.child.structured import rank
from kernels.mlir.frontend.child.values import RESHAPES, owner, splat
from kernels.mlir.frontend.loops import (
    Instruction,
    Lines,
    Loops,
    Split,
    first_column,
    lines_of,
    makes_columns,
    splits_of,
    whole_lines,
)
from kernels.mlir.frontend.nest import RefusedError
from kernels.native.passes.rows.emit import stack_bytes
from kernels.native.passes.rows.program import Source

MOST_IN_TABLE = 1 << 14  # rows
USUAL_COLUMNS = 64  # of rows that nothing else decides: shorter ones make more parts


class _Read(Tensors):
    """What a pass reads as it runs: every tensor that is not one number."""

    def is_activation(self, value: Any) -> bool:
        """Whether a value is such a tensor."""
        maker = owner(value)
        is_empty = maker is not None and maker.name == "tensor.empty"
        return bool(rank(value)) and not is_empty and splat(value) is None


@dataclass(frozen=True)
class _Node:
    """An op that a pass may have.

    Attributes:
        number: of the op among the module's.
        op: the op.
        where: function and op.
        loops: what it does; `read` of an access is the place among `reads`.
        reads: the tensors that it reads.
    """

    number: int
    op: Any
    where: str
    loops: Loops
    reads: tuple[Any, ...]

    @property
    def result(self) -> Any:
        """What it makes."""
        return self.op.results[0]


@dataclass(frozen=True)
class _Member:
    """A node that sees memory by a split."""

    node: _Node
    lines: tuple[Lines, ...]
    is_wide: bool


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
        if result in taken:
            continue
        group = _grown(nodes[result], nodes, taken)
        made = None if group is None else _made(*group, claimed)
        if made is None:
            continue
        taken |= {member.node.result for member in group[1]} if group else set()
        found.append(made)
    return found[::-1]


def _nodes(ops: Sequence[tuple[Any, str]], claimed: Mapping[Any, str]) -> Iterator[_Node]:
    known, reading, constants = Tensors(), _Read(), Constants(None)
    for number, (op, where) in enumerate(ops):
        if not op.name.startswith("linalg.") or len(op.results) != 1 or op.results[0] in claimed:
            continue
        if op.name == "linalg.fill" or all(map(known.is_known, op.operands)):
            continue  # the same in every run
        try:
            loops = loops_of(op, reading, constants).loops
        except RefusedError:
            continue
        reads = tuple(value for value in op.operands if reading.is_activation(value))
        yield _Node(number, op, where, loops, reads)


def _grown(
    root: _Node, nodes: Mapping[Any, _Node], taken: set[Any]
) -> tuple[Split, list[_Member]] | None:
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


def _before(group: Sequence[_Node], nodes: Mapping[Any, _Node], taken: set[Any]) -> Iterator[_Node]:
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


def _ways(group: Sequence[_Node]) -> dict[Split, list[_Member]]:
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


def _member(node: _Node, split: Split, made: Mapping[Any, bool]) -> _Member | None:
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
    return _Member(node, tuple(lines), makes_columns(node.loops, split))


def _made(split: Split, members: Sequence[_Member], claimed: Mapping[Any, str]) -> RowPass | None:
    """The pass of a group; None where it is none that a library takes."""
    writer = _Writer()
    for member in members:
        writer.put(member)
    root = members[-1].node
    nowhere = Pattern((), _value("%result", root.result), "", 0, (), ())
    body = tuple(writer.body)
    one = RowPass(
        split.rows, split.columns, tuple(writer.readings), body, writer.value_of(root),
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
    over = _overwritten(one, members, writer.operands)
    makers = [claimed.get(root_of(value)) for value in writer.operands]
    after = tuple(dict.fromkeys(problem for problem in makers if problem is not None))
    return replace(one, pattern=pattern, uses=uses, inner=tuple(moved.values()), overwrites=over,
                   after=after)  # fmt: skip


def _overwritten(one: RowPass, members: Sequence[_Member], operands: Sequence[Any]) -> int | None:
    """The operand whose memory the result may have: nobody else reads it, and it lies alike."""
    inside = {member.node.result for member in members}
    kind = one.pattern.result.element
    whole = whole_lines(Split(one.rows, one.columns), is_wide=True).row
    for at, value in enumerate(operands):
        made = owner(root_of(value))
        sources = [reading.source for reading in one.readings if reading.operand == at]
        if (
            one.is_wide
            and sources == [Source(kind, is_wide=True, row=whole)]
            and made is not None
            and made.name.startswith("linalg.")
            and value.type.shape == members[-1].node.result.type.shape
            and _users(root_of(value)) <= inside
        ):
            return at
    return None


def _uses(root: _Node, members: Sequence[_Member]) -> Iterator[Uses]:
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


class _Writer:
    """Joins the bodies of nodes to one."""

    def __init__(self) -> None:
        self.body: list[Instruction] = []
        self.readings: list[Reading] = []
        self.operands: list[Any] = []
        self._values: dict[Any, int] = {}
        self._numbers: dict[tuple[str, tuple[int, ...], str], int] = {}

    def put(self, member: _Member) -> None:
        """Add what a node does."""
        loops, done = member.node.loops, list[int]()
        for one in loops.body:
            if one.name == "read":
                done.append(self._read(member, int(one.number)))
            else:
                of = tuple(done[i] for i in one.of)
                done.append(self._add(Instruction(one.name, of, one.number)))
        value = done[-1]
        if loops.combine:
            value = self._add(Instruction(f"row {loops.combine}", (value,)))
        self._values[member.node.result] = value

    def value_of(self, node: _Node) -> int:
        """The number of the instruction that has a node's result."""
        return self._values[node.result]

    def _read(self, member: _Member, number: int) -> int:
        access, lines = member.node.loops.accesses[number], member.lines[number]
        assert access.read is not None
        value = member.node.reads[access.read]
        if root_of(value) in self._values:
            return self._values[root_of(value)]
        if value not in self.operands:
            self.operands.append(value)
        source = Source(access.dtype, lines.is_wide, lines.row)
        table = () if lines.table is None else tuple(map(int, lines.table))
        reading = Reading(self.operands.index(value), source, table)
        if reading not in self.readings:
            self.readings.append(reading)
        return self._add(Instruction("read", (), float(self.readings.index(reading))))

    def _add(self, one: Instruction) -> int:
        """The number of an instruction; what is there already is not computed twice."""
        if one.name == "divide" and self._is_softmax(*one.of):
            power, total = one.of
            whole = self._add(Instruction("number", (), 1.0))
            return self._add(Instruction("multiply", (power, self._add(
                Instruction("divide", (whole, total))))))  # fmt: skip
        key = one.name, one.of, repr(one.number)  # 0.0 and -0.0 are equal, and two numbers
        if key not in self._numbers:
            self._numbers[key] = len(self.body)
            self.body.append(one)
        return self._numbers[key]

    def _is_softmax(self, power: int, total: int) -> bool:
        """Whether powers are divided by their sum, the largest being 1.

        Then the sum is between 1 and the number of columns, and to multiply by its inverse is
        right to one and a half units, and faster.
        """
        exp, reduced = self.body[power], self.body[total]
        if exp.name != "exp" or reduced != Instruction("row sum", (power,)):
            return False
        difference = self.body[exp.of[0]]
        if difference.name != "subtract":
            return False
        value, most = difference.of
        return self.body[most].name in ("row max", "row maxnum") and self.body[most].of == (value,)


def _value(name: str, value: Any) -> Value:
    return Value(name, tuple(value.type.shape), str(value.type.element_type))
