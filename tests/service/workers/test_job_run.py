from dataclasses import replace
from functools import partial
from unittest.mock import Mock, patch

import pytest

from tests.search.engine.faults import propose_rows
from tests.search.runner import faulty_child
from tests.search.runner.patience import LIMITS, Patient
from tests.service import fakes
from tests.service.conftest import PROBLEM, stored_best
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import detect
from tilewise.search.engine.tune import tune
from tilewise.search.records import TuneRequest
from tilewise.service.api.documents import trial_json
from tilewise.service.db import models, reading, writing
from tilewise.service.errors import OutageError
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease, queue
from tilewise.service.jobs.lease import LEASE
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.results.trials import find_trials
from tilewise.service.workers.job_run import RunPhase, ScriptTried, TrialReached


@pytest.fixture
def schedules(sessions):
    """Counts the schedules that are stored."""

    def count():
        with reading(sessions) as session:
            return session.query(models.Schedule).count()

    return count


def test_a_run_tells_of_its_trials_proofs_and_phases_in_their_order(submit, run):
    events = []
    assert run(submit(), on_event=events.append).state == "done"
    trials, others = events[:4], events[4:]
    assert [(one.trial.number, one.requested) for one in trials] == [(n, 4) for n in range(4)]
    phases = [event.phase for event in others if isinstance(event, RunPhase)]
    assert list(dict.fromkeys(phase.name for phase in phases)) == ["proof", "finals"]
    proofs = [phase for phase in phases if phase.name == "proof"]
    assert [(phase.done, phase.total) for phase in proofs] == [(0, 3), (1, 3), (2, 3)]
    tried = [event for event in others if isinstance(event, ScriptTried)]
    assert len(tried) == 3, "the best and two runners-up"


def test_a_cancelled_job_stops_and_keeps_its_trials(sessions, submit, run, job, schedules):
    job_id = submit()

    def cancel(event):
        if isinstance(event, TrialReached) and event.trial.number == 1:
            with writing(sessions) as session:
                queue.cancel(session, job_id)

    assert run(job_id, on_event=cancel).state == "interrupted"
    assert job(job_id).state == "cancelled"
    assert len(SqlTrialStore(sessions, job_id).trials()) == 2 and schedules() == 0


def unaware_tune(*given, should_stop, **options):
    return fakes.tune(*given, **options)


@pytest.mark.parametrize("tuner", [fakes.tune, unaware_tune])
@pytest.mark.parametrize(("moment", "stored"), [(TrialReached, 1), (ScriptTried, 4)])
@pytest.mark.parametrize("heir", ["another-host:1:1", me()], ids=["elsewhere", "here"])
def test_lost_jobs_are_left(sessions, submit, run, job, schedules, tuner, moment, stored, heir):
    job_id, taken = submit(), []

    def take_over(event):
        if isinstance(event, moment) and not taken:
            with writing(sessions) as session:
                queue.get(session, job_id).heartbeat_at -= 2 * LEASE
                session.flush()
                taken.append(lease.claim_one(session, job_id, heir))

    assert run(job_id, on_event=take_over, tuner=tuner).state == "interrupted"
    assert (job(job_id).state, job(job_id).owner, job(job_id).epoch) == ("running", heir, 2)
    assert len(SqlTrialStore(sessions, job_id).trials()) == stored and schedules() == 0


def test_a_cancellation_at_the_last_moment_stores_nothing(submit, run, job, schedules, monkeypatch):
    job_id, store = submit(), lease.end

    def too_late(session, *args, **kwargs):
        queue.cancel(session, job_id)
        session.flush()
        return store(session, *args, **kwargs)

    monkeypatch.setattr(lease, "end", too_late)
    assert run(job_id).state == "interrupted"
    assert job(job_id).state == "cancelled" and schedules() == 0


@pytest.mark.parametrize(
    ("tuner", "cause", "error"),
    [(fakes.unsupported_tune, UnsupportedError, "matmul: transpose_a is not covered yet"),
     (fakes.fruitless_tune, object, "none of 1 candidates ran; the first: crash: signal 11")],
)  # fmt: skip
def test_a_search_without_a_result_says_why(
    submit, run, job, schedules, tuner, cause, error, sessions
):
    job_id = submit()
    outcome = run(job_id, tuner=tuner)
    assert outcome.state == "failed" and isinstance(outcome.cause, cause)
    assert job(job_id).error == error and schedules() == 0
    again = submit()
    with reading(sessions) as session:
        assert queue.counts(session, again)["failed"] == error.count("candidates"), "it goes on"


def test_an_interrupt_gives_the_job_back(sessions, submit, run, job):
    job_id, stop = submit(), {"on_event": Mock(side_effect=KeyboardInterrupt)}
    away = patch.object(lease, "release", side_effect=OutageError("away"))
    with away, pytest.raises(KeyboardInterrupt):
        run(submit(PROBLEM + ",bias"), **stop)
    with pytest.raises(KeyboardInterrupt):
        run(job_id, **stop)
    assert job(job_id).state == "queued" and run(job_id).state == "done"
    assert len(SqlTrialStore(sessions, job_id).trials()) == 4


def test_a_fault_while_storing_leaves_nothing_behind(submit, run, job, schedules, monkeypatch):
    job_id = submit()
    fail = Mock(side_effect=RuntimeError("killed"))
    monkeypatch.setattr("tilewise.service.jobs.outcome._add_attempt", fail)
    with pytest.raises(RuntimeError):
        run(job_id)
    assert schedules() == 0 and job(job_id).state == "running", "its process counts as crashed"


def test_a_larger_budget_costs_the_difference(sessions, machine, submit, run, tuned):
    larger = submit(trials=7)
    with reading(sessions) as session:
        pages = (queue.trials_page(session, one) for one in (tuned, larger))
        before, copied = ([trial_json(row) for row in page] for page in pages)
    assert copied == before and larger != tuned, "also when they were timed"
    events = []
    run(larger, on_event=events.append)
    assert [one.trial.number for one in events if isinstance(one, TrialReached)] == [4, 5, 6]
    with reading(sessions) as session:
        assert queue.counts(session, larger) == {"timed": 7, "pruned": 0, "failed": 0}
        row = stored_best(session, machine)
        assert row.hash == fakes.schedule(6).hash and row.budget == 7
        listed = find_trials(session, problem=parse_problem(PROBLEM), target=machine.target)
        assert [t.number for t, _ in listed] == list(range(7)), "copies are not shown again"


def test_a_search_gets_what_was_asked_for_less_the_seconds_of_earlier_runs(sessions, submit, run):
    job_id = submit(trials=3, seconds=100, seed=7, sampler="random", peers=True, cache="cold")
    with writing(sessions) as session:
        queue.get(session, job_id).elapsed_s = 40
    tuner, prover = Mock(side_effect=fakes.tune), Mock(side_effect=fakes.prove)
    run(job_id, tuner=tuner, prover=prover)
    request = tuner.call_args.args[2]
    assert replace(request, seconds=None) == TuneRequest(3, None, 7, "random", True, "cold")
    assert 50 < request.seconds <= 60
    assert {call.kwargs["seed"] for call in prover.call_args_list} == {7}


FAULTS = {
    faulty_child.HANG: "timeout", faulty_child.CRASH: "crash", faulty_child.EAT: "memory",
    faulty_child.RAISE: "runtime", faulty_child.EXIT: "crash",
}  # fmt: skip


@pytest.mark.full
def test_each_fault_is_stored_with_its_class_and_the_job_ends(sessions, submit, run, monkeypatch):
    rows = [1, *FAULTS, 8, faulty_child.WRONG]

    def runner(problem, target, request):
        return Patient(problem, target, request.seed, LIMITS, "tests.search.runner.faulty_child")

    propose_rows(monkeypatch, parse_problem(PROBLEM), rows)
    monkeypatch.setattr("tilewise.service.workers.job_run.resolve", lambda _target: detect())
    job_id = submit(PROBLEM, trials=len(rows))
    assert run(job_id, tuner=partial(tune, make_runner=runner)).state == "done"
    ends = [t.failure for t in SqlTrialStore(sessions, job_id).trials()]
    assert ends == [None, *FAULTS.values(), None, "wrong"]
    with reading(sessions) as session:
        assert queue.counts(session, job_id)["failed"] == len(FAULTS) + 1
