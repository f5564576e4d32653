from contextlib import contextmanager

import pytest

from tests.service import fakes
from tilewise.service.db import models, reading, writing
from tilewise.service.errors import BusyError, DatabaseError, LeaseLostError, OutageError
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.runs import sql
from tilewise.service.runs.sql import PatientTrials, patiently

AWAY = OutageError("is away")


@pytest.fixture(autouse=True)
def in_no_time(monkeypatch):
    monkeypatch.setattr(sql, "FIRST_PAUSE_S", 0.0)


def failing(times, error):
    told = []

    def step(is_repeated):
        told.append(is_repeated)
        if len(told) <= times:
            raise error
        return "here"

    return step, told


@pytest.mark.parametrize("error", [AWAY, BusyError("locked")])
def test_what_passes_is_waited_for(error, caplog):
    step, told = failing(3, error)
    assert patiently(step, "job 3") == "here"
    assert told == [False, True, True, True]
    assert caplog.text.count(f"job 3: {error}; trying again for 90 s") == 1


@pytest.mark.parametrize("error", [DatabaseError("another schema"), LeaseLostError("taken over")])
def test_what_does_not_pass_is_raised_at_once(error):
    step, told = failing(1, error)
    with pytest.raises(type(error)):
        patiently(step, "job 3")
    assert told == [False]


def test_patience_ends(monkeypatch):
    step, told = failing(10**9, AWAY)
    moments = iter(range(1000))
    monkeypatch.setattr(sql.time, "monotonic", lambda: next(moments))
    monkeypatch.setattr(sql.time, "sleep", lambda _: None)
    with pytest.raises(OutageError):
        patiently(step, "job 3", patience_s=10)
    assert 2 <= len(told) <= 10


def test_a_trial_whose_answer_was_lost_is_kept_once(sessions, submit):
    adds = []

    class Losing(SqlTrialStore):
        def add(self, trial):
            adds.append(trial)
            super().add(trial)
            if len(adds) == 1:
                raise AWAY

    losing = Losing(sessions, submit())
    PatientTrials(losing, 1).add(fakes.trial(0))
    assert len(adds) == 2 and losing.trials() == [fakes.trial(0)]


def test_an_end_whose_answer_was_lost_is_one_end(sessions, submit, run, job, monkeypatch):
    """The first two transactions of the run that are committed say that the database is away."""
    lost = []

    @contextmanager
    def losing(sessions):
        with writing(sessions) as session:
            yield session
        if len(lost) < 2:
            lost.append(1)
            raise AWAY

    monkeypatch.setattr(sql, "writing", losing)
    job_id = submit()
    assert run(job_id).state == job(job_id).state == "done" and len(lost) == 2
    with reading(sessions) as session:
        assert session.query(models.Schedule).count() == 1
        assert session.query(models.Proof).count() >= 1
