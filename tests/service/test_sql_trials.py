"""The SQL trial store: what goes in comes out, once, and only from the job's owner."""

import pytest

from kernels.problem import parse_problem
from search.records import Solved
from search.store import MemoryStore, TrialStore
from service import jobs, lease
from service.db import models, reading, writing
from service.db.trials import SqlTrialStore
from service.errors import LeaseLostError
from service.owner import me
from service.tuning import run_job
from tests.service import fakes


@pytest.fixture(params=["memory", "sql"])
def store(request, sessions, submit) -> TrialStore:
    return MemoryStore() if request.param == "memory" else SqlTrialStore(sessions, submit())


def test_trials_come_back_equal_and_in_order(store):
    store.add(fakes.failed_trial(2))
    store.add(fakes.trial(0))
    store.add(fakes.replace(fakes.trial(1), state="pruned"))
    assert store.trials() == [
        fakes.trial(0),
        fakes.replace(fakes.trial(1), state="pruned"),
        fakes.failed_trial(2),
    ]


def test_a_number_is_taken_once(store):
    store.add(fakes.trial(0))
    with pytest.raises(ValueError, match="trial 0 is stored already"):
        store.add(fakes.failed_trial(0))
    assert store.trials() == [fakes.trial(0)]


def test_a_trial_is_committed_before_add_returns(sessions, submit):
    job_id = submit()
    SqlTrialStore(sessions, job_id).add(fakes.trial(0))
    assert SqlTrialStore(sessions, job_id).trials() == [fakes.trial(0)]


def test_jobs_do_not_see_each_others_trials(sessions, submit):
    first, second = (
        SqlTrialStore(sessions, submit(p))
        for p in ("matmul:m=1,n=1,k=1,dtype=f32", "matmul:m=2,n=1,k=1,dtype=f32")
    )
    first.add(fakes.trial(0))
    assert second.trials() == []


def test_a_store_knows_the_winners_of_an_operation(sessions, submit):
    job_id = submit("matmul:m=64,n=48,k=32,dtype=f32")
    with writing(sessions) as session:
        lease.claim_one(session, job_id, me())
    outcome = run_job(sessions, job_id, me(), tuner=fakes.tune, prover=fakes.prove)
    assert outcome.state == "done"
    other = SqlTrialStore(sessions, submit("matmul:m=8,n=8,k=8,dtype=f32"))
    (known,) = other.solved("matmul")
    with reading(sessions) as session:
        target = jobs.get(session, job_id).target
        best = max(SqlTrialStore(sessions, job_id).trials(), key=lambda t: t.measurement.gflops)
    problem = parse_problem("matmul:m=64,n=48,k=32,dtype=f32")
    assert known == Solved(problem, target, best.params)
    assert other.solved("conv2d") == []
    in_memory = MemoryStore([known])
    assert (in_memory.solved("matmul"), in_memory.solved("conv2d")) == ([known], [])


def test_who_lost_the_job_cannot_write_into_it(sessions, submit):
    job_id = submit()
    with writing(sessions) as session:
        lease.claim_one(session, job_id, me())
    former = SqlTrialStore(sessions, job_id, "another-host:1:1")
    with pytest.raises(LeaseLostError, match="taken over"):
        former.add(fakes.trial(0))
    assert former.trials() == []


def test_a_trial_extends_the_lease_and_counts_after_a_cancellation(sessions, submit):
    job_id = submit()
    with writing(sessions) as session:
        lease.claim_one(session, job_id, me())
        before = jobs.get(session, job_id).heartbeat_at
    with writing(sessions) as session:
        jobs.cancel(session, job_id)
    SqlTrialStore(sessions, job_id, me()).add(fakes.trial(0))
    with reading(sessions) as session:
        assert jobs.get(session, job_id).heartbeat_at > before
        assert session.query(models.Trial).count() == 1
