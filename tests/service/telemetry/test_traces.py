import http.server
import subprocess
import sys
import threading

import pytest
from fastapi.testclient import TestClient
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.service.conftest import TOOLCHAIN, settings_for
from tilewise.service.app import create_app
from tilewise.service.telemetry import traces
from tilewise.service.telemetry.traces import Tracing, start_tracing

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def spans(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("tilewise.service.app.start_tracing", lambda _process: Tracing(provider))
    return exporter.get_finished_spans


def test_each_request_is_a_span_of_its_callers_trace(spans, url, machine):
    app = create_app(settings_for(url), 0, machine=machine, toolchain=TOOLCHAIN)
    with TestClient(app) as client:
        parent = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "X-Request-ID": "r1"}
        client.get("/v1/jobs/77", headers=parent)
        client.get("/nothing")
    first, second = spans()
    assert first.name == "GET /v1/jobs/{job_id}" and second.name == "GET"
    assert format(first.context.trace_id, "032x") == TRACE
    assert first.attributes["http.response.status_code"] == 404
    assert first.attributes["http.route"] == "/v1/jobs/{job_id}"
    assert first.attributes["tilewise.request_id"] == "r1"


@pytest.mark.full
def test_nothing_is_loaded_unless_it_is_asked_for():
    program = (
        "import sys, tilewise.service.server\n"
        "from tilewise.service.telemetry.traces import start_tracing\n"
        "assert start_tracing('service') is None\n"
        "sys.exit(any(name.startswith('opentelemetry.sdk') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_package_that_is_absent_is_one_line(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:1")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert traces.start_tracing("service") is None
    assert "install tilewise[telemetry]" in caplog.text


def test_spans_reach_a_collector(monkeypatch):
    received = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            size = int(self.headers["Content-Length"])
            received.append(ExportTraceServiceRequest.FromString(self.rfile.read(size)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}"
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    tracing = start_tracing("worker")
    assert tracing is not None
    with tracing.job(job=3, epoch=1, request_id="r1"):
        pass
    tracing.stop()
    server.shutdown()
    (resource,) = received[0].resource_spans
    (span,) = resource.scope_spans[0].spans
    assert span.name == "job"
    told = {one.key: one.value for one in span.attributes}
    assert told["tilewise.request_id"].string_value == "r1"
    named = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert named["service.name"] == "tilewise-worker"
