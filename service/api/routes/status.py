"""Whether the service is there and fit to work, and what it can time."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter

from service.api.lanes import in_lane
from service.api.problem_details import responses
from service.api.schemas import StatusView, TargetsView
from service.api.services import ServicesDep
from service.db import schema
from service.errors import DatabaseError

router = APIRouter(tags=["status"])


@router.get("/healthz", response_model=StatusView)
async def healthz() -> StatusView:
    """The process answers; nothing else is asked."""
    return StatusView()


@router.get(
    "/readyz", response_model=StatusView, responses=responses(HTTPStatus.SERVICE_UNAVAILABLE)
)
@in_lane("probes")
def readyz(services: ServicesDep) -> StatusView:
    """The database has the right schema, takes writes and has room; the workers are there."""
    schema.check(services.prober)
    schema.check_room(services.prober)
    schema.check_writable(services.prober)
    if services.pool is not None and not services.pool.is_alive:
        raise DatabaseError("the embedded workers have stopped; restart the service")
    return StatusView()


@router.get("/v1/targets", response_model=TargetsView)
async def get_targets(services: ServicesDep) -> dict[str, Any]:
    """The targets that live workers serve."""
    return {"targets": list(services.machine.targets) if services.pool is not None else []}
