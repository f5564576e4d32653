"""The page of a plan: the chosen layouts and algorithms of a model, in tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewise.kernels.mlir.frontend.graph import Size
from tilewise.kernels.problem import parse_problem
from tilewise.schema.base import Json, read
from tilewise.schema.modules import ModelPart, ModelPlan, PlanVariant
from tilewise.search.networks.plan import Plan
from tilewise.service.api.access import caller_of
from tilewise.service.api.executors import in_executor
from tilewise.service.api.model_documents import plan_json
from tilewise.service.api.routes.plans import PlanId
from tilewise.service.api.schemas import PlanView
from tilewise.service.api.services import ServicesDep
from tilewise.service.dashboard.rendering import PageRoute, page
from tilewise.service.dashboard.routes.forms import SEE_OTHER
from tilewise.service.db import models
from tilewise.service.errors import DamagedError
from tilewise.service.jobs import model_jobs
from tilewise.service.jobs.plans import check

FUSED = {
    "addition": "residual",
    "broadcast_a": "repeated A",
    "broadcast_b": "repeated B",
    "transpose_a": "transposed A",
    "transpose_b": "transposed B",
    "transpose_c": "transposed C",
}
"""What layers include, in the words of the page."""


@dataclass(frozen=True)
class PlanRow:
    """A node or a copy as a row of the table.

    Attributes:
        node: None for a copy.
        title: of what is not a problem: the op with its results, or the copy.
        pass_end: the node whose pass runs this op and has its time.
        share: of the planned time.
    """

    node: int | None
    title: str
    problem: str
    href: str | None
    op: str
    where: str
    reason: str
    algorithm: str
    fused: tuple[str, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    time_us: float | None
    pass_end: int | None
    share: float | None


@dataclass(frozen=True)
class PlanPage:
    """A plan as its page shows it; `rows` have the order of execution."""

    totals: list[tuple[str, float, float]]
    rows: list[PlanRow]
    is_exact: bool
    copies: int
    copies_us: float
    nodes: int
    around: int


def sound(found: Json) -> ModelPlan:
    """Return a plan's document, or raise DamagedError if it is not one the API would give."""
    try:
        return read(ModelPlan, PlanView.model_validate(found).model_dump(mode="json"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ": ".join((*map(str, first["loc"]), first["msg"]))
        raise DamagedError(f"the row of plan {found['id']} is damaged: {where}") from error


def plan_of(source: object) -> Plan:
    """Return a stored plan, or raise DamagedError."""
    try:
        return Plan.from_json(source)
    except ValueError as error:
        raise DamagedError(f"the stored plan is damaged: {error}") from error


def shown(plan: Plan, hrefs: dict[str, str]) -> PlanPage:
    """Return a plan as its page shows it; `hrefs` are pages of schedules by problem.

    Raises DamagedError if it names a tensor or a node that it does not have.
    """
    _check(plan)
    totals = {
        "planned": plan.totals.chosen_us,
        "all as the model has it": plan.totals.plain_us,
        "each layer on its own": plan.totals.alone_us,
    }
    chosen_us = plan.totals.chosen_us
    return PlanPage(
        totals=[(name, us, us / chosen_us) for name, us in totals.items()] if chosen_us else [],
        rows=list(_rows(plan, hrefs)),
        is_exact=plan.is_exact,
        copies=len(plan.conversions),
        copies_us=sum(one.time_us for one in plan.conversions),
        nodes=len(plan.nodes),
        around=sum(bool(node.reason) for node in plan.nodes),
    )


def _check(plan: Plan) -> None:
    tensors = {use.tensor for node in plan.nodes for use in (*node.reads, *node.makes)}
    tensors |= {one.tensor for one in plan.conversions}
    nodes = {number for one in plan.passes for number in one.nodes}
    for what, named, count in (
        ("tensor", tensors, len(plan.tensors)), ("node", nodes, len(plan.nodes)),
    ):  # fmt: skip
        if wrong := sorted(named - set(range(count))):
            raise DamagedError(f"the stored plan is damaged: it has no {what} {wrong[0]}")


def schedule_pages(session: Session, plan: Plan) -> dict[str, str]:
    """Return the page of each stored problem, with the schedule of the plan."""
    chosen = {
        parse_problem(node.problem).key: (node.problem, node.schedule.hash)
        for node in plan.nodes
        if node.problem is not None and node.schedule is not None
    }
    known = session.scalars(select(models.Problem.key).where(models.Problem.key.in_(chosen)))
    pages = {key: f"/problems/{key}" for key in known}
    stored = session.execute(
        select(models.Problem.key, models.Schedule.hash, models.Schedule.id)
        .join(models.Schedule.problem)
        .where(models.Problem.key.in_(chosen), models.Schedule.target == plan.target)
    )
    for key, digest, number in stored:
        if chosen[key][1] == digest:
            pages[key] = f"/problems/{key}?schedule={number}"
    return {chosen[key][0]: page for key, page in pages.items()}


def _rows(plan: Plan, hrefs: dict[str, str]) -> Iterator[PlanRow]:
    """Yield the nodes in order; copies of a tensor follow the node that makes it."""
    passes = {number: one for one in plan.passes for number in one.nodes}
    given = [number for number, one in enumerate(plan.tensors) if one.is_given]
    yield from _copies(plan, given)
    for number, node in enumerate(plan.nodes):
        problem, algorithm, pass_end = node.problem or "", "", None
        title, time_us, fused = "", None, tuple[str, ...]()
        if node.found is not None:
            problem = problem or node.found.problem
            fused = tuple(FUSED.get(name, name) for name in node.found.fused)
        else:
            shapes = [_shape(use.shape, plan.tensors[use.tensor].dtype) for use in node.makes]
            title = f"{node.op} {', '.join(shapes)}"
        if node.schedule is not None:
            algorithm, time_us = node.schedule.algorithm, node.schedule.time_us
        elif node.found is None and number in passes:
            algorithm, pass_end = "pass", passes[number].nodes[-1]
            if number == pass_end:
                time_us = passes[number].time_us
                fused = (passes[number].label,) if len(passes[number].nodes) > 1 else ()
        yield PlanRow(
            number, title, problem, hrefs.get(problem), node.op,
            node.where.removesuffix(node.op).strip(), node.reason, algorithm, fused,
            tuple(use.layout.name for use in node.reads),
            tuple(use.layout.name for use in node.makes),
            time_us, pass_end, _share(plan, time_us),
        )  # fmt: skip
        yield from _copies(plan, [use.tensor for use in node.makes])


def _copies(plan: Plan, tensors: Sequence[int]) -> Iterator[PlanRow]:
    for one in plan.conversions:
        if one.tensor in tensors:
            tensor = plan.tensors[one.tensor]
            yield PlanRow(
                None, f"copy to {one.layout.name} {_shape(tensor.shape, tensor.dtype)}",
                "", None, "", "", "", "", (), (tensor.layout.name,), (one.layout.name,),
                one.time_us, None, _share(plan, one.time_us),
            )  # fmt: skip


def _shape(shape: Sequence[Size], dtype: str) -> str:
    return "x".join([*("?" if size is None else str(size) for size in shape), dtype])


def _share(plan: Plan, time_us: float | None) -> float | None:
    return None if time_us is None else time_us / (plan.totals.chosen_us or 1.0)


router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/plans/{plan_id}")
@in_executor("reads")
def one_plan(plan_id: PlanId, request: Request, services: ServicesDep) -> Response:
    """Return the page of a plan: the progress of its problems, or its times and nodes."""
    with services.reading() as session:
        row = model_jobs.get_plan(session, plan_id, models.Plan.plan, models.Plan.script)
        if row.job.state == "done":
            check(row)
        found = sound(plan_json(session, row))
        plan = None if found.plan is None else plan_of(found.plan)
        hrefs = {} if plan is None else schedule_pages(session, plan)
    problems: list[ModelPart | PlanVariant] = [*found.problems, *found.variants]
    return page(
        request,
        "plan.html",
        plan=found,
        shown=None if plan is None else shown(plan, hrefs),
        problems=problems,
        ended=sum(one.state not in ("queued", "running") for one in problems),
        goes_on=found.state in ("queued", "running"),
    )


@router.post("/plans/{plan_id}/cancel")
@in_executor("writes")
def cancel(plan_id: PlanId, request: Request, services: ServicesDep) -> Response:
    """Call a plan off, as `DELETE /v1/plans/{id}` does."""
    with services.writing() as session:
        model_jobs.cancel_plan(session, plan_id, caller_of(request).only_of)
    services.wake()
    return RedirectResponse(f"/plans/{plan_id}", SEE_OTHER)
