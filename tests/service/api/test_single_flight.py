import asyncio
import subprocess
import sys
import threading

import pytest

from tilewise.kernels.system.children import child_environment
from tilewise.service.api.single_flight import SingleFlight
from tilewise.service.errors import BusyError, ConflictError


class Slow:
    """Work that waits to be released, and counts how often it runs."""

    def __init__(self, result="made"):
        self.release = threading.Event()
        self.calls = 0
        self._result = result

    def __call__(self):
        self.calls += 1
        assert self.release.wait(60)
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


def test_an_error_is_everybodys_and_is_kept_for_who_comes_again():
    work = Slow(ConflictError("cannot be made"))
    work.release.set()

    async def scenario():
        flights = SingleFlight("kernels", threads=1, keeps_results=True)
        for _ in range(3):
            with pytest.raises(ConflictError, match="cannot be made"):
                await flights.make("key", work)

    asyncio.run(scenario())
    assert work.calls == 1


def test_flights_hold_no_more_memory_than_is_set_aside():
    work = Slow()

    async def scenario():
        flights = SingleFlight("modules", 1, keeps_results=False, most_bytes=100)
        first = asyncio.create_task(flights.make(1, work, 60))
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match=r"the modules .* use all reserved memory"):
            await flights.make(2, work, 60)
        joined = asyncio.create_task(flights.make(1, work, 60))
        second = asyncio.create_task(flights.make(3, work, 40))
        await asyncio.sleep(0)
        work.release.set()
        assert await asyncio.gather(first, joined, second) == ["made"] * 3
        assert await flights.make(2, work, 100) == "made", "what landed gives back its bytes"

    asyncio.run(scenario())


def test_too_many_flights_are_refused_and_those_that_fly_are_joined():
    work = Slow()

    async def scenario():
        flights = SingleFlight("proofs", threads=1, keeps_results=True, most=2)
        flying = [asyncio.create_task(flights.make(key, work)) for key in ("a", "b")]
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="2 proofs are being generated"):
            await flights.make("c", work)
        joined = asyncio.create_task(flights.make("a", work))
        work.release.set()
        assert await asyncio.gather(*flying, joined) == ["made"] * 3
        assert await flights.make("c", work) == "made", "those that landed do not count"

    asyncio.run(scenario())


def test_a_client_that_goes_ends_no_flight():
    work = Slow()

    async def scenario():
        flights = SingleFlight("proofs", threads=1, keeps_results=True)
        gone = asyncio.create_task(flights.make("key", work))
        stays = asyncio.create_task(flights.make("key", work))
        await asyncio.sleep(0)
        gone.cancel()
        work.release.set()
        assert await stays == "made"

    asyncio.run(scenario())
    assert work.calls == 1


def test_what_may_be_outdated_is_made_again():
    work = Slow()
    work.release.set()

    async def scenario():
        flights = SingleFlight("proofs", threads=1, keeps_results=False)
        for _ in range(2):
            assert await flights.make("key", work) == "made"

    asyncio.run(scenario())
    assert work.calls == 2


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
