import json
import signal
import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.service.processes import ServiceProcess, wait_until


@pytest.fixture
def service(url: str) -> Iterator[ServiceProcess]:
    process = ServiceProcess(url, "tests.service.fakes:slow_tune")
    yield process


@pytest.mark.full
def test_open_pages_do_not_keep_a_service_from_ending(service: ServiceProcess) -> None:
    came: list[str] = []

    def look() -> None:
        try:
            with httpx.stream("GET", f"http://127.0.0.1:{service.port}/live", timeout=30) as answer:
                came.extend(line for line in answer.iter_lines() if line.startswith("data:"))
        except httpx.TransportError:
            pass

    pages = [threading.Thread(target=look) for _ in range(3)]
    for page in pages:
        page.start()
    wait_until(lambda: len(came) >= len(pages))
    assert service.stop() == -signal.SIGTERM  # as uvicorn ends, and within its time
    for page in pages:
        page.join(30)
        assert not page.is_alive()
    told = [json.loads(line.removeprefix("data:")) for line in came]
    assert told and all({"jobs", "machines"} == one.keys() for one in told)
