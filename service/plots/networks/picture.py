"""What is drawn of a plan: boxes for what runs, edges for what they hand each other."""

from dataclasses import dataclass, field
from typing import Any, Literal

from tilewise.kernels.problem import parse_problem
from tilewise.search.networks.plan import Plan, PlannedNode
from tilewise.search.networks.variants import Layout, plain
from tilewise.service.plots.networks.words import extents, title, told_fused, told_shape

BoxKind = Literal["layer", "op", "around", "copy", "end"]
"""A tuned layer, any other op, one that is planned around, a copy, what callers have."""
LayoutKind = Literal["plain", "order", "halo"]


@dataclass(frozen=True)
class Box:
    """What runs, or what the caller gives or takes.

    Attributes:
        kind: which of them.
        node: its number in the plan; None for copies and ends.
        title: what it does.
        detail: on how much.
        algorithm: of a layer: `direct`, `winograd F4`; `pass` of an op that is timed.
        fused: what a layer takes in, or what a pass of several ops does.
        time_us: of one run; None where nobody has timed it.
        ends: of an op the node at which the pass ends that does it, and which has its time.
        reason: why it is planned around; else empty.
        op: as the module spells it; empty for copies and ends.
        where: function and place in the module.
        problem: that a layer is, canonical; else empty.
        reads, makes: names of the layouts of what it reads and makes.
    """

    kind: BoxKind
    node: int | None
    title: str
    detail: str = ""
    algorithm: str = ""
    fused: tuple[str, ...] = ()
    time_us: float | None = None
    ends: int | None = None
    reason: str = ""
    op: str = ""
    where: str = ""
    problem: str = ""
    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edge:
    """A tensor on its way.

    Attributes:
        source, target: numbers of boxes.
        layout: in which it lies.
    """

    source: int
    target: int
    layout: Layout


@dataclass(frozen=True)
class Picture:
    """All boxes and edges of a plan.

    Attributes:
        boxes: arguments, nodes in their order, copies, results.
        edges: each pair of boxes has at most one.
        total_us: of all boxes that are timed.
    """

    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    total_us: float

    @property
    def in_order(self) -> tuple[Box, ...]:
        """The boxes as they run: a copy follows what makes its tensor."""
        made: dict[int, list[int]] = {}
        for edge in self.edges:
            if self.boxes[edge.target].kind == "copy":
                made.setdefault(edge.source, []).append(edge.target)
        copies = {copy for some in made.values() for copy in some}
        order = (
            i
            for number in range(len(self.boxes))
            if number not in copies
            for i in (number, *made.get(number, ()))
        )
        return tuple(self.boxes[i] for i in order)


def layout_kind(layout: Layout) -> LayoutKind:
    """By which an edge is coloured; a halo is more than an order."""
    if layout.halo:
        return "halo"
    return "plain" if layout.is_plain else "order"


def picture_of(plan: Plan) -> Picture:
    """The boxes and edges of a plan.

    Raises:
        ValueError: the plan names a tensor that it does not have.
        ProblemError: it names a problem that is none.
    """
    _check(plan)
    parts = _Parts()
    makers: dict[int, int] = {}
    for number, tensor in enumerate(plan.tensors):
        if tensor.is_given:
            shape = told_shape(tensor.shape, tensor.dtype)
            makers[number] = parts.add(Box("end", None, "argument", shape))
    for number, node in enumerate(plan.nodes):
        box = parts.add(_box(number, node, plan))
        makers |= {use.tensor: box for use in node.makes}
    copies = {}
    for one in plan.conversions:
        tensor = plan.tensors[one.tensor]
        copies[one.tensor, one.layout] = box = parts.add(Box(
            "copy", None, f"copy to {one.layout.name}", told_shape(tensor.shape, tensor.dtype),
            time_us=one.time_us, reads=(tensor.layout.name,), makes=(one.layout.name,),
        ))  # fmt: skip
        if one.tensor in makers:
            parts.join(makers[one.tensor], box, tensor.layout)
    sources = _Sources(makers, copies)
    _join_nodes(plan, parts, sources)
    _join_results(plan, parts, sources)
    total = sum(box.time_us for box in parts.boxes if box.time_us is not None)
    return Picture(tuple(parts.boxes), tuple(parts.edges.values()), total)


@dataclass
class _Parts:
    boxes: list[Box] = field(default_factory=list)
    edges: dict[tuple[int, int], Edge] = field(default_factory=dict)

    def add(self, box: Box) -> int:
        self.boxes.append(box)
        return len(self.boxes) - 1

    def join(self, source: int, target: int, layout: Layout) -> None:
        """An edge, unless the two have one: a product of a tensor with itself reads it twice."""
        self.edges.setdefault((source, target), Edge(source, target, layout))


@dataclass(frozen=True)
class _Sources:
    """Where a tensor comes from in a layout: from a copy of it, else from who made it."""

    makers: dict[int, int]
    copies: dict[tuple[int, Layout], int]

    def of(self, tensor: int, layout: Layout) -> int | None:
        return self.copies.get((tensor, layout), self.makers.get(tensor))


def _join_nodes(plan: Plan, parts: _Parts, sources: _Sources) -> None:
    for node in plan.nodes:
        if not node.makes:
            continue
        target = sources.makers[node.makes[0].tensor]
        for use in node.reads:
            source = sources.of(use.tensor, use.layout)
            if source is not None:
                parts.join(source, target, use.layout)


def _join_results(plan: Plan, parts: _Parts, sources: _Sources) -> None:
    for number, tensor in enumerate(plan.tensors):
        wanted = plain(tensor.shape)
        source = sources.of(number, wanted)
        if tensor.is_result and source is not None:
            shape = told_shape(tensor.shape, tensor.dtype)
            box = parts.add(Box("end", None, "result", shape))
            parts.join(source, box, wanted)


def _box(number: int, node: PlannedNode, plan: Plan) -> Box:
    kind: BoxKind = "around" if node.reason else "op"
    known: dict[str, Any] = {
        "reason": node.reason, "op": node.op, "where": node.where.removesuffix(node.op).strip(),
        "reads": tuple(use.layout.name for use in node.reads),
        "makes": tuple(use.layout.name for use in node.makes),
    }  # fmt: skip
    if node.found is None:
        shapes = [told_shape(use.shape, plan.tensors[use.tensor].dtype) for use in node.makes]
        return Box(kind, number, node.op, ", ".join(shapes), **known, **_passed(number, plan))
    problem = parse_problem(node.problem or node.found.problem)
    known |= {"fused": told_fused(node.found.fused), "problem": problem.canonical}
    if node.schedule is not None:
        kind = "layer"
        known |= {"algorithm": node.schedule.algorithm, "time_us": node.schedule.time_us}
    return Box(kind, number, title(problem), extents(problem), **known)


def _passed(number: int, plan: Plan) -> dict[str, Any]:
    """What is known of an op by the pass that does it."""
    found = next((one for one in plan.passes if number in one.nodes), None)
    if found is None:
        return {}
    known: dict[str, Any] = {"algorithm": "pass", "ends": found.nodes[-1]}
    if number == found.nodes[-1]:
        known |= {"time_us": found.time_us}
        known |= {"fused": (found.label,)} if len(found.nodes) > 1 else {}
    return known


def _check(plan: Plan) -> None:
    named = {use.tensor for node in plan.nodes for use in (*node.reads, *node.makes)}
    named |= {one.tensor for one in plan.conversions}
    if wrong := sorted(named - set(range(len(plan.tensors)))):
        raise ValueError(f"the plan has {len(plan.tensors)} tensors, and no tensor {wrong[0]}")
    passed = {number for one in plan.passes for number in one.nodes}
    if wrong := sorted(passed - set(range(len(plan.nodes)))):
        raise ValueError(f"the plan has {len(plan.nodes)} nodes, and no node {wrong[0]}")
    if any(not one.nodes for one in plan.passes):
        raise ValueError("the plan has a pass of no node")
