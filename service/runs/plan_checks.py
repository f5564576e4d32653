"""Check a cluster worker's plan against its assignment."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import isfinite
from operator import attrgetter
from typing import Any

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Schedule, check_legal
from tilewise.kernels.system.typed_json import from_json
from tilewise.search.networks.costs import Timed
from tilewise.search.networks.plan import Plan
from tilewise.search.networks.variants import problems_of
from tilewise.service.errors import RefusedError
from tilewise.service.jobs.plans import Made, PackOutcome, PlanAssignment

LONGEST_SCRIPT = 64 << 20
LONGEST_LABEL = 1000
PROOF = ("max_error", "tolerance", "mlir", "packs", "unpacks", "reshapes", "weights")
_MLIR = re.compile(r"[A-Za-z0-9 .+_-]{1,100}")


def checked_made(assignment: PlanAssignment, body: dict[str, Any], host: str) -> Made:
    """Return what a worker made, its proof marked with the host whose word it is.

    Graph, problems and schedules are compared. Times, and that the script packs the module, are
    taken from the worker. Raises RefusedError for anything that is not of the assignment.
    """
    with _refusing():
        made = from_json(Made, body)
        if assignment.plan is not None and made.plan != assignment.plan:
            raise ValueError("the plan is another one than was chosen before")
    check_plan(assignment, made.plan)
    for fault in _packed_faults(made.packed):
        raise RefusedError([("packed", fault)])
    packed = made.packed
    if packed.proof is None:
        return made
    return replace(made, packed=replace(packed, proof={**packed.proof, "by": host}))


def check_plan(assignment: PlanAssignment, body: dict[str, Any]) -> None:
    """Raise RefusedError unless a plan is one of its assignment."""
    if body == assignment.plan:  # checked when it was chosen, perhaps by an earlier version
        return
    with _refusing():
        plan = Plan.from_json(body)
        if json.loads(json.dumps(plan.to_json())) != body:
            raise ValueError("the plan has fields that no plan has, or lacks some")
        for fault in _plan_faults(assignment, plan):
            raise ValueError(f"the plan is not of its assignment: {fault}")


@contextmanager
def _refusing() -> Iterator[None]:
    """Name what reading and comparing an answer raises, whatever a worker sent."""
    try:
        yield
    except (KernelsError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise RefusedError([("plan", str(error))]) from error


def _plan_faults(assignment: PlanAssignment, plan: Plan) -> Iterator[str]:
    request = assignment.request
    named = (plan.model, plan.target, plan.cache, plan.accuracy)
    if named != (request.name, request.target, request.cache, request.accuracy):
        yield "model, target, cache or accuracy"
    graph = assignment.graph
    if list(map(_in_graph, plan.nodes)) != list(map(_in_graph, graph.nodes)):
        yield "nodes"
        return
    shared = attrgetter("shape", "dtype", "is_given", "is_result")
    if list(map(shared, plan.tensors)) != list(map(shared, graph.tensors)):
        yield "tensors"
    yield from _schedule_faults(assignment, plan)
    if not all(0 <= one.tensor < len(graph.tensors) for one in plan.conversions):
        yield "conversions"
    for made in plan.passes:
        is_of_graph = all(0 <= number < len(graph.nodes) for number in made.nodes)
        if not is_of_graph or len(made.label) > LONGEST_LABEL:
            yield "passes"
    times = [one.time_us for one in plan.conversions] + [one.time_us for one in plan.passes]
    times += [node.schedule.time_us for node in plan.nodes if node.schedule]
    times += [plan.totals.chosen_us, plan.totals.plain_us, plan.totals.alone_us]
    if not all(isfinite(taken) and taken >= 0 for taken in times):
        yield "times"


def _in_graph(node: Any) -> tuple[Any, ...]:
    """What a planned node has of the node of the graph."""
    uses = [
        [(use.tensor, use.shape, use.role) for use in some] for some in (node.reads, node.makes)
    ]
    return (node.kind, node.op, node.where, node.found, node.place, uses)


def _schedule_faults(assignment: PlanAssignment, plan: Plan) -> Iterator[str]:
    """Yield the faults of the problems and schedules of the nodes.

    A schedule must be stored or legal, since those with prefetches are not stored.
    """
    known = {*assignment.schedules, *problems_of(assignment.graph)}
    for node, planned in zip(assignment.graph.nodes, plan.nodes, strict=True):
        if planned.problem is None:
            if planned.schedule is not None:
                yield f"node {node.where}: a schedule of no problem"
            continue
        if node.found is None or planned.problem not in known:
            yield f"node {node.where}: problem {planned.problem!r:.200}"
        elif planned.schedule is not None:
            fault = _timed_fault(assignment, planned.problem, planned.schedule)
            if fault is not None:
                yield f"node {node.where}: {fault}"


def _timed_fault(assignment: PlanAssignment, problem: str, timed: Timed) -> str | None:
    stored = (replace(one, time_us=timed.time_us) for one in assignment.schedules.get(problem, ()))
    if timed in stored:
        return None
    try:
        schedule = Schedule.from_json(list(timed.steps))
        check_legal(parse_problem(problem), schedule)
    except KernelsError as error:
        return str(error)
    return None if schedule.hash == timed.hash else f"steps do not have the hash {timed.hash!r:.40}"


def _packed_faults(packed: PackOutcome) -> Iterator[str]:
    if (packed.script is None) != (packed.proof is None):
        yield "a script without a proof, or a proof without a script"
    if packed.script is not None and len(packed.script) > LONGEST_SCRIPT:
        yield f"a script of more than {LONGEST_SCRIPT} characters"
    proof = packed.proof
    if proof is None:
        return
    if set(proof) != set(PROOF) or not _MLIR.fullmatch(str(proof["mlir"])):
        yield "the fields of the proof"
        return
    numbers = [proof[name] for name in PROOF if name != "mlir"]
    if not all(type(one) in (int, float) and isfinite(one) and one >= 0 for one in numbers):
        yield "the numbers of the proof"
    elif not proof["max_error"] <= proof["tolerance"]:
        yield "a proof that does not hold"
