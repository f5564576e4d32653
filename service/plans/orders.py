"""What the making of a plan starts from, read from the database in one look."""

import logging
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from kernels.errors import KernelsError
from kernels.mlir.frontend.graph import Graph
from kernels.schedule import Schedule
from kernels.system.typed_json import from_json
from search.networks.costing.fastest import fastest_of_each
from search.networks.costs import RETIMED, Timed, algorithm_of
from service.db import models
from service.db.models import PlanLayouts
from service.errors import DamagedError, TamperedError
from service.faults import tell_once
from service.plans import rows
from service.plans.digests import digest
from service.plans.parts import key_of
from service.results import integrity
from service.results.schedules import find_fresh

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Order:
    """A plan to make.

    Attributes:
        plan_id: its number.
        name: what the model is called.
        target, cache: canonical, and how layers were timed.
        layouts: which are offered.
        graph: of the module.
        schedules: of each problem the fastest of each algorithm, `RETIMED` of them, the fastest
            first; no entry where none is stored.
        plan: what an earlier run has chosen; None where none has.
    """

    plan_id: int
    name: str
    target: str
    cache: str
    layouts: PlanLayouts
    graph: Graph
    schedules: dict[str, tuple[Timed, ...]]
    plan: dict[str, Any] | None


def read(session: Session, number: int) -> tuple[Order, bytes]:
    """The order of a plan, and its module.

    Raises:
        NotFoundError: there is no such plan.
        DamagedError: its row, its graph or its module cannot be read.
    """
    of_run = models.Plan.graph, models.Plan.module, models.Plan.plan
    row = rows.get(session, number, *of_run)
    try:
        graph = from_json(Graph, row.graph)
        module = zlib.decompress(row.module or b"")
    except (ValueError, zlib.error) as error:
        raise DamagedError(f"graph or module of plan {number} cannot be read: {error}") from error
    found = {one["problem"]: _stored(session, row, one["problem"])
             for one in (*row.problems, *row.variants)}  # fmt: skip
    schedules = {problem: timed for problem, timed in found.items() if timed}
    order = Order(
        number, row.name, row.target, row.cache, row.layouts, graph, schedules, _chosen(row)
    )  # fmt: skip
    return order, module


def _chosen(row: models.Plan) -> dict[str, Any] | None:
    """What an earlier run has chosen; None where it was changed since: all is chosen anew."""
    if row.plan is None or row.digest == digest(row, row.plan, None):
        return row.plan
    log.warning("plan %d: what was chosen is not what was stored; it is chosen anew", row.id)
    return None


def _stored(session: Session, plan: models.Plan, problem: str) -> tuple[Timed, ...]:
    """The stored best of a problem, and the fastest trials of each algorithm."""
    key = key_of(problem)
    best = find_fresh(session, key, plan.target, plan.toolchain.identity, plan.cache)
    if best is None:
        return ()
    try:
        integrity.check_schedule(best)
    except TamperedError:  # it was logged; nothing is planned on it
        return ()
    first = _timed(best.hash, best.steps, best.time_us)
    return fastest_of_each(first, _trials(session, best), RETIMED)


def _trials(session: Session, best: models.Schedule) -> Iterator[Timed]:
    """The trials for the same work that were timed, the fastest first.

    Those count, too, whose timing was cut short because others were faster: a worker times again.
    """
    trial, job = models.Trial, models.Job
    query = (
        select(trial.hash, trial.steps, trial.time_us)
        .join(job, job.id == trial.job_id)
        .where(
            job.problem_id == best.problem_id,
            job.target == best.target,
            job.toolchain_id == best.toolchain_id,
            job.cache == best.cache,
            trial.state.in_(("timed", "pruned")),
            trial.time_us.is_not(None),
        )
        .order_by(trial.time_us)
    )
    for hashed, steps, time_us in session.execute(query):
        if not isinstance(steps, list) or not isinstance(time_us, float):
            continue
        try:
            yield _timed(hashed, steps, time_us)
        except KernelsError as error:
            tell_once(log, f"trial {hashed} of {best.problem.canonical} is damaged: {error}")


def _timed(hashed: str, steps: list[Any], time_us: float) -> Timed:
    return Timed(algorithm_of(Schedule.from_json(steps)), hashed, tuple(steps), time_us)
