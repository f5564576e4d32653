"""Whether the service is there and fit to work, and what it can time."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter

from service.api.lanes import in_lane
from service.api.problem_details import responses
from service.api.schemas import StatusView, TargetsView
from service.api.services import ServicesDep
from service.db import models, schema
from service.errors import DatabaseError
from service.workers import registry

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
@in_lane("reads")
def get_targets(services: ServicesDep) -> dict[str, Any]:
    """The targets that live workers serve, here and elsewhere, and what their machines reach."""
    with services.reading() as session:
        workers = registry.live(session)
        served = {target for worker in workers for target in worker.targets}
        return {"targets": sorted(served, key=_by_threads), "workers": list(map(_shown, workers))}


def _by_threads(target: str) -> tuple[str, int, str]:
    name, _, threads = target.partition(",threads=")
    return name, int(threads) if threads.isdigit() else 0, target


def _shown(worker: models.Worker) -> dict[str, Any]:
    machine = worker.machine
    return {
        "host": machine.host,
        "cpu": machine.cpu,
        "cores": machine.cores,
        "targets": worker.targets,
        "toolchain": worker.toolchain,
        "capacity": worker.capacity,
        "features": machine.features,
        "peaks": machine.peaks or {},
        "peaks_at": machine.peaks_at,
        "seen": worker.seen_at,
    }
