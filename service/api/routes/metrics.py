"""`/metrics`: what the service tells Prometheus."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from prometheus_client.exposition import choose_encoder

from tilewise.service.api.executors import in_executor
from tilewise.service.api.services import ServicesDep

router = APIRouter(tags=["status"])

TEXT = "text/plain"
OPEN_METRICS = "application/openmetrics-text"
FORMS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {kind: {"schema": {"type": "string"}} for kind in (TEXT, OPEN_METRICS)},
        "description": "The metrics",
    }
}


@router.get("/metrics", response_class=Response, responses=FORMS)
@in_executor("probes")
def get_metrics(services: ServicesDep, accept: Annotated[str, Header()] = "") -> Response:
    """The metrics of this process, and those that the database tells."""
    with services.reading() as session:
        services.stored_metrics.look(session)
    encode, kind = choose_encoder(accept)
    return Response(encode(services.metrics.registry), media_type=kind)
