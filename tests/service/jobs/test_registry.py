from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import timedelta
from unittest.mock import Mock

import pytest

from tests.service.conftest import TOOLCHAIN
from tests.service.processes import wait_until
from tilewise.service.db import models, reading, writing
from tilewise.service.db.base import now
from tilewise.service.host.process_identity import Owner, me
from tilewise.service.jobs import registry
from tilewise.service.jobs.registry import MachineSpeed, WorkerEntry
from tilewise.service.workers import presence as module
from tilewise.service.workers.pool import Pool, PoolWork
from tilewise.service.workers.presence import Presence


def entry_of(machine, owner=None, host=None):
    here = machine if host is None else replace(machine, host=host, cpu="znver2")
    return WorkerEntry(owner or me(), here, here.targets, TOOLCHAIN, 2)


def live(sessions):
    with reading(sessions) as session:
        return [(row.machine.host, row.targets) for row in registry.live(session)]


def test_a_pool_is_entered_while_it_runs(sessions, url, machine):
    work = PoolWork(machine.targets, TOOLCHAIN, 1, machine=machine)
    pool = Pool(sessions, url, work, poll_s=0.02)
    pool.start()
    wait_until(lambda: live(sessions) == [(machine.host, list(machine.targets))])
    pool.stop()
    assert live(sessions) == []


def test_two_drivers_may_enter_a_worker_at_once(sessions, machine):
    def enter():
        with writing(sessions) as session:
            registry.show(session, entry_of(machine))

    with ThreadPoolExecutor(1) as other:
        with writing(sessions) as session:
            registry.show(session, entry_of(machine))
            session.flush()
            second = other.submit(enter)
            assert not wait([second], 0.3).done, "it waits for the first"
        second.result()
    assert len(live(sessions)) == 1


def test_who_is_silent_or_a_dead_process_of_this_host_is_not_live(sessions, machine):
    def show(entry, late_s=0):
        with writing(sessions) as session:
            registry.show(session, entry)
            session.query(models.Worker).update({"seen_at": now() - timedelta(seconds=late_s)})
        return len(live(sessions))

    dead = entry_of(machine, str(replace(Owner.here(), started=1)))
    other = entry_of(machine, "elsewhere:1:1", host="elsewhere")
    assert [show(dead), show(other, 61), show(other)] == [0, 0, 1]


def test_targets_are_those_of_all_services_on_the_database(client, sessions, machine):
    other = entry_of(machine, "elsewhere:1:1", host="elsewhere")
    with writing(sessions) as session:
        registry.show(session, entry_of(machine))
        registry.show(session, other)
        registry.note_measured(session, other.machine, MachineSpeed({"f32": 100.0}, 20.0))
    found = client.get("/v1/targets").json()
    assert found["targets"] == sorted([*machine.targets, *other.targets])
    there, here = sorted(found["workers"], key=lambda one: one["host"] != "elsewhere")
    assert there["cpu"] == "znver2" and there["peaks"] == {"f32": 100.0} and there["peaks_at"]
    assert here["host"] == machine.host and here["features"] == list(machine.features)
    assert (here["capacity"], here["toolchain"], here["peaks"]) == (2, TOOLCHAIN, {})


@pytest.fixture
def made(monkeypatch):
    """The measurements that were begun; each goes on until a test sets its result."""
    found = []

    def begin():
        found.append(Mock(**{"result.return_value": None}))
        return found[-1]

    monkeypatch.setattr(module, "PeakMeasurement", begin)
    return found


@pytest.fixture
def present(sessions, machine):
    return Presence(sessions, entry_of(machine), measures_peaks=True)


def measured(sessions):
    with reading(sessions) as session:
        row = session.query(models.Machine).one()
        return row.peaks, row.bandwidth_gbs


def test_the_machine_is_measured_now_and_then_while_it_is_idle(present, made, sessions, machine):
    present.tick(is_idle=False)
    assert not made
    present.tick(is_idle=True)
    present.tick(is_idle=False)
    assert made[0].stop.called, "a job has come"
    present.tick(is_idle=True)
    present.tick(is_idle=True)
    assert len(made) == 2 and measured(sessions) == (None, None)
    made[1].result.return_value = MachineSpeed({"f32": 250.0}, 20.5)
    for _ in range(3):
        present.tick(is_idle=True)
    assert measured(sessions) == ({"f32": 250.0}, 20.5) and len(made) == 2
    for days, many in ((6, 2), (8, 3)):
        with writing(sessions) as session:
            session.query(models.Machine).one().peaks_at = now() - timedelta(days=days)
        Presence(sessions, entry_of(machine), measures_peaks=True).tick(is_idle=True)
        assert len(made) == many
