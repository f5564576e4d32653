"""Works of nodes that are one pass over rows: the program of the pass, and where its memory is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.mlir.frontend.program import Access, Lines, Loops, Program
from tilewise.kernels.native.passes.rows.compiled import row_pass
from tilewise.kernels.native.passes.rows.emit import MOST_ON_STACK, stack_bytes
from tilewise.kernels.native.passes.rows.program import Operation, RowProgram, Source, Target
from tilewise.search.errors import NetworkError
from tilewise.search.networks.plan import Plan
from tilewise.search.networks.running.arena import room
from tilewise.search.networks.running.buffers import Buffers
from tilewise.search.networks.running.row_groups import Group, Member
from tilewise.search.networks.running.works import (
    Array,
    Call,
    Memory,
    Work,
    part_call,
    table_address,
)

_SAID = 6  # operations that a label names
Origin = int | tuple[int, str]
"""What a source reads: a buffer, or a node's constant by its role."""


@dataclass
class RowWorks:
    """Makes the works of groups.

    Attributes:
        plan: of the network.
        program: what its nodes do, and their constants.
        buffers: of the network.
    """

    plan: Plan
    program: Program
    buffers: Buffers

    def work(self, group: Group) -> Work:
        """The work of a group; where its rows are too long to be kept, of a pass for each node.

        Raises:
            NetworkError: its code cannot be made.
        """
        writer = _Writer(self.plan, self.program, self.buffers, group)
        for member in group.members:
            writer.put(member)
        made = writer.made(self._left(group))
        if len(group.members) > 1 and stack_bytes(made.program) > MOST_ON_STACK:
            return _joined([self.work(Group(group.split, (one,))) for one in group.members])
        try:
            entry = row_pass(made.program).entry
        except LoweringError as error:
            raise NetworkError(str(error)) from error
        constants = [self.program.weights[one] for one in made.origins if isinstance(one, tuple)]
        return Work(
            _label(made.program), group.members[-1].number,
            tuple(one for one in made.origins if isinstance(one, int)), made.targets,
            lambda memory: [_call(made, entry, self.program, group.split.rows, memory)],
            room(*(one.nbytes for one in constants)),
        )  # fmt: skip

    def _left(self, group: Group) -> Iterator[tuple[int, Member]]:
        """The tensors of a group that others read, with their makers."""
        inside = {member.number for member in group.members}
        for member in group.members:
            (use,) = self.plan.nodes[member.number].makes
            tensor = self.plan.tensors[use.tensor]
            read = any(
                use.tensor == other.tensor
                for number, node in enumerate(self.plan.nodes) if number not in inside
                for other in node.reads
            )  # fmt: skip
            copied = any(one.tensor == use.tensor for one in self.plan.conversions)
            if read or copied or tensor.is_result:
                yield use.tensor, member


@dataclass(frozen=True)
class _Made:
    """A program with the origin of each source, its table, and the buffer of each target."""

    program: RowProgram
    origins: tuple[Origin, ...]
    tables: tuple[Array | None, ...]
    targets: tuple[int, ...]


@dataclass
class _Writer:
    """Joins the bodies of nodes to one program."""

    plan: Plan
    program: Program
    buffers: Buffers
    group: Group
    _operations: list[Operation] = field(default_factory=list)
    _sources: dict[tuple[Origin, Source, bytes], Array | None] = field(default_factory=dict)
    _values: dict[int, int] = field(default_factory=dict)
    _numbers: dict[Operation, int] = field(default_factory=dict)

    def put(self, member: Member) -> None:
        """Add what a node does."""
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

    def made(self, left: Iterator[tuple[int, Member]]) -> _Made:
        """The program, which writes the tensors that are left."""
        targets, buffers = [], []
        for tensor, member in left:
            kind = self.plan.tensors[tensor].dtype
            targets.append(Target(kind, self._values[tensor], member.is_wide))
            buffers.append(self.buffers.made(tensor))
        keys = list(self._sources)
        program = RowProgram(
            self.group.split.columns, tuple(source for _, source, _ in keys),
            tuple(self._operations), tuple(targets),
        )  # fmt: skip
        origins = tuple(origin for origin, _, _ in keys)
        return _Made(program, origins, tuple(self._sources.values()), tuple(buffers))

    def _reduced(self, loops: Loops, value: int) -> int:
        row = self._add(Operation(f"row {loops.combine}", (value,)))
        if loops.start is None:
            return row
        start = self._add(Operation("number", (), loops.start))
        return self._add(Operation(loops.combine, (row, start)))

    def _read(self, member: Member, access: Access, lines: Lines) -> int:
        """A value of the group's own, or one of a source."""
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
        """The number of an operation; what is there already is not computed twice."""
        if operation not in self._numbers:
            self._numbers[operation] = len(self._operations)
            self._operations.append(operation)
        return self._numbers[operation]


def _joined(parts: Sequence[Work]) -> Work:
    """Several works as one."""
    return Work(
        "; ".join(part.label for part in parts), parts[-1].node,
        tuple(one for part in parts for one in part.reads),
        tuple(one for part in parts for one in part.writes),
        lambda memory: [call for part in parts for call in part.calls(memory)],
        sum(part.weights_bytes for part in parts),
    )  # fmt: skip


def _call(made: _Made, entry: int, program: Program, rows: int, memory: Memory) -> Call:
    words = list[int]()
    for origin, table in zip(made.origins, made.tables, strict=True):
        if isinstance(origin, int):
            words.append(memory.address(origin))
        else:
            held = memory.weights.keep(np.ascontiguousarray(program.weights[origin]))
            words.append(memory.place(held.ctypes.data))
        words.append(0 if table is None else table_address(table))
    words += [memory.address(target) for target in made.targets]
    return part_call(entry, made.program, memory, (0, 0), rows, words, (made, entry))


def _label(program: RowProgram) -> str:
    """What is computed, in few words."""
    names = [one.name for one in program.operations if one.name not in ("read", "number")]
    shown = ", ".join(dict.fromkeys(names)) or "copy"
    shown = shown if len(names) <= _SAID else f"{len(names)} operations: {shown}"
    return f"rows of {program.columns}: {shown}"
