import pytest

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.problem import parse_problem
from tilewise.search.records import TuneRequest
from tilewise.service.api.documents import trial_json
from tilewise.service.db import models, reading, writing
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease, queue
from tilewise.service.jobs.lease import LEASE
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.results.schedules import find_schedule
from tilewise.service.results.trials import find_trials
from tilewise.service.workers.job_run import RunPhase, ScriptTried, TrialReached


def state(sessions, job_id):
    with reading(sessions) as session:
        return queue.get(session, job_id).state


def schedules(sessions):
    with reading(sessions) as session:
        return session.query(models.Schedule).count()


def test_a_run_tells_of_its_trials_and_proofs(submit, run):
    events = []
    run(submit(), on_event=events.append)
    trials = [event for event in events if isinstance(event, TrialReached)]
    assert [(event.trial.number, event.asked) for event in trials] == [(n, 4) for n in range(4)]
    proofs = [event for event in events if isinstance(event, ScriptTried)]
    assert len(proofs) == 3, "the best and two runners-up"


def test_stored_trials_are_not_timed_again(sessions, submit, run):
    job_id, timed = submit(), []
    SqlTrialStore(sessions, job_id).add(fakes.trial(1, gflops=11.0))
    run(
        job_id,
        on_event=lambda e: timed.append(e.trial.number) if isinstance(e, TrialReached) else 0,
    )
    assert timed == [0, 2, 3]


def test_a_cancelled_job_stops_and_keeps_its_trials(sessions, submit, run):
    job_id = submit()

    def cancel(event):
        if isinstance(event, TrialReached) and event.trial.number == 1:
            with writing(sessions) as session:
                queue.cancel(session, job_id)

    assert run(job_id, on_event=cancel).state == "interrupted"
    assert state(sessions, job_id) == "cancelled"
    assert len(SqlTrialStore(sessions, job_id).trials()) == 2
    assert schedules(sessions) == 0


def unaware_tune(*given, should_stop, **options):
    return fakes.tune(*given, **options)


@pytest.mark.parametrize("tuner", [fakes.tune, unaware_tune])
@pytest.mark.parametrize(("moment", "stored"), [(TrialReached, 1), (ScriptTried, 4)])
@pytest.mark.parametrize("heir", ["another-host:1:1", me()], ids=["elsewhere", "here"])
def test_a_job_that_was_taken_over_is_left_alone(
    sessions, submit, run, tuner, moment, stored, heir
):
    job_id, taken = submit(), []

    def take_over(event):
        if isinstance(event, moment) and not taken:
            with writing(sessions) as session:
                queue.get(session, job_id).heartbeat_at -= 2 * LEASE
                session.flush()
                taken.append(lease.claim_one(session, job_id, heir))

    assert run(job_id, on_event=take_over, tuner=tuner).state == "interrupted"
    with reading(sessions) as session:
        job = queue.get(session, job_id)
        assert (job.state, job.owner, job.epoch) == ("running", heir, 2)
        assert lease.holds(session, *taken)
    assert len(SqlTrialStore(sessions, job_id).trials()) == stored
    assert schedules(sessions) == 0


def test_a_cancellation_at_the_last_moment_stores_nothing(sessions, submit, run, monkeypatch):
    job_id = submit()
    store = lease.end

    def too_late(session, *args, **kwargs):
        queue.cancel(session, job_id)
        session.flush()
        return store(session, *args, **kwargs)

    monkeypatch.setattr(lease, "end", too_late)
    assert run(job_id).state == "interrupted"
    assert state(sessions, job_id) == "cancelled"
    assert schedules(sessions) == 0


def test_an_error_of_the_domain_fails_the_job_with_its_message(sessions, submit, run):
    job_id = submit()
    outcome = run(job_id, tuner=fakes.unsupported_tune)
    assert outcome.state == "failed" and isinstance(outcome.cause, UnsupportedError)
    with reading(sessions) as session:
        assert queue.get(session, job_id).error == "matmul: transpose_a is not covered yet"


def test_a_job_of_which_no_candidate_ran_fails_and_says_why(sessions, submit, run):
    job_id = submit()
    assert run(job_id, tuner=fakes.fruitless_tune).state == "failed"
    with reading(sessions) as session:
        error = queue.get(session, job_id).error
    assert error == "none of 1 candidates ran; the first: crash: signal 11"
    assert schedules(sessions) == 0


def test_an_interrupt_gives_the_job_back(sessions, submit, run):
    job_id = submit()

    def interrupt(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(job_id, on_event=interrupt)
    assert state(sessions, job_id) == "queued"
    assert run(job_id).state == "done"
    assert len(SqlTrialStore(sessions, job_id).trials()) == 4


def test_a_fault_in_the_middle_of_storing_leaves_nothing_half_written(
    sessions, submit, run, monkeypatch
):
    job_id = submit()

    def fail(*_args, **_kwargs):
        raise RuntimeError("killed")

    monkeypatch.setattr("tilewise.service.jobs.outcome._add_attempt", fail)
    with pytest.raises(RuntimeError):
        run(job_id)
    assert schedules(sessions) == 0
    assert state(sessions, job_id) == "running", "its process counts as crashed"


def test_earlier_runs_count_against_the_seconds(sessions, submit, run):
    job_id, given = submit(seconds=100), []
    with writing(sessions) as session:
        queue.get(session, job_id).elapsed_s = 40

    def tune(problem, target, request, store, **hooks):
        given.append(request.seconds)
        return fakes.tune(problem, target, request, store, **hooks)

    run(job_id, tuner=tune)
    assert len(given) == 1 and 50 < given[0] <= 60


def numbers_timed(run, job_id) -> list[int]:
    seen = []
    run(job_id, on_event=lambda e: seen.append(e.trial.number) if hasattr(e, "trial") else None)
    return seen


def test_a_larger_budget_costs_the_difference(sessions, machine, submit, run, tuned):
    first_job = tuned
    larger = submit(trials=7)
    assert larger != first_job
    with reading(sessions) as session:
        before = [trial_json(row) for row in queue.trials_page(session, first_job)]
        copied = [trial_json(row) for row in queue.trials_page(session, larger)]
        assert copied == before, "also when they were timed"
    assert numbers_timed(run, larger) == [4, 5, 6]
    with reading(sessions) as session:
        assert queue.counts(session, larger) == {"timed": 7, "pruned": 0, "failed": 0}
        row = find_schedule(session, parse_problem(PROBLEM), machine.target, TOOLCHAIN)
        assert row.hash == fakes.schedule(6).hash and row.budget == 7
        listed = find_trials(session, problem=parse_problem(PROBLEM), target=machine.target)
        assert [t.number for t, _ in listed] == list(range(7)), "copies are not shown again"


def test_what_was_cut_short_or_failed_goes_on_too(sessions, submit, run):
    first = submit(trials=6)
    run(first, tuner=fakes.fruitless_tune)
    with reading(sessions) as session:
        assert queue.get(session, first).state == "failed"
        failed = queue.counts(session, first)["failed"]
    again = submit(trials=6)
    with reading(sessions) as session:
        assert failed and queue.counts(session, again)["failed"] == failed


def test_the_phases_after_the_search_are_told_in_their_order(submit, run):
    events = []
    assert run(submit(), on_event=events.append).state == "done"
    phases = [event.phase for event in events if isinstance(event, RunPhase)]
    names = list(dict.fromkeys(phase.name for phase in phases))
    assert names == ["proof", "finals"]
    proofs = [phase for phase in phases if phase.name == "proof"]
    assert [(phase.done, phase.total) for phase in proofs] == [(0, 3), (1, 3), (2, 3)]
    first = next(i for i, event in enumerate(events) if isinstance(event, RunPhase))
    assert all(isinstance(event, TrialReached) for event in events[:first])


def test_a_search_gets_what_was_asked_for(submit, run):
    request = TuneRequest(3, None, 7, "random", True, "cold")
    given, seeds = [], set()

    def tune(problem, target, request, store, **hooks):
        given.append(request)
        return fakes.tune(problem, target, request, store, **hooks)

    def prove(problem, schedule, *, seed, seconds, threads):
        seeds.add(seed)
        return fakes.prove(problem, schedule, seed=seed)

    run(submit(trials=3, seed=7, sampler="random", peers=True, cache="cold"), tuner=tune,
        prover=prove)  # fmt: skip
    assert (given, seeds) == ([request], {7})
