"""The bodies of several ops as one, and what is computed otherwise there: softmax."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewise.kernels.dispatches.passes.row_pass import Reading
from tilewise.kernels.mlir.frontend.child.bodies import HUGE_FLOAT
from tilewise.kernels.mlir.frontend.child.dataflow import root_of
from tilewise.kernels.mlir.frontend.program import Lines, Loops, ScalarOp
from tilewise.kernels.native.passes.rows.program import Source


@dataclass(frozen=True)
class Node:
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
class Member:
    """A node that sees memory by a split."""

    node: Node
    lines: tuple[Lines, ...]
    is_wide: bool


class Writer:
    """Joins the bodies of nodes to one."""

    def __init__(self) -> None:
        self.body: list[ScalarOp] = []
        self.readings: list[Reading] = []
        self.operands: list[Any] = []
        self._values: dict[Any, int] = {}
        self._numbers: dict[tuple[str, tuple[int, ...], str], int] = {}

    def put(self, member: Member) -> None:
        """Add what a node does."""
        loops, done = member.node.loops, list[int]()
        for one in loops.body:
            if one.name == "read":
                done.append(self._read(member, int(one.number)))
            else:
                of = tuple(done[i] for i in one.of)
                done.append(self._add(ScalarOp(one.name, of, one.number)))
        value = done[-1]
        if loops.combine:
            value = self._add(ScalarOp(f"row {loops.combine}", (value,)))
        if loops.start is not None:
            start = self._add(ScalarOp("number", (), loops.start))
            value = self._add(ScalarOp(loops.combine, (value, start)))
        self._values[member.node.result] = value

    def value_of(self, node: Node) -> int:
        """The number of the instruction that has a node's result."""
        return self._values[node.result]

    def _read(self, member: Member, number: int) -> int:
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
        return self._add(ScalarOp("read", (), float(self.readings.index(reading))))

    def _add(self, one: ScalarOp) -> int:
        """The number of an instruction; what is there already is not computed twice."""
        if one.name == "divide" and is_softmax(self.body, *one.of):
            power, total = one.of
            whole = self._add(ScalarOp("number", (), 1.0))
            inverse = self._add(ScalarOp("divide", (whole, total)))
            one = ScalarOp("multiply", (power, inverse))
        key = one.name, one.of, repr(one.number)  # 0.0 and -0.0 are equal, and two numbers
        if key not in self._numbers:
            self._numbers[key] = len(self.body)
            self.body.append(one)
        return self._numbers[key]


def is_softmax(body: Sequence[ScalarOp], power: int, total: int) -> bool:
    """Whether powers are divided by their sum, the largest of them being 1.

    Then the sum is between 1 and the number of columns, and to multiply by its inverse is right to
    one and a half units, and faster.
    """
    exp, reduced = body[power], body[total]
    if exp.name != "exp" or reduced != ScalarOp("row sum", (power,)):
        return False
    difference = body[exp.of[0]]
    if difference.name != "subtract":
        return False
    value, most = difference.of
    largest = body[_reduction(body, most)]
    return largest.name in ("row max", "row maxnum") and largest.of == (value,)


def _reduction(body: Sequence[ScalarOp], most: int) -> int:
    """The maximum of a row that may start from the least finite number: powers are NaN then, or 1
    is the largest of them, too.
    """
    one = body[most]
    if one.name not in ("max", "maxnum"):
        return most
    start = body[one.of[1]]
    return one.of[0] if start.name == "number" and start.number <= -HUGE_FLOAT else most


def with_quick_maxima(body: Sequence[ScalarOp], result: int) -> tuple[ScalarOp, ...]:
    """A body in which softmax takes no care that its maximum is NaN where an element is.

    The power of a NaN is one, and so is the sum of the row, whatever the maximum is. That holds
    where nothing else reads the maximum, the differences and the powers.
    """
    users: dict[int, list[int]] = {}
    for number, one in enumerate(body):
        for operand in one.of:
            users.setdefault(operand, []).append(number)
    found = list(body)
    for power, one in enumerate(body):
        if one.name != "exp" or power == result or len(users.get(power, [])) != 2:
            continue
        total, product = users[power]
        difference = one.of[0]
        if not is_softmax(body, power, total) or body[product].name != "multiply":
            continue
        inverse = next(of for of in body[product].of if of != power)
        most = body[difference].of[1]
        row = _reduction(body, most)
        is_divided = body[inverse].name == "divide" and body[inverse].of[1] == total
        is_unread = users[difference] == [power] and users[most] == [difference]
        if is_divided and is_unread and (row == most or users[row] == [most]):
            found[row] = replace(body[row], name="row larger")
    return tuple(found)
