"""What the making of a plan starts from, read from the database in one look."""

import logging
import zlib
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from tilewise.kernels.mlir.frontend.graph import Graph
from tilewise.kernels.problem import Accuracy
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.typed_json import from_json
from tilewise.schema.base import PlanLayouts
from tilewise.search.networks.costs import RETIMED, Timed, algorithm_of, fastest_of_each
from tilewise.service.db import models
from tilewise.service.errors import DamagedError, TamperedError
from tilewise.service.plans import rows
from tilewise.service.plans.digests import digest
from tilewise.service.plans.parts import key_of
from tilewise.service.results import integrity
from tilewise.service.results.schedules import find_fresh
from tilewise.service.results.trials import trials_beside

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Order:
    """A plan to make.

    Attributes:
        plan_id: its number.
        name: what the model is called.
        target, cache: canonical, and how layers were timed.
        layouts: which are offered.
        accuracy: of the graph's problems.
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
    accuracy: Accuracy
    graph: Graph
    schedules: dict[str, tuple[Timed, ...]]
    plan: dict[str, Any] | None


def read(session: Session, number: int) -> tuple[Order, bytes]:
    """The order of a plan, and its module.

    Raises:
        NotFoundError: there is no such plan.
        DamagedError: its row, its graph or its module cannot be read.
    """
    row = rows.get(session, number, models.Plan.plan)
    graph, module = _source(row)
    found = {one["problem"]: _stored(session, row, one["problem"])
             for one in (*row.problems, *row.variants)}  # fmt: skip
    schedules = {problem: timed for problem, timed in found.items() if timed}
    order = Order(
        number, row.name, row.target, row.cache, row.layouts, row.accuracy, graph, schedules,
        _chosen(row),
    )  # fmt: skip
    return order, module


def _source(row: models.Plan) -> tuple[Graph, bytes]:
    """The graph and the module of a plan.

    Raises:
        DamagedError: there are none, or they cannot be read.
    """
    source = row.source or models.PlanSource()
    try:
        graph = from_json(Graph, source.graph)
        if not isinstance(source.module, bytes):  # SQLite keeps any value in any column
            raise ValueError(f"the module is of type {type(source.module).__name__}")
        return graph, zlib.decompress(source.module)
    except (ValueError, zlib.error) as error:
        raise DamagedError(f"graph or module of plan {row.id} cannot be read: {error}") from error


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
    first = _timed(best.hash, Schedule.from_json(best.steps), best.time_us)
    # Those count, too, whose timing was cut short because others were faster: they are timed again.
    others = trials_beside(session, best, ("timed", "pruned"))
    more = (_timed(one.hash, one.schedule, one.time_us) for one in others)
    return fastest_of_each(first, more, RETIMED)


def _timed(hashed: str, schedule: Schedule, time_us: float) -> Timed:
    return Timed(algorithm_of(schedule), hashed, tuple(schedule.to_json()), time_us)
