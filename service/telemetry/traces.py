"""OpenTelemetry traces, loaded only if environment variables enable them.

Requests go on with the trace that their `traceparent` names. A job is a trace of its own, which
has the id of the request that created it.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

ENABLED_BY = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
)
NAME = "tilewise"
FAILED = 500

log = logging.getLogger(__name__)


class Span:
    """A request's span, whose name is known when it ends."""

    def __init__(self, span: Any, method: str) -> None:
        self._span, self._method = span, method

    def end(self, route: str | None, status: int) -> None:
        """Record the route and the status of the request."""
        self._span.update_name(f"{self._method} {route}" if route else self._method)
        if route:
            self._span.set_attribute("http.route", route)
        self._span.set_attribute("http.response.status_code", status)
        if status >= FAILED:
            from opentelemetry.trace import StatusCode

            self._span.set_status(StatusCode.ERROR)


class Tracing:
    """Make spans and send them."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(NAME)

    @contextmanager
    def request(self, scope: Scope) -> Iterator[Span]:
        """Yield the span of a request."""
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        attributes = {
            "http.request.method": scope["method"],
            "url.path": scope["path"],
            "tilewise.request_id": scope["tilewise.request_id"],
        }
        with self._tracer.start_as_current_span(
            scope["method"], extract(dict(Headers(scope=scope))), SpanKind.SERVER, attributes
        ) as span:
            yield Span(span, scope["method"])

    @contextmanager
    def job(self, **attributes: str | int) -> Iterator[None]:
        """Yield the span of one run of a job."""
        named = {f"tilewise.{name}": value for name, value in attributes.items()}
        with self._tracer.start_as_current_span("job", attributes=named):
            yield

    def stop(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


def start_tracing(process: str) -> Tracing | None:
    """Return the tracing of a `service` or `worker`, if the environment enables it."""
    enabled = [name for name in ENABLED_BY if os.environ.get(name)]
    if not enabled or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        log.warning("%s is set, and %s is absent; install tilewise[telemetry]",
                    enabled[0], error.name)  # fmt: skip
        return None
    provider = TracerProvider(resource=Resource.create({"service.name": f"{NAME}-{process}"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)
