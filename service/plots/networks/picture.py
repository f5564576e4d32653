"""The elements of a planned network's drawing: boxes, edges and bars, as plain values."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

from tilewise.kernels.mlir.frontend.graph import Size
from tilewise.kernels.problem import Conv2d, Matmul, Problem, parse_problem
from tilewise.kernels.quoting import duration
from tilewise.search.networks.plan import Plan, PlannedNode, Totals
from tilewise.search.networks.variants import TensorLayout, plain

FUSED = {  # what a layer takes in, as people call it
    "addition": "residual",
    "broadcast_a": "repeated A",
    "broadcast_b": "repeated B",
    "transpose_a": "transposed A",
    "transpose_b": "transposed B",
    "transpose_c": "transposed C",
}


def format_us(time_us: float | None) -> str:
    """Format a time with significant digits, as `tilewise plan` prints it."""
    return "" if time_us is None else duration(time_us)


def format_shape(shape: Sequence[Size], dtype: str) -> str:
    """Format a tensor's type as MLIR does."""
    return "x".join([*("?" if size is None else str(size) for size in shape), dtype])


def extents(problem: Problem) -> str:
    """Return the extents and the type of a problem as text."""
    if isinstance(problem, Matmul):
        lead = f"{problem.batch} of " if problem.batch > 1 else ""
        size = f"{lead}m={problem.m} n={problem.n} k={problem.k}"
    elif isinstance(problem, Conv2d):
        lead = f"{problem.n}x" if problem.n > 1 else ""
        read, made = ((problem.h, problem.w, problem.ci), (problem.oh, problem.ow, problem.co))
        size = " to ".join(lead + "x".join(map(str, shape)) for shape in (read, made))
    else:
        size = problem.canonical.partition(":")[2].partition(",dtype")[0].replace(",", " ")
    return f"{size} {problem.element.name}"


def title(problem: Problem) -> str:
    """Return a problem's title without its extents."""
    if isinstance(problem, Matmul):
        return "batch matmul" if problem.batch > 1 else problem.op
    if not isinstance(problem, Conv2d):
        return problem.op
    is_depthwise = problem.groups == problem.ci > 1
    parts = [
        "depthwise" if is_depthwise else problem.op,
        f"{problem.kh}x{problem.kw}",
        f"stride {problem.stride}" if max(problem.strides) > 1 else "",
        f"dilation {problem.dilation}" if max(problem.dilations) > 1 else "",
        f"groups {problem.groups}" if problem.groups > 1 and not is_depthwise else "",
    ]
    return " ".join(filter(None, parts))


BoxKind = Literal["layer", "op", "around", "copy", "end"]
"""A tuned layer, any other op, one that is planned around, a copy, what callers have."""
LayoutKind = Literal["plain", "order", "halo"]


@dataclass(frozen=True)
class Box:
    """A node, a copy, an argument or a result of a plan.

    `node` is None for copies and ends. `fused` is what a layer or a pass of several ops includes.
    `ends` is the node whose pass runs this op and has its time. `reason` says why it is planned
    around. `op` and `where` are those of the module. `reads` and `makes` are names of layouts.
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
    """A tensor between two boxes, given by their numbers."""

    source: int
    target: int
    layout: TensorLayout


@dataclass(frozen=True)
class PlanPicture:
    """All boxes (arguments, nodes, copies, results) and edges of a plan.

    Each pair of boxes has at most one edge.
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


def layout_kind(layout: TensorLayout) -> LayoutKind:
    """Return the kind of layout that selects an edge's colour."""
    if layout.halo:
        return "halo"
    return "plain" if layout.is_plain else "order"


def picture_of(plan: Plan) -> PlanPicture:
    """Return the boxes and edges of a plan.

    Raises ValueError for an unknown tensor, ProblemError for an invalid problem.
    """
    _check(plan)
    parts = _Parts()
    for number, tensor in enumerate(plan.tensors):
        if tensor.is_given:
            shape = format_shape(tensor.shape, tensor.dtype)
            parts.makers[number] = parts.add(Box("end", None, "argument", shape))
    for number, node in enumerate(plan.nodes):
        box = parts.add(_box(number, node, plan))
        parts.makers |= {use.tensor: box for use in node.makes}
    for one in plan.conversions:
        tensor = plan.tensors[one.tensor]
        box = parts.add(Box(
            "copy", None, f"copy to {one.layout.name}", format_shape(tensor.shape, tensor.dtype),
            time_us=one.time_us, reads=(tensor.layout.name,), makes=(one.layout.name,),
        ))  # fmt: skip
        parts.join(parts.makers.get(one.tensor), box, tensor.layout)
        parts.copies[one.tensor, one.layout] = box
    for node in plan.nodes:
        for use in node.reads if node.makes else ():
            target = parts.makers[node.makes[0].tensor]
            parts.join(parts.source(use.tensor, use.layout), target, use.layout)
    for number, tensor in enumerate(plan.tensors):
        wanted = plain(tensor.shape)
        source = parts.source(number, wanted)
        if tensor.is_result and source is not None:
            shape = format_shape(tensor.shape, tensor.dtype)
            parts.join(source, parts.add(Box("end", None, "result", shape)), wanted)
    total = sum(box.time_us for box in parts.boxes if box.time_us is not None)
    return PlanPicture(tuple(parts.boxes), tuple(parts.edges.values()), total)


@dataclass
class _Parts:
    """A picture that is being made; `makers` and `copies` are the boxes that tensors come from."""

    boxes: list[Box] = field(default_factory=list)
    edges: dict[tuple[int, int], Edge] = field(default_factory=dict)
    makers: dict[int, int] = field(default_factory=dict)
    copies: dict[tuple[int, TensorLayout], int] = field(default_factory=dict)

    def add(self, box: Box) -> int:
        self.boxes.append(box)
        return len(self.boxes) - 1

    def join(self, source: int | None, target: int, layout: TensorLayout) -> None:
        """Add an edge unless there is one between the two nodes."""
        if source is not None:
            self.edges.setdefault((source, target), Edge(source, target, layout))

    def source(self, tensor: int, layout: TensorLayout) -> int | None:
        """Return the node that a tensor comes from in a layout: its copy, else its producer."""
        return self.copies.get((tensor, layout), self.makers.get(tensor))


def _box(number: int, node: PlannedNode, plan: Plan) -> Box:
    kind: BoxKind = "around" if node.reason else "op"
    known: dict[str, Any] = {
        "reason": node.reason, "op": node.op, "where": node.where.removesuffix(node.op).strip(),
        "reads": tuple(use.layout.name for use in node.reads),
        "makes": tuple(use.layout.name for use in node.makes),
    }  # fmt: skip
    if node.found is None:
        shapes = [format_shape(use.shape, plan.tensors[use.tensor].dtype) for use in node.makes]
        return Box(kind, number, node.op, ", ".join(shapes), **known, **_passed(number, plan))
    problem = parse_problem(node.problem or node.found.problem)
    fused = tuple(FUSED.get(name, name) for name in node.found.fused)
    known |= {"fused": fused, "problem": problem.canonical}
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


HEIGHT = 22
DIRECT = "direct"


@dataclass(frozen=True)
class Bar:
    """One total; `ratio` is over the planned time, `svg` is decoration."""

    name: str
    time_us: float
    ratio: float
    svg: str


def bars(picture: PlanPicture, totals: Totals) -> list[Bar]:
    """Return bars of the planned time by part, and of the two alternatives; none if untimed."""
    times = {
        "planned": totals.chosen_us,
        "all as the model has it": totals.plain_us,
        "each layer on its own": totals.alone_us,
    }
    longest = max(times.values())
    if not totals.chosen_us:
        return []
    made = []
    for name, time_us in times.items():
        inside = f'<rect class="bar-other" width="{_percent(time_us / longest)}" height="100%"/>'
        if name == "planned":
            inside = "".join(_timed(picture, longest))
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="bar" aria-hidden="true" '
            f'width="100%" height="{HEIGHT}">{inside}</svg>'
        )
        made.append(Bar(name, time_us, time_us / totals.chosen_us, svg))
    return made


def kind_of(box: Box) -> str:
    """Return the kind of work that selects the colour of a bar's part."""
    if box.kind != "layer":
        return "copy" if box.kind == "copy" else "pass"
    return "direct" if box.algorithm == DIRECT else "other-algorithm"


def _timed(picture: PlanPicture, longest: float) -> Iterator[str]:
    """Each box that is timed, as wide as its time is long."""
    passed = 0.0
    for box in picture.in_order:
        if box.time_us is None:
            continue
        number = "" if box.node is None else f"{box.node} "
        told = f"{number}{box.title} {box.detail}: {format_us(box.time_us)}"
        part = (
            f'<rect class="bar-{kind_of(box)}" x="{_percent(passed / longest)}" '
            f'width="{_percent(box.time_us / longest)}" height="100%">'
            f"<title>{escape(told)}</title></rect>"
        )
        # Those who cannot see the bar have the table.
        leads = "" if box.node is None else f' href="#node-{box.node}"'
        yield f'<a tabindex="-1"{leads}>{part}</a>' if leads else part
        passed += box.time_us


def _percent(share: float) -> str:
    return f"{100 * share:.3f}%"
