import io
import json
import logging

import pytest

from tests.service.conftest import PROBLEM
from tests.service.processes import ServiceProcess, wait_until
from tilewise.service.db import models, reading
from tilewise.service.telemetry.logs import configure_logs

HOSTILE = "a\nERROR root: forged\r\x1b[31m\u2028 b"


@pytest.fixture
def logged(monkeypatch):
    """Configures logs; gives what was written."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()

    def configure(form, level="debug"):
        configure_logs(level, form)
        root.handlers[0].setStream(stream)
        return stream

    yield configure
    root.handlers[:], level = before
    root.setLevel(level)


@pytest.mark.parametrize("form", ["json", "text"])
def test_nothing_that_is_sent_makes_a_line_of_its_own(logged, client, form):
    stream = logged(form, "info")
    client.post("/v1/jobs", json={"problem": HOSTILE}, headers={"X-Request-ID": "sane-1"})
    client.get("/nothing/%0AERROR%20forged")
    lines = [line for line in stream.getvalue().splitlines() if "request" in line]
    assert len(lines) == 2 and not any(line.startswith("ERROR") for line in lines)
    assert stream.getvalue().isascii() or "\u2028" not in stream.getvalue()
    if form == "json":
        first, second = map(json.loads, lines)
        assert first["request_id"] == "sane-1" and first["status"] == 422
        assert first["route"] == "/v1/jobs" and first["level"] == "info" and first["timestamp"]
        assert second["path"] == "/nothing/\nERROR forged" and second["route"] is None


def test_an_error_has_its_traceback(logged):
    for form in ("json", "text"):
        stream = logged(form)
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger("x").exception("it failed")
        assert "ValueError: why" in stream.getvalue()


@pytest.mark.parametrize(
    ("sent", "is_taken"),
    [("abc-1.2_3", True), ("x" * 64, True), ("x" * 65, False), ("a b", False), ("", False),
     ("a\u00e9", False)],
)  # fmt: skip
def test_a_sane_name_of_a_request_is_kept_and_answered(client, sent, is_taken):
    answer = client.get("/healthz", headers={"X-Request-ID": sent.encode("latin-1")})
    named = answer.headers["X-Request-ID"]
    assert (named == sent) == is_taken
    assert is_taken or len(named) == 32


@pytest.mark.full
def test_the_name_of_a_request_reaches_the_workers_lines(url, sessions, capfd, monkeypatch):
    monkeypatch.setenv("TILEWISE_LOG_FORMAT", "json")
    monkeypatch.setenv("TILEWISE_LOG_LEVEL", "info")
    service = ServiceProcess(url, "tests.service.fakes:tune")
    posted = service.client.post(
        "/v1/jobs", json={"problem": PROBLEM, "trials": 2}, headers={"X-Request-ID": "from-ci-7"}
    )
    assert posted.headers["X-Request-ID"] == "from-ci-7"
    wait_until(lambda: service.client.get("/v1/jobs/1").json()["state"] == "done")
    service.stop()
    with reading(sessions) as session:
        assert session.get_one(models.Job, 1).request_id == "from-ci-7"
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line[:1] == "{"]
    of_worker = [line for line in lines if line.get("job") == 1]
    assert of_worker and all(line["request_id"] == "from-ci-7" for line in of_worker)
    assert all(line["epoch"] == 1 for line in of_worker)
