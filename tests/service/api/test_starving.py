import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from tests.service.api.test_http_errors import assert_problem
from tests.service.conftest import PROBLEM, TOOLCHAIN, settings_for
from tests.service.processes import wait_until
from tilewise.kernels.problem import parse_problem
from tilewise.service import app
from tilewise.service.api.services import READERS, Executors
from tilewise.service.api.single_flight import SingleFlight
from tilewise.service.app import create_app
from tilewise.service.results import kernels as kernel_modules
from tilewise.service.results import scripts

KEY = parse_problem(PROBLEM).key
SQUARE = "matmul:m=8,n=8,k={},dtype=f32"
LIGHT = ("/healthz", "/readyz", "/v1/targets", "/v1/jobs", f"/v1/schedules?problem={PROBLEM}")


@pytest.fixture
def many():
    with ThreadPoolExecutor(64) as threads:
        yield lambda calls: [threads.submit(call) for call in calls]


@pytest.fixture
def changed(client):
    def change(**parts):
        state = client.app.state
        state.services = replace(state.services, **parts)

    return change


class Printer:
    def __init__(self):
        self.release = threading.Event()
        self.printed = Counter()

    def __call__(self, source):
        self.printed[source] += 1
        assert self.release.wait(60)
        return f"# {source}"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """A cache folder that outlives the client: what is still being made as a test ends is
    written there, not among the modules that other tests fetch."""
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def printer(monkeypatch):
    made = Printer()
    monkeypatch.setitem(kernel_modules.MAKERS, "module", made)
    return made


def test_kernels_that_are_printed_keep_nobody_waiting(client, submit, run, tuned, printer, many):
    problems = [SQUARE.format(k) for k in range(1, 9)]
    for problem in problems:
        assert run(submit(problem)).state == "done"
    paths = [f"/v1/schedules/{parse_problem(p).key}/kernel" for p in problems]
    asked = many([lambda path=path: client.get(path) for path in paths * 6])
    wait_until(lambda: len(printer.printed) == app.PRINTERS)
    for path in LIGHT:
        assert client.get(path).status_code == 200
    printer.release.set()
    assert {answer.result().status_code for answer in asked} == {200}
    assert len(printer.printed) == 8 and set(printer.printed.values()) == {1}


def test_a_printed_kernel_outlives_the_process(client_factory, tuned, printer, tmp_path):
    printer.release.set()
    path = f"/v1/schedules/{KEY}/kernel"
    text = client_factory().get(path).text
    assert client_factory().get(path).text == text
    assert sum(printer.printed.values()) == 1
    (file,) = (tmp_path / "cache" / "modules").iterdir()
    file.write_bytes(file.read_bytes() + b"damaged")
    assert client_factory().get(path).text == text
    assert sum(printer.printed.values()) == 2


def test_what_takes_long_is_answered_202_and_found_later(client, tuned, printer, changed):
    changed(kernels=SingleFlight("kernels", 1, keeps_results=True, patience_s=0.05))
    path = f"/v1/schedules/{KEY}/kernel?target=host"
    answer = client.get(path)
    assert answer.status_code == 202
    assert answer.headers["Location"] == path == answer.json()["location"]
    assert int(answer.headers["Retry-After"]) >= 1
    assert "being generated" in answer.json()["detail"]
    printer.release.set()
    wait_until(lambda: client.get(answer.headers["Location"]).status_code == 200)
    assert sum(printer.printed.values()) == 1


def test_air_scripts_are_proven_once_while_others_are_served(client, tuned, monkeypatch, many):
    release, proven = threading.Event(), []
    real = scripts.attempt

    def attempt(problem, **options):
        proven.append(problem)
        assert release.wait(60)
        return real(problem, **options)

    monkeypatch.setattr(scripts, "attempt", attempt)
    path = f"/v1/schedules/{KEY}/script?flavor=air"
    asked = many([lambda: client.get(path)] * 48)
    wait_until(lambda: bool(proven))
    for light in (*LIGHT, f"/v1/schedules/{KEY}/script"):
        assert client.get(light).status_code == 200
    release.set()
    answers = [answer.result() for answer in asked]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    assert len(proven) == 1


def test_a_service_that_ends_lets_go_who_waits_for_a_text(client, tuned, printer, many):
    (asked,) = many([lambda: client.get(f"/v1/schedules/{KEY}/kernel")])
    wait_until(lambda: bool(printer.printed))
    app.stop_waiting(client.app)
    answer = asked.result(60)
    assert answer.status_code == 202 and answer.headers["Retry-After"]
    printer.release.set()


def test_too_much_to_make_is_503_with_a_time_to_come_again(client, tuned, printer, changed):
    changed(kernels=SingleFlight("kernels", 1, keeps_results=True, most=0))
    assert_busy(client.get(f"/v1/schedules/{KEY}/kernel"), "are being generated")


@pytest.fixture
def impatient(url, machine, monkeypatch):
    monkeypatch.setattr(app, "PATIENCE_S", 0.2)
    monkeypatch.setattr(app, "PROBE_PATIENCE_S", 0.2)
    made = create_app(settings_for(url), 0, machine=machine, toolchain=TOOLCHAIN)
    with TestClient(made, raise_server_exceptions=False) as client:
        made.state.services = replace(made.state.services, executors=Executors(patience_s=0.5))
        yield client


def test_a_full_pool_of_connections_is_503_and_health_has_its_own(impatient, tuned):
    services = impatient.app.state.services
    with ExitStack() as stack:
        while services.engine.pool.checkedin() or services.engine.pool.overflow() < 0:
            stack.enter_context(services.engine.connect())
        assert_busy(impatient.get("/v1/jobs"), "every connection is in use; try again")
        assert impatient.get("/healthz").status_code == 200
        assert impatient.get("/readyz").status_code == 200
    assert impatient.get("/v1/jobs").status_code == 200


def test_readers_that_hang_keep_neither_writers_nor_health_waiting(
    impatient, monkeypatch, tuned, many
):
    release = threading.Event()
    monkeypatch.setattr(
        "tilewise.service.jobs.queue.list_jobs", lambda *_args, **_rest: release.wait(60) and []
    )
    asked = many([lambda: impatient.get("/v1/jobs")] * (READERS + 4))
    refused = []

    def are_refused():
        refused[:] = [answer.result() for answer in asked if answer.done()]
        return len(refused) == 4

    wait_until(are_refused)
    for answer in refused:
        assert_busy(answer, "all 16 reads were busy")
    assert impatient.get("/healthz").status_code == 200
    assert impatient.get("/readyz").status_code == 200
    assert impatient.post("/v1/jobs", json={"problem": SQUARE.format(1)}).status_code == 202
    release.set()
    assert Counter(answer.result().status_code for answer in asked) == {200: READERS, 503: 4}


def assert_busy(answer, message):
    assert message in assert_problem(answer, 503)["detail"]
    assert int(answer.headers["Retry-After"]) >= 1
