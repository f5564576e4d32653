import pytest
from sqlalchemy import update

from tests.service import fakes
from tilewise.kernels.problem import parse_problem
from tilewise.search.records import MOST_EARLY, MOST_SOLVED, Solved
from tilewise.search.store import MemoryStore, TrialStore
from tilewise.service.db import models, reading, writing
from tilewise.service.errors import LeaseLostError
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease, queue
from tilewise.service.jobs.trial_store import PACES_FOR, SqlTrialStore


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


def test_a_page_skips_what_is_no_trial_and_goes_on_behind_it(sessions, submit):
    store = SqlTrialStore(sessions, submit(trials=10))
    for number in (0, 2, 3, 7):
        store.add(fakes.trial(number))
    with writing(sessions) as session:
        session.execute(update(models.Trial).where(models.Trial.number == 2).values(time_us=-1.0))
    assert store.page(0, 2) == ([fakes.trial(0)], 3)
    assert store.page(3, 2) == ([fakes.trial(3), fakes.trial(7)], None)
    assert store.page(8, 2) == ([], None)
    store.ensure(fakes.trial(2))
    assert [trial.number for trial in store.trials()] == [0, 2, 3, 7]


def test_a_store_knows_the_paces_of_other_searches_of_late(sessions, submit):
    first, second, own = (
        SqlTrialStore(sessions, submit(f"matmul:m={m},n=1,k=1,dtype=f32")) for m in (1, 2, 3)
    )
    for number, pace in enumerate((1.0, 1.5, 1.25)):
        first.add(fakes.replace(fakes.trial(number), pace=pace))
    first.add(fakes.failed_trial(3))
    second.add(fakes.replace(fakes.trial(0), pace=2.0))
    second.add(fakes.replace(fakes.trial(1), pace=9.0, state="pruned"))
    second.add(fakes.replace(fakes.trial(2), pace=None))
    own.add(fakes.trial(0))
    assert own.earlier_paces() == [[2.0], [1.0, 1.5, 1.25]]
    with writing(sessions) as session:
        for row in session.query(models.Trial).filter_by(pace=1.5):
            row.created_at -= PACES_FOR
        session.get_one(models.Job, 2).target = "cpu:another,threads=1"
    assert own.earlier_paces() == [[1.0, 1.25]]
    assert MemoryStore(paces=[[1.0, 2.0]]).earlier_paces() == [[1.0, 2.0]]


def test_a_store_knows_the_fastest_trials_of_other_searches(sessions, submit, machine):
    text = "matmul:m=64,n=48,k=32,dtype=f32"
    earlier = SqlTrialStore(sessions, submit(text))
    speeds = [10.0 + (7 * number) % 41 for number in range(MOST_SOLVED + 8)]
    for number, gflops in enumerate(speeds):
        earlier.add(fakes.trial(number, gflops=gflops))
    earlier.add(fakes.replace(fakes.trial(97, gflops=999.0), state="pruned"))
    earlier.add(fakes.failed_trial(98))
    late = MOST_EARLY + 5
    earlier.add(fakes.trial(late, gflops=1.0))
    earlier.add(fakes.replace(fakes.trial(late + 1, gflops=500.0), state="pruned"))
    convolution = SqlTrialStore(
        sessions, submit("conv2d:n=1,h=8,w=8,ci=8,co=8,kh=1,kw=1,dtype=f32")
    )
    convolution.add(fakes.trial(0))
    newest = SqlTrialStore(sessions, submit("matmul:m=8,n=8,k=8,dtype=f32"))
    newest.add(fakes.trial(0))
    newest.add(fakes.replace(fakes.trial(late, gflops=500.0), state="pruned"))
    asking = SqlTrialStore(sessions, submit("matmul:m=16,n=8,k=8,dtype=f32"))
    asking.add(fakes.trial(0))

    known = [
        Solved.of(parse_problem(problem), machine.target, store.trials())
        for problem, store in (("matmul:m=8,n=8,k=8,dtype=f32", newest), (text, earlier))
    ]
    assert known[0].slower == (), "its second trial was late and stopped"
    earlier = asking.earlier("matmul")
    assert [search.trials for search in earlier] == [2, len(speeds) + 3]
    assert asking.solved(earlier) == known, "the newest first, and nothing of its own"
    assert asking.solved(earlier[::-1]) == known[::-1]
    times = [time_us for _, time_us in known[1].points]
    assert times == sorted(fakes.measurement(gflops).time_us for gflops in speeds)[:MOST_SOLVED]
    assert len(known[1].slower) == len(speeds) + 1 - MOST_SOLVED
    in_memory = MemoryStore(known)
    assert in_memory.solved(in_memory.earlier("matmul")) == known
    assert in_memory.earlier("conv2d") == []


def test_times_with_cold_caches_are_told_to_cold_searches_alone(sessions, submit):
    text = "matmul:m=64,n=48,k=32,dtype=f32"
    SqlTrialStore(sessions, submit(text, cache="cold")).add(fakes.trial(0))
    hot, cold = (
        SqlTrialStore(sessions, submit("matmul:m=8,n=8,k=8,dtype=f32", cache=cache))
        for cache in ("hot", "cold")
    )
    assert hot.earlier("matmul") == []
    assert [known.problem.canonical for known in cold.earlier("matmul")] == [text]


def test_only_failures_on_the_same_target_are_known(sessions, submit):
    """What was merely slow may be the best of another search; another machine may bear more."""
    elsewhere = submit()
    SqlTrialStore(sessions, elsewhere).add(fakes.failed_trial(3))
    with writing(sessions) as session:
        queue.get(session, elsewhere).target = "cpu:another,threads=1"
    here = SqlTrialStore(sessions, submit())
    here.add(fakes.trial(0))
    here.add(fakes.replace(fakes.trial(1), state="pruned"))
    here.add(fakes.failed_trial(2))
    asking = SqlTrialStore(sessions, submit(cache="cold"))
    assert asking.trials() == []
    assert asking.known_failures() == {fakes.schedule(2).hash}


def test_nor_can_a_former_run_of_the_same_process(sessions, submit):
    job_id = submit()
    with writing(sessions) as session:
        former = lease.claim_one(session, job_id, me())
        lease.release(session, former)
        present = lease.claim_one(session, job_id, me())
    with pytest.raises(LeaseLostError, match="taken over"):
        SqlTrialStore(sessions, job_id, former).add(fakes.trial(0))
    SqlTrialStore(sessions, job_id, present).add(fakes.trial(0))
    assert SqlTrialStore(sessions, job_id).trials() == [fakes.trial(0)]


def test_a_trial_extends_the_lease_and_counts_after_a_cancellation(sessions, submit):
    job_id = submit()
    with writing(sessions) as session:
        held = lease.claim_one(session, job_id, me())
        before = queue.get(session, job_id).heartbeat_at
    with writing(sessions) as session:
        queue.cancel(session, job_id)
    SqlTrialStore(sessions, job_id, held).add(fakes.trial(0))
    with reading(sessions) as session:
        assert queue.get(session, job_id).heartbeat_at > before
        assert session.query(models.Trial).count() == 1
