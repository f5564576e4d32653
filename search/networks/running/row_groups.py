"""Which nodes become one pass over rows: neighbours with a tensor in common, row by row.

All see memory as rows of as many columns, whatever shapes they have: of a reduction, the columns
are what is reduced.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from kernels.mlir.frontend.loops import Access, Loops
from kernels.mlir.frontend.program import Program
from search.networks.layouts import Layout
from search.networks.plan import Plan, PlannedNode
from search.networks.running.turning import conversion_of_loops
from search.networks.running.works import Array

USUAL_COLUMNS = 256  # of rows that nothing else decides
FEW_COLUMNS = 8  # of rows that are copied one by one


@dataclass(frozen=True)
class Split:
    """How memory is seen: rows of columns."""

    rows: int
    columns: int


@dataclass(frozen=True)
class Lines:
    """How an access sees rows.

    Attributes:
        is_wide: whether it reads an element for each column; else one for each row.
        row: elements from row to row; None where `table` has the beginning of each.
        table: elements before each row.
    """

    is_wide: bool
    row: int | None
    table: Array | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Member:
    """A node of a group.

    Attributes:
        number: of the node.
        lines: of each of its accesses.
        is_wide: whether its result has an element for each column.
    """

    number: int
    lines: tuple[Lines, ...]
    is_wide: bool


@dataclass(frozen=True)
class Group:
    """Nodes in order that are one pass."""

    split: Split
    members: tuple[Member, ...]


def groups_of(plan: Plan, program: Program) -> Iterator[Group]:
    """The groups of a network, in order; a node that another pass does as well is not alone."""
    grown: _Growing | None = None
    for number, action in enumerate(program.outline.actions):
        loops = None if action.loops is None else _as_stored(plan.nodes[number], action.loops)
        if loops is None:
            yield from _ended(grown, program)
            grown = None
            continue
        longer = None if grown is None else grown.joined(number, loops)
        if longer is None:
            yield from _ended(grown, program)
            longer = _begun(plan, number, loops)
        grown = longer
    yield from _ended(grown, program)


def _ended(grown: "_Growing | None", program: Program) -> Iterator[Group]:
    if grown is None or not grown.ways:
        return
    group = grown.chosen()
    (first, *others) = group.members
    action = program.outline.actions[first.number]
    if others or not (action.elements or action.sum):
        yield group


def _as_stored(node: PlannedNode, loops: Loops) -> Loops | None:
    """The loops of a node in the order in which its tensors lie; None where they lie apart."""
    if len(node.makes) != 1:
        return None
    layouts = {use.layout for use in (*node.reads, *node.makes)}
    if all(layout.is_plain for layout in layouts):
        return loops
    (first, *others) = layouts
    if others or first.halo or loops.reduced:
        return None
    whole = _whole_steps(loops.extents)
    if any(one.read is not None and one.steps != whole for one in loops.accesses):
        return None
    order = [*(i for i, n in enumerate(loops.extents) if n == 1), *first.order]
    if first.block:
        loops, order[-1] = _cut(loops, first), len(loops.extents)
    extents = tuple(loops.extents[i] for i in order)
    return replace(loops, extents=extents, accesses=tuple(
        replace(one, steps=_whole_steps(extents) if one.constant == "" else
                tuple(one.steps[i] for i in order))
        for one in loops.accesses
    ))  # fmt: skip


def _cut(loops: Loops, layout: Layout) -> Loops:
    """Loops of which one is two, over blocks and, the last of all, over a block's elements."""
    axis, block = layout.order[-1], layout.block
    extents = loops.extents
    return replace(
        loops,
        extents=(*extents[:axis], extents[axis] // block, *extents[axis + 1 :], block),
        accesses=tuple(
            replace(one, steps=(*one.steps[:axis], one.steps[axis] * block,
                                *one.steps[axis + 1 :], one.steps[axis]))
            for one in loops.accesses
        ),
    )  # fmt: skip


def _whole_steps(extents: tuple[int, ...]) -> tuple[int, ...]:
    """The steps of what reads each element where the result has it."""
    return tuple(prod(extents[i + 1 :]) if n > 1 else 0 for i, n in enumerate(extents))


def _begun(plan: Plan, number: int, loops: Loops) -> "_Growing":
    """A group of one node, by all the splits that it allows."""
    ways: dict[Split, tuple[Member, ...]] = {}
    is_turned = conversion_of_loops(loops) is not None
    for split in _splits(loops):
        if is_turned and split.columns < FEW_COLUMNS:
            continue  # blocks are turned faster
        member = _member(plan.nodes[number], number, loops, split, {})
        if member is not None:
            ways[split] = (member,)
    return _Growing(plan, ways)


@dataclass(frozen=True)
class _Growing:
    """Nodes so far, by each split that is left."""

    plan: Plan
    ways: dict[Split, tuple[Member, ...]]

    def joined(self, number: int, loops: Loops) -> "_Growing | None":
        """The group with another node; None if that belongs to another group."""
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

    def _reads(self, members: tuple[Member, ...]) -> set[int]:
        return {use.tensor for one in members for use in self.plan.nodes[one.number].reads}

    def chosen(self) -> Group:
        """The group by the shortest rows that are long enough."""
        splits = sorted(self.ways, key=lambda split: split.columns)
        long = [split for split in splits if split.columns >= USUAL_COLUMNS]
        split = long[0] if long else splits[-1]
        return Group(split, self.ways[split])


def _splits(loops: Loops) -> Iterator[Split]:
    extents = loops.extents
    if loops.reduced:
        yield Split(prod(extents[: -loops.reduced]), prod(extents[-loops.reduced :]))
        return
    for first in range(len(extents) + 1):
        yield Split(prod(extents[:first]), prod(extents[first:]))


def _member(
    node: PlannedNode, number: int, loops: Loops, split: Split, made: Mapping[int, bool]
) -> Member | None:
    """A node that sees memory by a split; None if it cannot."""
    first = _first_column(loops, split)
    if first is None:
        return None
    lines = []
    for access in loops.accesses:
        one = _lines(access, loops.extents, first)
        tensor = None if access.read is None else node.reads[access.read].tensor
        own = None if tensor is None else made.get(tensor)
        if one is None or (own is not None and one != _whole(own, split)):
            return None
        lines.append(one)
    size = split.rows * split.columns
    is_wide = not loops.reduced and split.columns > 1 and prod(loops.extents) == size
    return Member(number, tuple(lines), is_wide)


def _whole(is_wide: bool, split: Split) -> Lines:
    """How a value of the group itself is read."""
    row = split.columns if is_wide else 1
    return Lines(is_wide, row if split.rows > 1 else 0)


def _first_column(loops: Loops, split: Split) -> int | None:
    """The first loop over columns; None where loops do not split so."""
    extents = loops.extents
    if loops.reduced:
        first = len(extents) - loops.reduced
        return first if split == Split(prod(extents[:first]), prod(extents[first:])) else None
    if prod(extents) == split.rows * split.columns:
        firsts = (i for i in range(len(extents) + 1) if prod(extents[:i]) == split.rows)
        return next(firsts, None)
    return len(extents) if prod(extents) == split.rows else None


def _lines(access: Access, extents: tuple[int, ...], first: int) -> Lines | None:
    """How an access sees rows; None where columns are neither neighbours nor one element."""
    columns = [(n, step) for n, step in zip(extents[first:], access.steps[first:], strict=True)
               if n > 1]  # fmt: skip
    rows = [(n, step) for n, step in zip(extents[:first], access.steps[:first], strict=True)
            if n > 1]  # fmt: skip
    is_wide = bool(columns) and any(step for _, step in columns)
    if is_wide and columns != _neighbours([n for n, _ in columns], 1):
        return None
    step = rows[-1][1] if rows else 0
    if rows == _neighbours([n for n, _ in rows], step):
        return Lines(is_wide, step)
    offsets = np.zeros(1, np.int64)
    for count, by in rows:
        offsets = np.add.outer(offsets, np.arange(count, dtype=np.int64) * by).reshape(-1)
    return Lines(is_wide, None, offsets)


def _neighbours(counts: list[int], step: int) -> list[tuple[int, int]]:
    """Loops and their steps, where elements follow each other by a step."""
    return [(count, step * prod(counts[i + 1 :])) for i, count in enumerate(counts)]
