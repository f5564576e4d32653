import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest.mock import Mock

import pytest
from sqlalchemy import select, text

from tests.service.conftest import TOOLCHAIN
from tests.service.plan_rows import GRAPH
from tilewise.service.api.executors import BoundedExecutor
from tilewise.service.api.routes import modules
from tilewise.service.db import make_engine, make_sessions, models, reading, writing
from tilewise.service.errors import BusyError, UndoneError
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import claims, queue


@pytest.fixture
def url(migrated_postgresql) -> str:
    return migrated_postgresql()


def test_requests_that_undo_each_other_are_repeated(sessions):
    with writing(sessions) as session:
        rows = [models.Toolchain(identity=name) for name in "ab"]
        session.add_all(rows)
        session.flush()
        first, second = (row.id for row in rows)
    begins, lane, tries = threading.Barrier(2), BoundedExecutor("writes", 2), []

    def change(*numbers):
        """Change two rows; the server undoes one of the first two tries."""
        tries.append(numbers)
        is_first = tries.count(numbers) == 1
        with writing(sessions) as session:
            session.execute(text("SET LOCAL deadlock_timeout = '20ms'"))
            for number in numbers:
                session.get_one(models.Toolchain, number).identity += "x"
                session.flush()
                if is_first and number == numbers[0]:
                    begins.wait()

    async def both():
        orders = (first, second), (second, first)
        await asyncio.gather(*(lane.run(partial(change, *order)) for order in orders))

    asyncio.run(both())
    assert len(tries) == 3
    with reading(sessions) as session:
        changed = session.scalars(select(models.Toolchain.identity)).all()
    assert not {"a", "b"} & set(changed), "both were done"


def test_what_is_undone_again_and_again_is_told():
    work = Mock(side_effect=UndoneError("deadlock detected"))
    with pytest.raises(UndoneError):
        asyncio.run(BoundedExecutor("writes", 1).run(work))
    assert work.call_count == 4


def test_who_claims_takes_what_nobody_looks_at_and_waits_for_nobody(url, sessions, machine, submit):
    numbers = [submit(f"matmul:m={m},n=1,k=1,dtype=f32") for m in (1, 2, 3)]
    impatient = make_sessions(make_engine(url, patience_s=0.5))
    with writing(sessions) as first, writing(impatient) as second:
        taken = [
            claims.claim(session, f"elsewhere:{n}:1", machine.targets, TOOLCHAIN).job_id
            for n, session in enumerate((first, second, first))
        ]
        assert taken == numbers
        assert claims.claim(second, me(), machine.targets, TOOLCHAIN) is None


def test_a_statement_that_takes_too_long_is_broken_off(url):
    engine = make_engine(url, statement_s=0.2)
    with pytest.raises(BusyError, match="statement timeout"), reading(make_sessions(engine)) as s:
        s.execute(text("SELECT pg_sleep(30)"))
    engine.dispose()


def test_who_falls_silent_in_a_transaction_does_not_keep_others_waiting(url, sessions, submit):
    """As a process does that is stopped while it holds a lock."""
    job_id, engine = submit(), make_engine(url, statement_s=0.3)
    with pytest.raises(BusyError, match="idle"), writing(make_sessions(engine)) as silent:
        queue.get(silent, job_id, lock=True)
        with writing(sessions) as session:
            session.execute(text("SET LOCAL lock_timeout = '10s'"))
            queue.cancel(session, job_id)
        silent.execute(text("SELECT 1"))
    engine.dispose()


def test_options_of_the_url_win(url):
    engine = make_engine(f"{url}&options=-c%20statement_timeout%3D1234ms", statement_s=60)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW statement_timeout").scalar() == "1234ms"
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "30s"
    engine.dispose()


def test_two_equal_requests_without_a_key_are_one_plan(client, sessions, monkeypatch):
    """Both have found no plan to join when they begin to queue its jobs."""
    monkeypatch.setattr(modules, "read_graph", lambda *_: GRAPH)
    begins, call, numbers = threading.Barrier(2, timeout=30), queue.create_or_join, []

    def meet(*given):
        numbers.append(1)
        if len(numbers) <= 2:
            begins.wait()
        return call(*given)

    def post(_number):
        headers = {"Content-Type": "text/x-mlir"}
        return client.post("/v1/plans?trials=2", content="module {}", headers=headers)

    monkeypatch.setattr(queue, "create_or_join", meet)
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(post, range(2)))
    assert [answer.status_code for answer in answers] == [202, 202]
    assert len({answer.json()["id"] for answer in answers}) == 1
    with reading(sessions) as session:
        assert session.query(models.Plan).count() == 1
