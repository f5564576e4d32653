import asyncio
import json
import signal
import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.service.processes import ServiceProcess, wait_until
from tilewise.service.dashboard.live import Overviews
from tilewise.service.errors import BusyError


class Store:
    def __init__(self) -> None:
        self.state, self.looks = 1, 0

    async def read(self) -> bytes:
        self.looks += 1
        return b"state %d" % self.state


async def events(overviews: Overviews, most: int) -> list[bytes]:
    found = []
    async for event in overviews.follow():
        if event.startswith(b"state"):
            found.append(event)
        if len(found) == most:
            break
    return found


def test_many_pages_cost_one_look_for_each_change() -> None:
    async def run() -> tuple[int, list[list[bytes]]]:
        store = Store()
        overviews = Overviews(store.read, lambda: store.state, poll_s=0.01)

        async def change() -> None:
            await asyncio.sleep(0.2)
            store.state = 2

        pages = [events(overviews, 2) for _ in range(50)]
        *found, _ = await asyncio.gather(*pages, change())
        return store.looks, found

    looks, found = asyncio.run(run())
    assert looks == 2
    assert found == [[b"state 1", b"state 2"]] * 50


def test_a_database_that_cannot_tell_its_state_is_looked_at_and_only_news_is_told() -> None:
    async def run() -> tuple[int, int]:
        store = Store()
        overviews = Overviews(store.read, lambda: None, poll_s=0.01, longest_s=0.5)
        return len(await events(overviews, 9)), store.looks

    told, looks = asyncio.run(run())
    assert told == 1 and looks > 3


def test_a_stream_ends_with_the_service_and_no_other_is_opened() -> None:
    async def run() -> list[bytes]:
        store = Store()
        overviews = Overviews(store.read, lambda: store.state, poll_s=0.01)
        asyncio.get_running_loop().call_later(0.1, overviews.close)
        found = await asyncio.wait_for(events(overviews, 9), 5)
        with pytest.raises(BusyError):
            overviews.require_room()
        return found

    assert asyncio.run(run()) == [b"state 1"]


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
