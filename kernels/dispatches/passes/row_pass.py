"""A pass over rows that a module's ops are, with the pattern that finds them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tilewise.kernels.dispatches.patterns.inner import Inner
from tilewise.kernels.dispatches.patterns.pattern import Pattern
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.mlir.frontend.program import ScalarOp
from tilewise.kernels.native.passes.rows.emit import LANES, stack_bytes
from tilewise.kernels.native.passes.rows.program import (
    REDUCTIONS,
    Operation,
    RowProgram,
    Source,
    Target,
)

MOST_ON_STACK = 1 << 15
"""Bytes: IREE's workers have smaller stacks than a program's first thread."""
_PLAIN = ("read", "number", "compare", "select", "narrow", "widen", "multiply add")


@dataclass(frozen=True)
class Reading:
    """How a pass reads an operand of its pattern.

    Attributes:
        operand: the place among the pattern's operands.
        source: where each row's elements are.
        table: elements before each row, where the source has no step from row to row.
    """

    operand: int
    source: Source
    table: tuple[int, ...] = ()


@dataclass(frozen=True)
class Uses:
    """How many ops of a pattern read one of its values: nothing else may.

    Attributes:
        path: from the root to the op that makes the value: which operand to follow at each op.
        count: of uses.
    """

    path: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class RowPass:
    """Ops of a module that are one pass over rows.

    Attributes:
        rows: how many there are.
        columns: of a row.
        readings: what is read, in the order of the program's sources.
        body: the operations; `number` of a `read` is the place among `readings`.
        result: the instruction whose value is written.
        is_wide: whether the result has an element for each column; else it has one for each row.
        pattern: the ops.
        uses: of the values between them.
        inner: ops of bodies whose constants have to be moved into the body first.
        overwrites: the operand in whose place the result is written; None where somebody else
            reads it, or its elements lie otherwise.
        kept: the uses of that operand, then of what it is a view of, to the op that makes it.
        after: the problems that make its operands. IREE joins ops to a product that it computes
            itself, so a pass is of use only where none of those is left to it.
        where: function and op of each place that has it.
    """

    rows: int
    columns: int
    readings: tuple[Reading, ...]
    body: tuple[ScalarOp, ...]
    result: int
    is_wide: bool
    pattern: Pattern
    uses: tuple[Uses, ...]
    inner: tuple[Inner, ...]
    overwrites: int | None = None
    kept: tuple[Uses, ...] = ()
    after: tuple[str, ...] = ()
    where: tuple[str, ...] = ()

    @property
    def program(self) -> RowProgram:
        """What is compiled."""
        operations = tuple(Operation(one.name, one.of, one.number) for one in self.body)
        made = Target(self.pattern.result.element, self.result, self.is_wide)
        sources = tuple(one.source for one in self.readings)
        return RowProgram(self.columns, sources, operations, (made,))

    @property
    def label(self) -> str:
        """What is computed, in few words: `128 rows of 768: row sum, divide, rsqrt`."""
        names = dict.fromkeys(one.name for one in self.body if one.name not in _PLAIN)
        return f"{self.rows} rows of {self.columns}: {', '.join(names) or 'copy'}"

    @property
    def bytes(self) -> int:
        """Of the operands and the result."""
        values = (*self.pattern.operands, self.pattern.result)
        return sum(prod(one.shape or ()) * (2 if one.element == "bf16" else 4) for one in values)

    @property
    def is_worthwhile(self) -> bool:
        """Whether it is more than sums and products of elements in order, which IREE does as fast.

        It reduces rows, has functions other than tanh, for which IREE has less to do, or puts rows
        of whole vectors in another order.
        """
        names = {one.name for one in self.body}
        turns = self.columns >= LANES and any(one.table for one in self.readings)
        return turns or bool(names & {*REDUCTIONS, "exp", "erf"})


def check(one: RowPass) -> None:
    """Refuse a pass that no worker has the memory for.

    Raises:
        LoweringError: says how much it would take.
    """
    if (size := stack_bytes(one.program)) > MOST_ON_STACK:
        raise LoweringError(f"{one.label}: a row of {size} bytes is too long to be kept; "
                            f"{MOST_ON_STACK} are the most")  # fmt: skip


def distinct(passes: tuple[RowPass, ...]) -> Iterator[RowPass]:
    """Each pattern once, with all places that have it; it overwrites what all of them may."""
    found: dict[str, list[RowPass]] = {}
    for one in passes:
        found.setdefault(one.pattern.text, []).append(one)
    for alike in found.values():
        first, *others = alike
        is_same = all(one.overwrites == first.overwrites for one in others)
        yield replace(
            first,
            overwrites=first.overwrites if is_same else None,
            after=tuple(dict.fromkeys(problem for one in alike for problem in one.after)),
            where=tuple(place for one in alike for place in one.where),
        )
