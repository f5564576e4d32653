import asyncio

import pytest

from tilewise.service.db import reading
from tilewise.service.errors import BusyError, DatabaseError
from tilewise.service.jobs.waiting import Completions, ended_jobs


async def stays():
    return False


async def goes():
    return True


class Jobs:
    """What the database would say, and what it was asked."""

    def __init__(self):
        self.ended: set[int] = set()
        self.asked: list[set[int]] = []
        self.errors: list[Exception] = []

    async def __call__(self, job_ids):
        self.asked.append(set(job_ids))
        if self.errors:
            raise self.errors.pop(0)
        return self.ended & set(job_ids)


def scenario(steps):
    jobs = Jobs()
    asyncio.run(asyncio.wait_for(steps(jobs, Completions(jobs, poll_s=0.01)), 60))
    return jobs


def test_many_waiters_are_one_question():
    async def steps(jobs, endings):
        waiters = [asyncio.create_task(endings.wait(n % 4, stays)) for n in range(40)]
        while len(jobs.asked) < 3:
            await asyncio.sleep(0.01)
        assert set(map(frozenset, jobs.asked)) == {frozenset(range(4))}
        jobs.ended = {0, 1, 2, 3}
        assert await asyncio.gather(*waiters) == [True] * 40

    scenario(steps)


def test_each_waits_for_its_own_job_and_nobody_is_asked_for_longer():
    async def steps(jobs, endings):
        first, second = (asyncio.create_task(endings.wait(n, stays)) for n in (1, 2))
        jobs.ended = {1}
        assert await first is True
        assert not second.done()
        jobs.ended = {1, 2}
        assert await second is True
        await asyncio.sleep(0.05)
        asked = len(jobs.asked)
        await asyncio.sleep(0.05)
        assert len(jobs.asked) == asked
        assert await endings.wait(2, stays) is True, "a later one is answered, too"

    scenario(steps)


def test_a_client_that_has_gone_and_a_service_that_stops_wait_no_longer():
    async def steps(_jobs, endings):
        assert await endings.wait(1, goes) is False
        waiter = asyncio.create_task(endings.wait(1, stays))
        await asyncio.sleep(0.02)
        assert not waiter.done()
        endings.close()
        assert await waiter is False

    scenario(steps)


def test_a_lock_passes_and_another_failure_is_told():
    async def steps(jobs, endings):
        jobs.errors = [BusyError("locked"), BusyError("locked")]
        jobs.ended = {1}
        assert await endings.wait(1, stays) is True
        jobs.errors = [DatabaseError("has another schema")]
        with pytest.raises(DatabaseError, match="another schema"):
            await endings.wait(2, stays)

    scenario(steps)


def test_a_job_that_is_not_there_has_ended(sessions, submit, tuned):
    going_on = submit("matmul:m=8,n=8,k=8,dtype=f32")
    with reading(sessions) as session:
        assert ended_jobs(session, [tuned, going_on, 999]) == {tuned, 999}
