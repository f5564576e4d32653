from dataclasses import replace
from math import prod

import pytest
from sqlalchemy import text, update

from tests.service import fakes
from tests.service.conftest import TOOLCHAIN
from tilewise.kernels.problem import parse_problem, parse_range
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.search.ranges.result import RangeResult, SampleTimes
from tilewise.search.ranges.samples import sample_sizes
from tilewise.search.records import TuneRequest
from tilewise.service.api.range_documents import found_json, size_json
from tilewise.service.db import models, reading, writing
from tilewise.service.errors import OutageError, TamperedError
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import claims, lease, queue
from tilewise.service.jobs.lease import LEASE
from tilewise.service.results import ranges
from tilewise.service.results.stored import Lookup
from tilewise.service.workers.range_run import run_range

RANGE = parse_range("matmul:m=2..40,n=48,k=32,dtype=f32")
REQUEST = TuneRequest(trials=3)
INSIDE = parse_problem("matmul:m=37,n=48,k=32,dtype=f32")


def tune_range(problems, _target, _request, finalists, **_hooks):
    """Choose one schedule below 20 and another from there on."""
    assert set(finalists) == set(sample_sizes(problems))
    assert all(1 <= len(some) <= 3 for some in finalists.values())
    variants = fakes.schedule(0), fakes.schedule(1)
    choice = tuple(int(size[-1] >= 20) for size in problems.sizes)
    known = ((size, float(prod(size))) for size in finalists)
    samples = tuple(SampleTimes(size, variants[0].hash, t, (t, 1.1 * t)) for size, t in known)
    tiles = tuple((1,) * len(problems.dims) for _ in variants)
    return RangeResult(RangeSchedule(problems, variants, choice), tiles, samples)


@pytest.fixture
def ask(sessions, machine):
    def make(request=REQUEST, problems=RANGE, **how):
        with writing(sessions) as session:
            work = problems, machine.target, request, TOOLCHAIN
            return queue.create_or_join(session, *work, **how)

    return make


@pytest.fixture
def run(sessions, machine):
    def make(job_id, **others):
        with writing(sessions) as session:
            held = lease.claim_one(session, job_id, me())
        parts = {"tuner": fakes.tune, "prover": fakes.prove, "machine": machine, **others}
        return run_range(sessions, held, tune_range=tune_range, **parts)

    return make


def stored(sessions, machine, problems=RANGE):
    with reading(sessions) as session:
        return found_json(session, problems, Lookup(machine.target, TOOLCHAIN))


def size_of(sessions, problem, machine, target=None):
    with reading(sessions) as session:
        return size_json(session, problem, Lookup(target or machine.target, TOOLCHAIN))


def test_a_range_is_tuned_stored_and_answers(sessions, machine, ask, run):
    job = ask().job
    assert job.kind == "range" and ask().job.id == job.id
    with writing(sessions) as session:
        session.query(models.Job).update({"crashes": 2})
    assert run(job.id).state == "done"
    found = stored(sessions, machine)
    assert found["problem"] == RANGE.canonical and not found["stale"] and found["trials"] == 3
    assert [one["m"] for one in found["variants"]] == [[2, 19], [20, 40]]
    assert found["spans"] == [[2, 19, 0], [20, 40, 1]]
    assert found["loss"]["worst"] == pytest.approx(0.1)
    with reading(sessions) as session:
        states = [(one.state, one.crashes) for one in queue.list_jobs(session)]
        row = session.execute(text("SELECT * FROM best_ranges")).one()
    assert states == [("done", 0)] * (1 + len(sample_sizes(RANGE)))
    assert (row.variants, row.spans, row.samples) == (2, "[[2,19,0],[20,40,1]]", 7)
    assert ask().stored is not None
    assert ask(replace(REQUEST, peers=True)).job.peers, "its samples have no peers"


def test_a_trial_of_a_newer_version_is_no_finalist(sessions, ask, run):
    run(ask().job.id)
    with writing(sessions) as session:
        session.query(models.Trial).update({"steps": [{"step": "later"}]})
    assert run(ask(again=True).job.id).state == "done"
    assert ask(replace(REQUEST, trials=4)).job is not None


def test_a_size_is_answered_by_the_range_that_contains_it(sessions, machine, ask, run):
    run(ask().job.id)
    found = size_of(sessions, INSIDE, machine)
    assert found["match"]["kind"] == "range" and found["match"]["range"] == RANGE.canonical
    assert found["best"]["hash"] == fakes.schedule(1).hash
    assert found["best"]["grade"] == "predicted" and found["best"]["interval"] is None
    assert size_of(sessions, RANGE.at((40,)), machine)["best"]["grade"] == "measured"
    for outside in ("matmul:m=41,n=48,k=32,dtype=f32", "matmul:m=37,n=48,k=33,dtype=f32"):
        assert size_of(sessions, parse_problem(outside), machine) is None
    assert size_of(sessions, INSIDE, machine, "cpu:znver1,threads=1") is None


def test_a_size_is_answered_by_a_range_of_two_dims(sessions, machine, ask, run):
    both = parse_range("matmul:batch=1..3,m=2..40,n=48,k=32,dtype=f32")
    assert run(ask(problems=both).job.id).state == "done"
    found = stored(sessions, machine, both)
    assert found["dim"] == "batch,m"
    ends = [(one["batch"], one["m"]) for one in found["variants"]]
    assert ends == [([1, 3], [2, 19]), ([1, 3], [20, 40])]
    assert found["spans"] == [[(1, 2), (3, 19), 0], [(1, 20), (3, 40), 1]]
    assert {sample["size"] for sample in found["samples"]} == set(sample_sizes(both))
    assert size_of(sessions, INSIDE, machine)["match"]["range"] == both.canonical
    for size, grade in (((3, 40), "measured"), ((2, 19), "predicted")):
        best = size_of(sessions, both.at(size), machine)["best"]
        assert best["grade"] == grade and best["hash"] == fakes.schedule(size == (3, 40)).hash
    assert size_of(sessions, parse_problem(f"{INSIDE},batch=4"), machine) is None
    assert ask().job is not None  # the range of m alone is another one


def test_a_new_result_replaces_one_that_was_cut_short(sessions, machine, ask, run):
    def short(*given, **hooks):
        return replace(fakes.tune(*given, **hooks), trials=(fakes.trial(0),), complete=False)

    for trials, tuner, budget in ((3, short, 1), (3, fakes.tune, 3), (2, fakes.tune, 3)):
        run(ask(replace(REQUEST, trials=trials), again=trials == 2).job.id, tuner=tuner)
        assert stored(sessions, machine)["trials"] == budget


def test_of_stale_results_the_newest_answers(sessions, machine, run):
    for toolchain in ("old", "newer"):
        with writing(sessions) as session:
            made = queue.create_or_join(session, RANGE, machine.target, REQUEST, toolchain)
        run(made.job.id)
    with writing(sessions) as session:
        session.query(models.TunedRange).update({"loss_mean": models.TunedRange.id})
        found = ranges.find_range(session, RANGE.key, Lookup(machine.target, TOOLCHAIN))
        assert found.toolchain.identity == "newer"


def test_who_is_second_of_two_at_once_widens_the_job_of_the_first(machine, ask, monkeypatch):
    def first(session, *_):
        monkeypatch.undo()
        queue.create_or_join(session, RANGE, machine.target, REQUEST, TOOLCHAIN)

    monkeypatch.setattr(queue, "require_room", first)
    assert ask(replace(REQUEST, trials=64)).job.trials == 64


def test_a_changed_row_is_refused_and_tuned_again(sessions, machine, ask, run):
    run(ask().job.id)
    with writing(sessions) as session:
        session.execute(update(models.TunedRange).values(loss_mean=0.0))
    with pytest.raises(TamperedError, match="tuned_ranges is not what was stored"):
        stored(sessions, machine)
    assert size_of(sessions, INSIDE, machine) is None
    assert run(ask().job.id).state == "done"
    assert stored(sessions, machine)["loss"]["worst"] == pytest.approx(0.1)


def test_a_range_waits_for_a_database_and_another_process(sessions, ask, run, monkeypatch):
    job, taken = ask().job.id, []

    def away_once(*_):
        monkeypatch.undo()
        raise OutageError("the database is away")

    def taking_over(*given, **hooks):
        if not taken:
            with writing(sessions) as session:
                sample = queue.list_jobs(session)[0]
                sample.heartbeat_at -= 2 * LEASE
                taken.append(lease.claim_one(session, sample.id, "elsewhere:1:1"))
                lease.release(session, taken[0])
        return fakes.tune(*given, **hooks)

    monkeypatch.setattr(queue, "create_or_join", away_once)
    assert run(job, tuner=taking_over).state == "done" and taken[0] is not None


def test_a_cancelled_range_returns_its_sample_to_the_queue(sessions, ask, run):
    job = ask().job.id

    def cancelling(*given, should_stop, **hooks):
        with writing(sessions) as session:
            queue.cancel(session, job)
        assert should_stop()
        return fakes.tune(*given, should_stop=should_stop, **hooks)

    assert run(job, tuner=cancelling).state == "interrupted"
    with reading(sessions) as session:
        states = [one.state for one in queue.list_jobs(session)]
    assert states == ["queued", "cancelled"]


def test_a_sample_that_fails_fails_the_range(sessions, ask, run):
    job = ask().job.id
    ended = run(job, tuner=fakes.fruitless_tune)
    assert ended.state == "failed" and "which searches a sample, failed" in ended.message


def test_a_worker_takes_the_searches_first(sessions, machine, ask, submit):
    wide, single = ask().job.id, submit()
    with writing(sessions) as session:
        first, second = (claims.claim(session, me(), [machine.target], TOOLCHAIN) for _ in "ab")
    assert (first.job_id, second.job_id) == (single, wide)
