"""Group nodes into passes over rows, and write the program of each pass.

Neighbours that share a tensor become one pass. All see memory as rows of equal length, whatever
their shapes; of a reduction, the columns are the reduced elements.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from tilewise.kernels.mlir.frontend.program import (
    Access,
    Lines,
    Loops,
    MemoryView2d,
    ModuleProgram,
    first_column,
    lines_of,
    makes_columns,
    splits_of,
    whole_lines,
)
from tilewise.kernels.native.passes.rows.emit import MOST_ON_STACK, stack_bytes
from tilewise.kernels.native.passes.rows.program import Operation, RowProgram, Source, WrittenTensor
from tilewise.kernels.native.programs.steps import ProgramStep, Word
from tilewise.search.networks.lowering.kernel_calls import (
    Array,
    KernelCalls,
    Memory,
    pass_step,
    table_of,
)
from tilewise.search.networks.lowering.memory import Buffers, arena_bytes
from tilewise.search.networks.lowering.non_gemm import SingleOps, conversion_of_loops
from tilewise.search.networks.plan import Plan, PlannedNode

USUAL_COLUMNS = 256  # of rows that nothing else decides
FEW_COLUMNS = 8  # of rows that are copied one by one


@dataclass(frozen=True)
class GroupNode:
    """A node of a group; `is_wide` if its result has an element per column."""

    number: int
    lines: tuple[Lines, ...]
    is_wide: bool


@dataclass(frozen=True)
class Group:
    """Nodes, in order, that form one pass."""

    split: MemoryView2d
    members: tuple[GroupNode, ...]


def groups_of(plan: Plan, program: ModuleProgram) -> Iterator[Group]:
    """Yield the groups of a network, except single nodes that another pass can do."""
    grown: _Growing | None = None
    for number, action in enumerate(program.outline.actions):
        loops = None if action.loops is None else _as_stored(plan.nodes[number], action.loops)
        longer = None if grown is None or loops is None else grown.joined(number, loops)
        if longer is None:
            yield from _ended(grown, program)
            longer = None if loops is None else _begun(plan, number, loops)
        grown = longer
    yield from _ended(grown, program)


def _ended(grown: "_Growing | None", program: ModuleProgram) -> Iterator[Group]:
    if grown is None or not grown.ways:
        return
    group = grown.chosen()
    (first, *others) = group.members
    action = program.outline.actions[first.number]
    if others or not action.sum:
        yield group


def _as_stored(node: PlannedNode, loops: Loops) -> Loops | None:
    """Return the loops of a node in memory order; None if its tensors differ in it."""
    if len(node.makes) != 1:
        return None
    layouts = {use.layout for use in (*node.reads, *node.makes)}
    if all(layout.is_plain for layout in layouts):
        return loops
    (first, *others) = layouts
    if others or first.halo or first.block or loops.reduced:
        return None
    whole = _whole_steps(loops.extents)
    if any(one.read is not None and one.steps != whole for one in loops.accesses):
        return None
    order = [*(i for i, n in enumerate(loops.extents) if n == 1), *first.order]
    extents = tuple(loops.extents[i] for i in order)
    return replace(loops, extents=extents, accesses=tuple(
        replace(one, steps=_whole_steps(extents) if one.constant == "" else
                tuple(one.steps[i] for i in order))
        for one in loops.accesses
    ))  # fmt: skip


def _whole_steps(extents: tuple[int, ...]) -> tuple[int, ...]:
    """Return the steps of reading each element where the result has it."""
    return tuple(prod(extents[i + 1 :]) if n > 1 else 0 for i, n in enumerate(extents))


def _begun(plan: Plan, number: int, loops: Loops) -> "_Growing":
    """Return a group of one node, by all the splits that it allows."""
    ways: dict[MemoryView2d, tuple[GroupNode, ...]] = {}
    is_turned = conversion_of_loops(loops) is not None
    for split in splits_of(loops):
        if is_turned and split.columns < FEW_COLUMNS:
            continue  # blocks are transposed faster
        member = _member(plan.nodes[number], number, loops, split, {})
        if member is not None:
            ways[split] = (member,)
    return _Growing(plan, ways)


@dataclass(frozen=True)
class _Growing:
    """A group so far, for each remaining split."""

    plan: Plan
    ways: dict[MemoryView2d, tuple[GroupNode, ...]]

    def joined(self, number: int, loops: Loops) -> "_Growing | None":
        """Return the group with another node; None if that starts another group."""
        node, ways = self.plan.nodes[number], {}
        for split, members in self.ways.items():
            made = {self.plan.nodes[one.number].makes[0].tensor: one.is_wide for one in members}
            own = [use for use in node.reads if use.tensor in made]
            if any(use.layout != self.plan.tensors[use.tensor].layout for use in own):
                return None
            if not own and not self._reads(members) & {use.tensor for use in node.reads}:
                return None
            member = _member(node, number, loops, split, made)
            if member is not None:
                ways[split] = (*members, member)
        return _Growing(self.plan, ways) if ways else None

    def _reads(self, members: tuple[GroupNode, ...]) -> set[int]:
        return {use.tensor for one in members for use in self.plan.nodes[one.number].reads}

    def chosen(self) -> Group:
        """Return the group with the shortest rows that are long enough."""
        splits = sorted(self.ways, key=lambda split: split.columns)
        long = [split for split in splits if split.columns >= USUAL_COLUMNS]
        split = long[0] if long else splits[-1]
        return Group(split, self.ways[split])


def _member(
    node: PlannedNode, number: int, loops: Loops, split: MemoryView2d, made: Mapping[int, bool]
) -> GroupNode | None:
    """Return a node as seen by a split; None if it cannot be."""
    first = first_column(loops, split)
    if first is None:
        return None
    lines = []
    for access in loops.accesses:
        one = lines_of(access, loops.extents, first)
        tensor = None if access.read is None else node.reads[access.read].tensor
        own = None if tensor is None else made.get(tensor)
        if one is None or (own is not None and one != whole_lines(split, is_wide=own)):
            return None
        lines.append(one)
    return GroupNode(number, tuple(lines), makes_columns(loops, split))


_SAID = 6  # operations that a label names
Origin = int | tuple[int, str]
"""What a source reads: a buffer, or a node's constant by its role."""


@dataclass(frozen=True)
class _MadeRows:
    """A program with the origin and table of each source and the buffer of each target."""

    program: RowProgram
    origins: tuple[Origin, ...]
    tables: tuple[Array | None, ...]
    targets: tuple[int, ...]


@dataclass
class _Writer:
    """Joins the bodies of nodes into one program."""

    plan: Plan
    program: ModuleProgram
    buffers: Buffers
    group: Group
    _operations: list[Operation] = field(default_factory=list)
    _sources: dict[tuple[Origin, Source, bytes], Array | None] = field(default_factory=dict)
    _values: dict[int, int] = field(default_factory=dict)
    _numbers: dict[Operation, int] = field(default_factory=dict)

    def put(self, member: GroupNode) -> None:
        """Add a node."""
        loops = self.program.outline.actions[member.number].loops
        assert loops is not None
        done: list[int] = []
        for one in loops.body:
            if one.name == "read":
                at = int(one.number)
                done.append(self._read(member, loops.accesses[at], member.lines[at]))
            else:
                of = tuple(done[i] for i in one.of)
                done.append(self._add(Operation(one.name, of, one.number)))
        value = done[-1] if not loops.combine else self._reduced(loops, done[-1])
        (use,) = self.plan.nodes[member.number].makes
        self._values[use.tensor] = value

    def made(self, left: Iterator[tuple[int, GroupNode]]) -> _MadeRows:
        """Return the program that writes the tensors in `left`."""
        targets, buffers = [], []
        for tensor, member in left:
            kind = self.plan.tensors[tensor].dtype
            targets.append(WrittenTensor(kind, self._values[tensor], member.is_wide))
            buffers.append(self.buffers.made(tensor))
        keys = list(self._sources)
        program = RowProgram(
            self.group.split.columns, tuple(source for _, source, _ in keys),
            tuple(self._operations), tuple(targets),
        )  # fmt: skip
        origins = tuple(origin for origin, _, _ in keys)
        return _MadeRows(program, origins, tuple(self._sources.values()), tuple(buffers))

    def _reduced(self, loops: Loops, value: int) -> int:
        row = self._add(Operation(f"row {loops.combine}", (value,)))
        if loops.start is None:
            return row
        start = self._add(Operation("number", (), loops.start))
        return self._add(Operation(loops.combine, (row, start)))

    def _read(self, member: GroupNode, access: Access, lines: Lines) -> int:
        """Return a value of the group or of a source."""
        if access.read is None:
            origin: Origin = member.number, access.constant
        else:
            use = self.plan.nodes[member.number].reads[access.read]
            if use.tensor in self._values:
                return self._values[use.tensor]
            origin = self.buffers.of(use.tensor, use.layout)
        source = Source(access.dtype, lines.is_wide, lines.row)
        table = b"" if lines.table is None else lines.table.tobytes()
        key = origin, source, table
        self._sources.setdefault(key, lines.table)
        return self._add(Operation("read", (), list(self._sources).index(key)))

    def _add(self, operation: Operation) -> int:
        """Return the number of an operation, adding it once."""
        if operation not in self._numbers:
            self._numbers[operation] = len(self._operations)
            self._operations.append(operation)
        return self._numbers[operation]


class NonGemmOps:
    """Makes the kernel calls of all non-GEMM ops: groups as rows, others one by one."""

    def __init__(self, plan: Plan, program: ModuleProgram, buffers: Buffers) -> None:
        self.single = SingleOps(plan, program, buffers)
        self._plan, self._program, self._buffers = plan, program, buffers
        self._last = {group.members[-1].number: group for group in groups_of(plan, program)}
        self._grouped = {one.number for group in self._last.values() for one in group.members}

    def is_grouped(self, number: int) -> bool:
        """Return whether a node is part of a pass over rows."""
        return number in self._grouped

    def nodes(self, number: int) -> tuple[int, ...]:
        """Return the nodes that are done once a node is."""
        if number in self._last:
            return tuple(one.number for one in self._last[number].members)
        return () if number in self._grouped else (number,)

    def calls(self, number: int) -> KernelCalls | None:
        """Return the work of a node, of a group for its last one; None if another does it."""
        if number in self._last:
            return self._of_rows(self._last[number])
        return None if number in self._grouped else self.single.calls(number)

    def _of_rows(self, group: Group) -> KernelCalls:
        """Return the work of a group; one pass per node if rows exceed the stack."""
        writer = _Writer(self._plan, self._program, self._buffers, group)
        for member in group.members:
            writer.put(member)
        made = writer.made(self._left(group))
        if len(group.members) > 1 and stack_bytes(made.program) > MOST_ON_STACK:
            return _joined([self._of_rows(Group(group.split, (one,))) for one in group.members])
        constants = [self._program.weights[one] for one in made.origins if isinstance(one, tuple)]
        return KernelCalls(
            _label(made.program), group.members[-1].number,
            tuple(one for one in made.origins if isinstance(one, int)), made.targets,
            lambda memory: [_step(made, self._program, group.split.rows, memory)],
            arena_bytes(*(one.nbytes for one in constants)),
        )  # fmt: skip

    def _left(self, group: Group) -> Iterator[tuple[int, GroupNode]]:
        """Yield the tensors of a group that others read, with their makers."""
        inside = {member.number for member in group.members}
        for member in group.members:
            (use,) = self._plan.nodes[member.number].makes
            tensor = self._plan.tensors[use.tensor]
            is_inside = inside.issuperset(self._program.outline.graph.readers_of(use.tensor))
            copied = any(one.tensor == use.tensor for one in self._plan.conversions)
            if not is_inside or copied or tensor.is_result:
                yield use.tensor, member


def _joined(parts: Sequence[KernelCalls]) -> KernelCalls:
    return KernelCalls(
        "; ".join(part.label for part in parts), parts[-1].node,
        tuple(one for part in parts for one in part.reads),
        tuple(one for part in parts for one in part.writes),
        lambda memory: [step for part in parts for step in part.steps(memory)],
        sum(part.weights_bytes for part in parts),
    )  # fmt: skip


def _step(made: _MadeRows, program: ModuleProgram, rows: int, memory: Memory) -> ProgramStep:
    words = list[Word]()
    for origin, table in zip(made.origins, made.tables, strict=True):
        if isinstance(origin, int):
            words.append(memory.at(origin))
        else:
            held = memory.weights.keep(np.ascontiguousarray(program.weights[origin]))
            words.append(memory.place(held.ctypes.data))
        words.append(0 if table is None else table_of(table))
    words += [memory.at(target) for target in made.targets]
    return pass_step(made.program, memory, (0, 0), rows, words)


def _label(program: RowProgram) -> str:
    names = [one.name for one in program.operations if one.name not in ("read", "number")]
    shown = ", ".join(dict.fromkeys(names)) or "copy"
    shown = shown if len(names) <= _SAID else f"{len(names)} operations: {shown}"
    return f"rows of {program.columns}: {shown}"
