import asyncio
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.service.api.answers import assert_problem
from tests.service.conftest import KEY, PROBLEM
from tests.service.processes import wait_until
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.children import child_environment
from tilewise.service import app
from tilewise.service.api.services import READERS, Executors
from tilewise.service.api.single_flight import SingleFlight
from tilewise.service.errors import BusyError, ConflictError
from tilewise.service.results import kernels as kernel_modules
from tilewise.service.results import scripts


class Slow:
    """Work that waits to be released, and counts how often it runs."""

    def __init__(self, result="made"):
        self.release, self.calls, self._result = threading.Event(), Counter(), result

    def __call__(self, *what):
        self.calls[what] += 1
        assert self.release.wait(60)
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


@pytest.mark.parametrize(("result", "keeps", "calls"), [
    ("made", True, 1), ("made", False, 2), (ConflictError("cannot be made"), False, 1),
], ids=["kept", "outdated", "error"])  # fmt: skip
def test_results_are_made_again_where_they_may_be_outdated_and_errors_are_not(result, keeps, calls):
    work = Slow(result)
    work.release.set()

    async def scenario():
        flights = SingleFlight("proofs", threads=1, keeps_results=keeps)
        for _ in range(2):
            (found,) = await asyncio.gather(flights.make("key", work), return_exceptions=True)
            assert str(found) == str(result)

    asyncio.run(scenario())
    assert work.calls.total() == calls


def test_too_many_flights_are_refused_and_those_that_fly_are_joined_and_outlive_a_client():
    work = Slow()

    async def scenario():
        flights = SingleFlight("proofs", threads=1, keeps_results=True, most=2, most_bytes=100)
        flying = [asyncio.create_task(flights.make("a", work, 60))]
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match=r"the proofs .* use all reserved memory"):
            await flights.make("c", work, 60)
        flying.append(asyncio.create_task(flights.make("b", work, 40)))
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="2 proofs are being generated"):
            await flights.make("c", work)
        joined = asyncio.create_task(flights.make("a", work, 60))
        await asyncio.sleep(0)
        flying[0].cancel()
        work.release.set()
        assert await asyncio.gather(flying[1], joined) == ["made"] * 2
        assert work.calls.total() == 2
        assert await flights.make("c", work, 100) == "made", "those that landed do not count"

    asyncio.run(scenario())


def test_a_process_ends_whatever_is_being_made():
    program = """
import asyncio, threading
from tilewise.service.api.single_flight import SingleFlight

async def scenario():
    flights = SingleFlight("proofs", threads=1, keeps_results=False)
    begun, never = threading.Event(), threading.Event()
    asked = asyncio.create_task(flights.make("key", lambda: begun.set() or never.wait()))
    while not begun.is_set():
        await asyncio.sleep(0.01)
    await flights.close()
    asked.cancel()

asyncio.run(scenario())
"""
    subprocess.run([sys.executable, "-c", program], env=child_environment(), check=True, timeout=60)


KERNEL = f"/v1/schedules/{KEY}/kernel"
SQUARE = "matmul:m=8,n=8,k={},dtype=f32"
LIGHT = ("/healthz", "/readyz", "/v1/targets", "/v1/jobs", f"/v1/schedules?problem={PROBLEM}")


@pytest.fixture
def many():
    with ThreadPoolExecutor(64) as threads:
        yield lambda calls: [threads.submit(call) for call in calls]


def change(client, **parts):
    state = client.app.state
    state.services = replace(state.services, **parts)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """A cache folder that outlives the client, for what is still being made as a test ends."""
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def printer(monkeypatch):
    made = Slow()
    monkeypatch.setitem(kernel_modules.MAKERS, "module", made)
    return made


def test_kernels_that_are_printed_keep_nobody_waiting(client, submit, run, tuned, printer, many):
    problems = [SQUARE.format(k) for k in range(1, 9)]
    for problem in problems:
        assert run(submit(problem)).state == "done"
    paths = [f"/v1/schedules/{parse_problem(p).key}/kernel" for p in problems]
    asked = many([lambda path=path: client.get(path) for path in paths * 6])
    wait_until(lambda: len(printer.calls) == app.PRINTERS)
    for path in LIGHT:
        assert client.get(path).status_code == 200
    printer.release.set()
    assert {answer.result().status_code for answer in asked} == {200}
    assert len(printer.calls) == 8 and set(printer.calls.values()) == {1}


def test_a_printed_kernel_outlives_the_process(client_factory, tuned, printer, tmp_path):
    printer.release.set()
    text = client_factory().get(KERNEL).text
    assert client_factory().get(KERNEL).text == text
    assert printer.calls.total() == 1
    (file,) = (tmp_path / "cache" / "modules").iterdir()
    file.write_bytes(file.read_bytes() + b"damaged")
    assert client_factory().get(KERNEL).text == text
    assert printer.calls.total() == 2


def test_too_much_to_make_is_503_and_what_takes_long_is_202_and_found_later(client, tuned, printer):
    change(client, kernels=SingleFlight("kernels", 1, keeps_results=True, most=0))
    assert_busy(client.get(KERNEL), "are being generated")
    change(client, kernels=SingleFlight("kernels", 1, keeps_results=True, patience_s=0.05))
    path = f"{KERNEL}?target=host"
    answer = client.get(path)
    assert answer.status_code == 202
    assert answer.headers["Location"] == path == answer.json()["location"]
    assert int(answer.headers["Retry-After"]) >= 1
    assert "being generated" in answer.json()["detail"]
    printer.release.set()
    wait_until(lambda: client.get(answer.headers["Location"]).status_code == 200)
    assert printer.calls.total() == 1


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
    (asked,) = many([lambda: client.get(KERNEL)])
    wait_until(lambda: bool(printer.calls))
    app.stop_waiting(client.app)
    answer = asked.result(60)
    assert answer.status_code == 202 and answer.headers["Retry-After"]
    printer.release.set()


@pytest.fixture
def impatient(client_factory, monkeypatch):
    monkeypatch.setattr(app, "PATIENCE_S", 0.2)
    monkeypatch.setattr(app, "PROBE_PATIENCE_S", 0.2)
    client = client_factory(raises=False)
    change(client, executors=Executors(patience_s=0.5))
    return client


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
    wait_until(lambda: sum(answer.done() for answer in asked) == 4)
    for answer in asked:
        if answer.done():
            assert_busy(answer.result(), "all 16 reads were busy")
    assert impatient.get("/healthz").status_code == 200
    assert impatient.get("/readyz").status_code == 200
    assert impatient.post("/v1/jobs", json={"problem": SQUARE.format(1)}).status_code == 202
    release.set()
    assert Counter(answer.result().status_code for answer in asked) == {200: READERS, 503: 4}


def assert_busy(answer, message):
    assert_problem(answer, 503, message)
    assert int(answer.headers["Retry-After"]) >= 1
