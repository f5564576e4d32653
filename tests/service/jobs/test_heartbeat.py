import logging
from datetime import timedelta

import pytest

from tests.service.processes import wait_until
from tilewise.service.db import make_engine, reading, writing
from tilewise.service.db.session import make_sessions
from tilewise.service.errors import LeaseLostError
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease, queue
from tilewise.service.jobs.heartbeat import Heartbeat


@pytest.fixture
def held(sessions, submit):
    job_id = submit()
    with writing(sessions) as session:
        taken = lease.claim_one(session, job_id, me())
        queue.get(session, job_id).heartbeat_at -= timedelta(hours=1)
    return taken


def heartbeat_at(sessions, held):
    with reading(sessions) as session:
        return queue.get(session, held.job_id).heartbeat_at


@pytest.mark.sqlite_only("a transaction that writes holds the whole database")
def test_a_busy_database_costs_one_beat(url, sessions, held, caplog):
    impatient = make_sessions(make_engine(url, patience_s=0.05))
    before = heartbeat_at(sessions, held)
    with Heartbeat(impatient, held, period_s=0.02):
        with writing(sessions), caplog.at_level(logging.WARNING, "tilewise.service.jobs.heartbeat"):
            wait_until(lambda: len(caplog.records) >= 2)
        wait_until(lambda: heartbeat_at(sessions, held) > before)
    assert "lease not extended" in caplog.text and "locked" in caplog.text


def test_it_ends_with_the_lease(sessions, held, monkeypatch):
    tries = []

    def lost(_session, held):
        tries.append(held)
        raise LeaseLostError("taken over")

    monkeypatch.setattr(lease, "beat", lost)
    with Heartbeat(sessions, held, period_s=0.01) as beating:
        wait_until(lambda: not beating._thread.is_alive())
    assert tries == [held]
