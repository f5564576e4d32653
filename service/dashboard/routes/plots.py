"""Plots of pages, as specifications with their data."""

from typing import Any, Literal

from fastapi import APIRouter

from tilewise.service.api.documents import result_json
from tilewise.service.api.executors import in_executor
from tilewise.service.api.files import look_up
from tilewise.service.api.range_documents import range_json
from tilewise.service.api.routes.jobs import JobId
from tilewise.service.api.schemas import ProblemKey
from tilewise.service.api.services import ServicesDep
from tilewise.service.dashboard import stored
from tilewise.service.dashboard.rendering import StoredRoute
from tilewise.service.dashboard.routes.code import Number
from tilewise.service.db import models
from tilewise.service.errors import NotFoundError
from tilewise.service.jobs import queue
from tilewise.service.plots import convergence, roofline, speeds
from tilewise.service.plots.drawing import Spec, trial_row
from tilewise.service.plots.ranges import over_sizes, sampled
from tilewise.service.results import history
from tilewise.service.results.stored import Lookup

router = APIRouter(prefix="/plots", include_in_schema=False, route_class=StoredRoute)

OfJob = Literal["convergence", "pace", "origins"]


@router.get("/jobs/{job_id}/{kind}")
@in_executor("reads")
def of_job(job_id: JobId, kind: OfJob, services: ServicesDep) -> Spec:
    """Return a plot of a search."""
    with services.reading() as session:
        job = queue.get(session, job_id)
        name = job.problem.canonical
        peak = stored.peak_of(session, job) if kind == "convergence" else None
        trials = stored.trials_of(session, job_id)
    if kind == "convergence":
        return convergence.convergence(name, _rows(trials), peak)
    if kind == "pace":
        return convergence.pace(_rows(trials))
    return convergence.origins(_rows(trials))


@router.get("/schedules/{number}/roofline")
@in_executor("reads")
def of_schedule(number: Number, services: ServicesDep) -> Spec:
    """Return a schedule under its machine's peak, with the trials of its search and its peers."""
    with services.reading() as session:
        row = stored.schedule_row(session, number)
        result = result_json(session, row, services.toolchain)
        trials = _rows(stored.trials_of(session, row.job_id))
    return roofline.of_problem(result["problem"], result, trials, roofline.limits_of(result))


@router.get("/ranges/{number}")
@in_executor("reads")
def of_range(number: JobId, services: ServicesDep) -> Spec:
    """Return the speed of a range's variants over the size, with stored speeds of peers."""
    with services.reading() as session:
        row = session.get(models.TunedRange, number)
        if row is None:
            raise NotFoundError(f"there is no range {number}")
        found = range_json(row, services.toolchain)
        lookup = Lookup(row.target, services.toolchain, row.cache)
        answers = look_up(session, sampled(found), lookup)["schedules"]
    return over_sizes(found, [one["schedule"] for one in answers])


@router.get("/problems/{key}/history")
@in_executor("reads")
def of_problem(key: ProblemKey, services: ServicesDep) -> Spec:
    """Return the plot of a problem's speed over time."""
    with services.reading() as session:
        name = stored.problem_named(session, key)
        kept = stored.rows_of(session, models.Schedule, key)
        past = history.of_problem(session, key, stored.PAGE)
        rows = stored.history_rows([*kept, *past])
    return speeds.history(f"GFLOP/s of {name}", rows)


@router.get("/compare/{left}/{right}")
@in_executor("reads")
def of_two(left: str, right: str, services: ServicesDep) -> Spec:
    """Return the speeds of two schedules with their intervals."""
    with services.reading() as session:
        rows = [
            _interval(stored.result_row(session, named), side)
            for side, named in (("first", left), ("second", right))
        ]
    return speeds.intervals("GFLOP/s, 95% intervals", rows)


def _interval(row: models.Schedule | models.PastSchedule, side: str) -> dict[str, Any]:
    # Two toolchains or machines may have found the same schedule: names would not tell them apart.
    name = f"{side}: {row.hash[:8]}, {row.cache}"
    return {"name": name, "gflops": row.gflops, "low": row.low, "high": row.high}


def _rows(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [trial_row(trial) for trial in trials]
