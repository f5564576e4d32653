"""Health, readiness, targets and metrics."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from prometheus_client.exposition import choose_encoder

from tilewise.schema.status import Worker
from tilewise.service.api.documents import shown
from tilewise.service.api.executors import in_executor
from tilewise.service.api.problem_details import responses
from tilewise.service.api.schemas import ReadyView, StatusView, TargetsView
from tilewise.service.api.services import Services, ServicesDep
from tilewise.service.db import schema
from tilewise.service.errors import PASSING, BusyError, DatabaseError, OutageError
from tilewise.service.jobs import registry
from tilewise.version import VERSION

router = APIRouter(tags=["status"])

TEXT = "text/plain"
OPEN_METRICS = "application/openmetrics-text"
FORMS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {kind: {"schema": {"type": "string"}} for kind in (TEXT, OPEN_METRICS)},
        "description": "The metrics",
    }
}


@router.get("/healthz", response_model=StatusView)
async def healthz() -> StatusView:
    """Return the version of the process; nothing else is checked."""
    return StatusView(version=VERSION)


@router.get(
    "/readyz", response_model=ReadyView, responses=responses(HTTPStatus.SERVICE_UNAVAILABLE)
)
@in_executor("probes")
def readyz(services: ServicesDep) -> dict[str, Any]:
    """Check the schema, writes, disk space and workers.

    503 names each part that is not ready.
    """
    found = {name: _fault(check, services) for name, check in CHECKS.items()}
    faults = [fault for fault in found.values() if fault is not None]
    if faults:
        raise _kind(faults)("; ".join(dict.fromkeys(map(str, faults))))
    return {"status": "ok", "checks": dict.fromkeys(found, "ok")}


def _fault(check: Callable[[Services], None], services: Services) -> DatabaseError | None:
    try:
        check(services)
    except DatabaseError as error:
        return error
    return None


def _kind(faults: list[DatabaseError]) -> type[DatabaseError]:
    """The least hopeful of some faults."""
    if all(isinstance(fault, BusyError) for fault in faults):
        return BusyError
    return OutageError if all(isinstance(fault, PASSING) for fault in faults) else DatabaseError


def _require_workers(services: Services) -> None:
    if services.pool is not None and not services.pool.is_alive:
        raise DatabaseError("the workers have stopped; restart the service")


CHECKS: dict[str, Callable[[Services], None]] = {
    "schema": lambda services: schema.check(services.prober),
    "room": lambda services: schema.check_room(services.prober),
    "database": lambda services: schema.check_writable(services.prober),
    "workers": _require_workers,
}


@router.get("/v1/targets", response_model=TargetsView)
@in_executor("reads")
def get_targets(services: ServicesDep) -> dict[str, Any]:
    """Return the targets of all live workers, and the measured speeds of their machines."""
    with services.reading() as session:
        workers = registry.live(session)
        served = {target for worker in workers for target in worker.targets}
        known = [
            shown((one, one.machine), Worker, peaks=one.machine.peaks or {}) for one in workers
        ]
        return {"targets": sorted(served, key=_by_threads), "workers": known}


def _by_threads(target: str) -> tuple[str, str, int, str]:
    name, _, rest = target.partition(",threads=")
    threads, _, features = rest.partition(",features=")
    return name, features, int(threads) if threads.isdigit() else 0, target


@router.get("/metrics", response_class=Response, responses=FORMS)
@in_executor("probes")
def get_metrics(services: ServicesDep, accept: Annotated[str, Header()] = "") -> Response:
    """Return the metrics of this process and of the database."""
    with services.reading() as session:
        services.stored_metrics.look(session, services.toolchain)
    encode, kind = choose_encoder(accept)
    return Response(encode(services.metrics.registry), media_type=kind)
