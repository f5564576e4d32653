import asyncio
import json
import random
import threading
import time
from contextlib import aclosing
from math import inf

import pytest

from tests.service import fakes
from tilewise.service.api.events import feeds as module
from tilewise.service.api.events import news
from tilewise.service.api.events.feeds import Feeds
from tilewise.service.api.events.news import NewsReader
from tilewise.service.api.executors import BoundedExecutor
from tilewise.service.db import models, writing
from tilewise.service.db.changes import Changes
from tilewise.service.errors import BusyError
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease
from tilewise.service.jobs.trial_store import SqlTrialStore

TRIALS = 60


async def follow(feeds, job_id, after=-1):
    """Yields the events of one client's stream, each with its number."""
    async with aclosing(feeds.follow(("job", job_id), after)) as source:
        async for raw in source:
            parsed = parse(raw)
            if "event" in parsed:
                after = int(parsed.get("id", after))
                yield after, parsed["event"], json.loads(parsed["data"])


def parse(raw):
    lines = raw.decode().rstrip("\n").split("\n")
    return dict(line.split(": ", 1) for line in lines if not line.startswith(":"))


@pytest.fixture
def feeds_of(url, sessions):
    """Feeds on the test's database; each is made on the loop that uses it."""
    opened = []

    def make(**options):
        changes = Changes(url)
        opened.append(changes)
        reader = NewsReader(BoundedExecutor("reads", 4), sessions)
        return Feeds(reader, changes.number, **{"poll_s": 0.005, **options})

    yield make
    for changes in opened:
        changes.close()


@pytest.fixture
def started(sessions, submit):
    job_id = submit(trials=TRIALS)
    with writing(sessions) as session:
        return job_id, lease.claim_one(session, job_id, me())


def write_trials(sessions, held):
    store = SqlTrialStore(sessions, held.job_id, held)
    for number in range(TRIALS):
        store.add(fakes.trial(number))
        time.sleep(0.002)
    with writing(sessions) as session:
        lease.end(session, held, state="done", complete=True)


async def watch(feeds, job_id, tears=0, rng=random):
    """The events that a client sees over streams that are torn away at random moments."""
    seen, after = [], -1
    for _ in range(tears):
        most = rng.randrange(0, 20)
        async with aclosing(follow(feeds, job_id, after)) as stream:
            async for number, name, data in stream:
                after = number
                seen.append((name, data))
                if name == "end" or len(seen) % 20 >= most:
                    break
        await asyncio.sleep(rng.random() * 0.05)
    return seen + [(name, data) async for _, name, data in follow(feeds, job_id, after)]


@pytest.mark.parametrize("kept", [4, 1024])
def test_each_client_sees_every_trial_once_in_order(feeds_of, sessions, started, monkeypatch, kept):
    monkeypatch.setattr(module, "MOST_KEPT", kept)
    monkeypatch.setattr(news, "PAGE", 7)
    job_id, held = started

    async def steps():
        feeds, rng = feeds_of(), random.Random(kept)
        writer = threading.Thread(target=write_trials, args=(sessions, held))
        writer.start()
        clients = [watch(feeds, job_id, 5, random.Random(rng.random())) for _ in range(20)]
        found = await asyncio.wait_for(asyncio.gather(*clients), 120)
        writer.join()
        assert feeds.streams == 0
        return found

    for seen in asyncio.run(steps()):
        numbers = [data["number"] for name, data in seen if name == "trial"]
        assert numbers == list(range(TRIALS))
        assert seen[-1][0] == "end" and seen[-1][1]["state"] == "done"


def test_phases_are_told_as_they_change(feeds_of, sessions, started):
    job_id, held = started

    def phase(name, done, total):
        with writing(sessions) as session:
            job = session.get_one(models.Job, job_id)
            job.phase, job.phase_done, job.phase_total = name, done, total

    async def steps():
        feeds, seen = feeds_of(), []
        phase("proof", 0, 2)
        async for _, name, data in follow(feeds, job_id):
            seen.append((name, data.get("name"), data.get("done")))
            if len(seen) == 1:
                phase("proof", 1, 2)
            elif len(seen) == 2:
                phase("finals", 0, 0)
            elif len(seen) == 3:
                with writing(sessions) as session:
                    lease.end(session, held, state="failed", error="x", complete=False)
        return seen

    seen = asyncio.run(asyncio.wait_for(steps(), 60))
    assert seen[:3] == [("phase", "proof", 0), ("phase", "proof", 1), ("phase", "finals", 0)]
    assert [name for name, *_ in seen[3:]] == ["end"]


def test_a_stream_shows_that_it_lives_and_ends_in_time(feeds_of, started):
    async def steps():
        feeds = feeds_of(heartbeat_s=0.02, longest_s=0.5)
        return [raw async for raw in feeds.follow(("job", started[0]), -1)]

    seen = asyncio.run(steps())
    assert seen[0] == news.RETRY
    assert seen.count(news.HEARTBEAT) >= 2
    assert not any(b"event: end" in raw for raw in seen), "the client opens another"


@pytest.mark.parametrize("damage", [{"elapsed_s": inf}, {"phase": "proof", "phase_done": None}])
def test_a_damaged_row_ends_its_own_streams_alone(feeds_of, sessions, started, submit, damage):
    other = submit("matmul:m=8,n=8,k=8,dtype=f32")

    async def steps():
        feeds = feeds_of(longest_s=1.0)
        damaged = asyncio.create_task(watch(feeds, started[0]))
        sound = asyncio.create_task(watch(feeds, other))
        await asyncio.sleep(0.1)
        with sessions.begin() as session:
            session.query(models.Job).filter_by(id=started[0]).update(damage)
        await asyncio.wait_for(damaged, 0.9)
        assert not sound.done()
        await sound

    asyncio.run(steps())


def test_there_is_a_most_of_streams(feeds_of, started):
    async def steps():
        feeds = feeds_of(most_streams=1)
        feeds.require_room()
        stream = feeds.follow(("job", started[0]), -1)
        await anext(stream)
        reading_on = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.05)
        with pytest.raises(BusyError, match="1 event streams"):
            feeds.require_room()
        feeds.close()
        with pytest.raises(StopAsyncIteration):
            await reading_on

    asyncio.run(steps())


def test_damaged_trials_are_passed_over(feeds_of, sessions, tuned):
    with sessions.begin() as session:
        session.connection().exec_driver_sql("UPDATE trials SET gflops = 'x' WHERE number = 1")

    async def steps():
        return await asyncio.wait_for(watch(feeds_of(), tuned), 60)

    seen = asyncio.run(steps())
    assert [data["number"] for name, data in seen if name == "trial"] == [0, 2, 3]
    assert seen[-1][0] == "end"
