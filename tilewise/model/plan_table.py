"""A plan as text."""

from collections import Counter
from collections.abc import Iterator, Sequence

from tilewise.kernels.quoting import columns, duration
from tilewise.search.networks.plan import Plan, PlannedPass, PlannedUse

_HEAD = ("node", "problem", "algorithm", "reads", "makes", "time", "share")


def plan_text(plan: Plan) -> str:
    """Describe each layer, pass and copy, the totals, and what is planned around."""
    parts = sorted([*_layers(plan), *_passes(plan)], key=lambda row: int(row[0]))
    lines = [*columns([_HEAD, *parts, *_copies(plan)], right=(0, 5, 6)), "", *_totals(plan), ""]
    lines += [
        *_around(plan),
        *_untimed(plan),
        f"{plan.target}, tuned with {plan.cache} caches, accuracy={plan.accuracy}: {plan.model}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _layers(plan: Plan) -> Iterator[tuple[str, ...]]:
    for number, node in enumerate(plan.nodes):
        if node.schedule is not None and node.problem is not None:
            yield (str(number), node.problem, node.schedule.algorithm, _layouts(node.reads),
                   _layouts(node.makes), *_time(node.schedule.time_us, plan))  # fmt: skip


def _passes(plan: Plan) -> Iterator[tuple[str, ...]]:
    for one in plan.passes:
        node = plan.nodes[one.nodes[-1]]
        others = len(one.nodes) - 1
        label = f"{one.label}, with {others} before" if others else one.label
        reads = ", ".join(dict.fromkeys(use.layout.name for use in _read(plan, one)))
        makes = ", ".join(use.layout.name for use in node.makes)
        yield str(one.nodes[-1]), label, "pass", reads, makes, *_time(one.time_us, plan)


def _read(plan: Plan, one: PlannedPass) -> list[PlannedUse]:
    """Return the tensors that a pass reads from memory."""
    made = {use.tensor for number in one.nodes for use in plan.nodes[number].makes}
    uses = [use for number in one.nodes for use in plan.nodes[number].reads]
    return [use for use in uses if use.tensor not in made]


def _copies(plan: Plan) -> Iterator[tuple[str, ...]]:
    for one in plan.conversions:
        tensor = plan.tensors[one.tensor]
        shape = "x".join("?" if size is None else str(size) for size in tensor.shape)
        label = f"copy of tensor {one.tensor}, {shape}x{tensor.dtype}{_readers(plan, one.tensor)}"
        yield ("", label, "", tensor.layout.name, one.layout.name, *_time(one.time_us, plan))


def _readers(plan: Plan, tensor: int) -> str:
    """Name the nodes that read a tensor in another layout than it is made in."""
    made = plan.tensors[tensor].layout
    found = [
        str(number)
        for number, node in enumerate(plan.nodes)
        if any(use.tensor == tensor and use.layout != made for use in node.reads)
    ]
    return f", for {' and '.join(found)}" if found else ", for the caller"


def _layouts(uses: Sequence[PlannedUse]) -> str:
    """Name the layouts of activations; biases keep the model's."""
    return ", ".join(use.layout.name for use in uses if use.role in ("A", "B", "C"))


def _time(time_us: float, plan: Plan) -> tuple[str, str]:
    return duration(time_us), f"{100 * time_us / plan.totals.chosen_us:.1f}%"


def _totals(plan: Plan) -> Iterator[str]:
    totals = plan.totals
    if not any(node.schedule for node in plan.nodes):
        yield "no layer has a stored schedule; give more --trials"
        return
    yield f"planned                 {duration(totals.chosen_us)}"
    for label, time_us in (
        ("all as the model has it", totals.plain_us),
        ("each layer on its own", totals.alone_us),
    ):
        yield f"{label:<23} {duration(time_us)}   {time_us / totals.chosen_us:.3f}x"
    if not plan.is_exact:
        yield "too many layouts depend on each other: not all choices were compared"


def _around(plan: Plan) -> Iterator[str]:
    for number, node in enumerate(plan.nodes):
        if node.reason:
            what = node.problem or (node.found.problem if node.found else node.op)
            place = node.where.rpartition(" ")[0]
            yield f"planned around: {number}, {what} at {place}: {node.reason}"


def _untimed(plan: Plan) -> Iterator[str]:
    timed = {number for one in plan.passes for number in one.nodes}
    others = Counter(node.op for number, node in enumerate(plan.nodes)
                     if node.found is None and number not in timed)  # fmt: skip
    if others:
        label = ", ".join(f"{count} {op}" for op, count in others.items())
        yield f"not timed, in layouts of the model or those around them: {label}"
