"""Which nodes become one pass over rows: neighbours with a tensor in common, row by row.

All see memory as rows of as many columns, whatever shapes they have: of a reduction, the columns
are what is reduced.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from tilewise.kernels.mlir.frontend.program import (
    Lines,
    Loops,
    Program,
    Split,
    first_column,
    lines_of,
    makes_columns,
    splits_of,
    whole_lines,
)
from tilewise.search.networks.layouts import Layout
from tilewise.search.networks.plan import Plan, PlannedNode
from tilewise.search.networks.running.turning import conversion_of_loops

USUAL_COLUMNS = 256  # of rows that nothing else decides
FEW_COLUMNS = 8  # of rows that are copied one by one


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
    for split in splits_of(loops):
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


def _member(
    node: PlannedNode, number: int, loops: Loops, split: Split, made: Mapping[int, bool]
) -> Member | None:
    """A node that sees memory by a split; None if it cannot."""
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
    return Member(number, tuple(lines), makes_columns(loops, split))
