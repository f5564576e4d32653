import threading
from dataclasses import replace
from datetime import timedelta
from unittest.mock import Mock

import pytest
from sqlalchemy import select, text, update

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN, stored_best
from tests.service.processes import wait_until
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.problem import parse_problem
from tilewise.search.records import Measurement, Winner
from tilewise.service.api.documents import result_json
from tilewise.service.db import models, reading, writing
from tilewise.service.db.base import now
from tilewise.service.jobs import queue, retention
from tilewise.service.results import history, integrity
from tilewise.service.results.stored import ResultKey
from tilewise.service.workers.retiming import Retiming


def small_space(problem, target, request, store, **hooks):
    found = fakes.tune(problem, target, replace(request, trials=2), store, **hooks)
    return replace(found, complete=True)


def test_peers_stay_with_the_rounds_that_timed_them(sessions, shown, submit, run):
    first = submit(peers=True)
    with writing(sessions) as session:
        queue.get(session, first).elapsed_s = 40.0
    run(first)
    run(submit(trials=8, peers=True), tuner=finding(fakes.measurement(1.0)))
    found = shown()
    assert (found["best"]["gflops"], found["trials"]["asked"]) == (13.0, 4)
    assert found["elapsed_s"] >= 40.0, "of all runs"


def test_a_space_that_is_spent_answers_every_budget_that_was_asked_for(again, submit, run):
    run(submit(trials=9), tuner=small_space)
    assert [again(trials=trials).status_code for trials in (9, 10)] == [200, 202]


@pytest.mark.full
def test_a_search_keeps_scripts_of_other_flavors(client_factory, submit, run, tuned, monkeypatch):
    path = f"/v1/schedules/{parse_problem(PROBLEM).key}/script?flavor=air"
    before = client_factory().get(path)
    assert before.status_code == 200, before.text
    run(submit(trials=6))
    fail = Mock(side_effect=AssertionError("it is proven again"))
    monkeypatch.setattr("tilewise.service.results.scripts.make", fail)
    # A service that has just made one keeps it by itself for a while; another asks the store.
    assert client_factory().get(path).text == before.text


def is_kept_waiting(sessions, thread):
    if sessions.kw["bind"].dialect.name == "sqlite":
        thread.join(0.1)
        return thread.is_alive()
    with reading(sessions) as session:
        return session.scalar(text("SELECT count(*) FROM pg_locks WHERE NOT granted")) > 0


@pytest.mark.parametrize("is_first", [True, False])
def test_a_job_and_an_import_keep_the_faster(sessions, machine, submit, run, is_first):
    run(submit(toolchain="another" if is_first else TOOLCHAIN))
    job_id = submit(trials=8)
    ending = threading.Thread(target=run, args=(job_id,))
    with writing(sessions) as session:
        row = session.scalars(select(models.Schedule)).one()
        if is_first:
            names = {column.name for column in models.Schedule.__table__.columns} - {"id"}
            row = models.Schedule(**{name: getattr(row, name) for name in names})
            row.toolchain_id = session.get_one(models.Job, job_id).toolchain_id
            session.add(row)
        row.gflops = 99.0
        session.flush()
        session.refresh(row)
        row.digest = integrity.result_digest(ResultKey.of(row), row)
        session.flush()
        ending.start()
        wait_until(lambda: is_kept_waiting(sessions, ending))
    ending.join()
    with reading(sessions) as session:
        row = stored_best(session, machine)
        assert (row.gflops, row.budget, integrity.is_whole(row)) == (99.0, 8, True)
        assert queue.get(session, job_id).state == "done"


NOISY = Measurement(77.8, (41.7, 176.7), 12.0)


def finding(measurement: Measurement):
    def tune(*given, **hooks):
        found = fakes.tune(*given, **hooks)
        return replace(found, best=Winner(found.best.schedule, measurement, 100.0, samples=21))

    return tune


@pytest.fixture
def shown(sessions, machine):
    def read():
        with reading(sessions) as session:
            row = stored_best(session, machine)
            return result_json(session, row, TOOLCHAIN, in_full=True)

    return read


@pytest.fixture
def noisy(submit, run):
    job_id = submit()
    assert run(job_id, tuner=finding(NOISY)).state == "done"
    return job_id


@pytest.fixture
def again(client):
    def ask(**body):
        return client.post("/v1/jobs", json={"problem": PROBLEM, **body})

    return ask


def past(found):
    return tuple(found["previous"][name] for name in ("state", "gflops", "quality", "job"))


def test_the_next_request_times_a_noisy_result_again(client, noisy, again, run, shown):
    assert (shown()["best"]["quality"], shown()["previous"]) == ("noisy", None)
    found = client.post("/v1/schedules/lookup", json={"problems": [PROBLEM]}).json()
    best = found["schedules"][0]["schedule"]["best"]
    assert (best["quality"], best["grade"]) == ("noisy", "proven")
    assert client.get(f"/v1/jobs/{noisy}").json()["best"]["quality"] == "noisy"
    answer = again(trials=2)
    assert (answer.status_code, answer.json()["trials"]["timed"]) == (202, 4), "the finals are next"
    run(answer.json()["id"])
    found = shown()
    assert (found["best"]["gflops"], found["best"]["quality"]) == (13.0, "good")
    assert past(found) == ("superseded", 77.8, "noisy", noisy)
    assert again(trials=4).status_code == 200, "a good result answers"


def test_a_rerun_that_was_not_kept_says_so(client, tuned, again, run, shown):
    before = shown()
    answer = again(trials=64, again=True)
    assert answer.json()["trials"]["asked"] == 4, "the budget is the stored result's"
    number = answer.json()["id"]
    run(number, tuner=finding(NOISY))
    found = shown()
    assert {**found, "previous": None} == before
    assert past(found) == ("not_kept", 77.8, "noisy", number)
    job = client.get(f"/v1/jobs/{number}").json()
    assert job["kept"] is False
    assert job["best"]["gflops"] == 13.0, "its fastest trial, as the view `job_progress` has it"
    assert client.get(f"/v1/jobs/{tuned}").json()["kept"] is True


def test_idle_workers_measure_noisy_results_again_at_intervals(sessions, machine, noisy, run):
    kind = ((machine.target,), TOOLCHAIN)

    def asked():
        Retiming(sessions).tick([kind])
        with reading(sessions) as session:
            return session.scalar(select(models.Job.id).where(models.Job.state == "queued"))

    def pass_by(span):
        with writing(sessions) as session:
            for model in (models.Job, models.Schedule):
                for row in session.scalars(select(model)):
                    row.created_at -= span

    assert asked() is None, "it was measured just now"
    pass_by(history.REST)
    run(asked(), tuner=finding(NOISY))
    pass_by(history.REST)
    assert asked() is None, "a machine that stays noisy is asked less and less often"
    pass_by(history.REST)
    run(asked())
    pass_by(timedelta(days=30))
    assert asked() is None, "it is good now"
    Retiming(sessions).tick([])


def test_the_history_has_both_and_pruning_leaves_former_bests(sessions, noisy, again, run, shown):
    run(again(trials=4).json()["id"])
    slow = finding(Measurement(1.0, (0.99, 1.01), 9.0))
    run(again(trials=4, again=True).json()["id"], tuner=slow)
    with writing(sessions) as session:
        rows = session.execute(text("SELECT state, gflops, quality FROM schedule_history"))
        assert set(map(tuple, rows)) == {("superseded", 77.8, "noisy"), ("not_kept", 1.0, "good")}
        best = session.execute(text("SELECT gflops, quality FROM best_schedules")).one()
        assert tuple(best) == (13.0, "good")
        old = now() - timedelta(days=100)
        session.execute(update(models.PastSchedule).values(ended_at=old))
    would = retention.prune(sessions, timedelta(days=90), 9, dry_run=True)
    assert retention.prune(sessions, timedelta(days=90), 9) == would
    assert would.unkept_results == 1
    assert shown()["previous"]["state"] == "superseded"


def test_a_result_that_was_edited_does_not_become_history(sessions, noisy, again, run, shown):
    with writing(sessions) as session:
        session.execute(update(models.Schedule).values(gflops=9e9))
    run(again(trials=4).json()["id"])
    assert (shown()["best"]["gflops"], shown()["previous"]) == (13.0, None)


def test_a_known_limit_of_scripts_is_a_reason_and_no_failure(sessions, submit, run, shown):
    """The second fastest has the script that is served."""
    fastest = fakes.schedule(3)

    def prove(problem, schedule, **options):
        if schedule == fastest:
            raise UnsupportedError(f"{problem}: the step strassen has no script", "steps")
        return fakes.prove(problem, schedule, **options)

    run(submit(), prover=prove)
    found = shown()
    assert found["best"]["hash"] == fastest.hash != found["proof"]["hash"]
    assert found["proof"]["reason"] == f"{PROBLEM}: the step strassen has no script"
    with reading(sessions) as session:
        assert session.execute(text("SELECT * FROM failures")).all() == []
        (limit,) = session.scalars(select(models.Proof).where(~models.Proof.ok))
        assert limit.failure == "unsupported"


def test_noisy_and_good_are_the_same_in_sql_and_in_python(sessions, tuned):
    """The view has a copy of the rule, which a migration has to follow."""
    with writing(sessions) as session:
        row = session.scalars(select(models.Schedule)).one()
        for low, high, samples in (
            (99.0, 101.0, 21), (87.5, 112.5, 21), (87.4, 112.5, 21), (99.0, 101.0, 5),
            (99.0, 101.0, 6), (99.0, 101.0, 0), (99.0, 101.0, None),
        ):  # fmt: skip
            row.gflops, row.low, row.high = 100.0, low, high
            row.measured = None if samples is None else {"samples": samples}
            session.flush()
            query = text("SELECT quality FROM best_schedules")
            assert session.scalar(query) == history.quality(row), (low, high, samples)
