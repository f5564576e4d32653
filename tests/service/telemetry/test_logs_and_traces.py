import http.server
import io
import json
import logging
import subprocess
import sys
import threading

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.service.conftest import PROBLEM
from tests.service.processes import ServiceProcess, wait_until
from tilewise.service.db import models, reading
from tilewise.service.telemetry import traces
from tilewise.service.telemetry.logs import configure_logs
from tilewise.service.telemetry.traces import Tracing, start_tracing

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def spans(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("tilewise.service.app.start_tracing", lambda _process: Tracing(provider))
    return exporter.get_finished_spans


def test_each_request_is_a_span_of_its_callers_trace(spans, client):
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
    address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
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


HOSTILE = "a\nERROR root: forged\r\x1b[31m\u2028 b"


@pytest.fixture
def logged():
    """Configures logs; gives what was written."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()

    def configure(form):
        configure_logs("info", form)
        root.handlers[0].setStream(stream)
        return stream

    yield configure
    root.handlers[:], level = before
    root.setLevel(level)


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_fault_has_its_traceback_and_nothing_that_is_sent_a_line_of_its_own(logged, client, form):
    stream = logged(form)
    client.post("/v1/jobs", json={"problem": HOSTILE}, headers={"X-Request-ID": "sane-1"})
    client.get("/nothing/%0AERROR%20forged")
    lines = [line for line in stream.getvalue().splitlines() if "request" in line]
    assert len(lines) == 2 and not any(line.startswith("ERROR") for line in lines)
    assert "\u2028" not in stream.getvalue()
    if form == "json":
        first, second = map(json.loads, lines)
        assert first["request_id"] == "sane-1" and first["status"] == 422
        assert first["route"] == "/v1/jobs" and first["level"] == "info" and first["timestamp"]
        assert second["path"] == "/nothing/\nERROR forged" and second["route"] is None
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("x").exception("it failed")
    assert "ValueError: why" in stream.getvalue()


def test_a_sane_name_of_a_request_is_kept_and_answered(client):
    def named(sent):
        answer = client.get("/healthz", headers={"X-Request-ID": sent.encode("latin-1")})
        return answer.headers["X-Request-ID"]

    for sent in ("abc-1.2_3", "x" * 64):
        assert named(sent) == sent
    for sent in ("x" * 65, "a b", "", "a\u00e9"):
        assert named(sent) != sent and len(named(sent)) == 32


@pytest.mark.full
def test_the_name_of_a_request_reaches_the_workers_lines(url, sessions, capfd, monkeypatch):
    monkeypatch.setenv("TILEWISE_LOG_FORMAT", "json")
    monkeypatch.setenv("TILEWISE_LOG_LEVEL", "info")
    service = ServiceProcess(url, "tests.service.fakes:tune")
    body, headers = {"problem": PROBLEM, "trials": 2}, {"X-Request-ID": "from-ci-7"}
    posted = service.client.post("/v1/jobs", json=body, headers=headers)
    assert posted.headers["X-Request-ID"] == "from-ci-7"
    wait_until(lambda: service.client.get("/v1/jobs/1").json()["state"] == "done")
    service.stop()
    with reading(sessions) as session:
        assert session.get_one(models.Job, 1).request_id == "from-ci-7"
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line[:1] == "{"]
    of_worker = [line for line in lines if line.get("job") == 1]
    assert {(line["request_id"], line["epoch"]) for line in of_worker} == {("from-ci-7", 1)}
