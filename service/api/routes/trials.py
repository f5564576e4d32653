"""`/v1/trials`: the trials of all jobs."""

from typing import Any

from fastapi import APIRouter

from tilewise.kernels.problem import parse_problem
from tilewise.search.records import CacheMode, TrialState
from tilewise.service.api.documents import stored_trial_json
from tilewise.service.api.executors import in_executor
from tilewise.service.api.routes.jobs import Cursor, Limit
from tilewise.service.api.schemas import StoredTrialPage, StoredTrialView
from tilewise.service.api.services import ServicesDep
from tilewise.service.results import trials
from tilewise.service.results.readable import RowPage

router = APIRouter(prefix="/v1/trials", tags=["trials"])


@router.get("", response_model=StoredTrialPage)
@in_executor("reads")
def list_trials(
    services: ServicesDep,
    problem: str | None = None,
    target: str | None = None,
    state: TrialState | None = None,
    cache: CacheMode | None = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> dict[str, Any]:
    """List finished trials in the order of storing, each with its problem and job.

    A trial that a later job copied is listed once. Without `target`, all targets are listed.
    """
    wanted = None if problem is None else parse_problem(problem)
    canonical = None if target is None else services.machine.canonical_target(target)
    with services.reading() as session:
        found = trials.find_trials(
            session,
            problem=wanted,
            target=canonical,
            state=state,
            cache=cache,
            after=cursor,
            limit=limit + 1,
        )
        filters = {"problem": problem, "target": target, "state": state, "cache": cache}
        page = RowPage("trials", "/v1/trials", limit, filters)
        return page.of(
            found, lambda row: stored_trial_json(*row), StoredTrialView, lambda row: row[0].id
        )
