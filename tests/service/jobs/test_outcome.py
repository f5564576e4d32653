import threading
from dataclasses import replace

import pytest
from sqlalchemy import select, text

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tests.service.processes import wait_until
from tilewise.kernels.problem import parse_problem
from tilewise.service.api.documents import result_json
from tilewise.service.db import models, reading, writing
from tilewise.service.jobs import queue
from tilewise.service.results import integrity
from tilewise.service.results.schedules import find_schedule
from tilewise.service.results.stored import ResultKey


def slower(*given, **options):
    found = fakes.tune(*given, **options)
    return replace(found, best=fakes.Winner(fakes.schedule(), fakes.measurement(1.0), 100.0))


def small_space(problem, target, request, store, **hooks):
    return replace(
        fakes.tune(problem, target, replace(request, trials=2), store, **hooks), complete=True
    )


def result(sessions, machine):
    with reading(sessions) as session:
        row = find_schedule(session, parse_problem(PROBLEM), machine.target, TOOLCHAIN)
        return result_json(session, row, TOOLCHAIN)


def is_answered(client, **body) -> bool:
    answer = client.post("/v1/jobs", json={"problem": PROBLEM, **body})
    if answer.status_code == 202:
        client.delete(answer.headers["Location"])
    return answer.status_code == 200


def test_peers_stay_with_the_rounds_that_timed_them(sessions, machine, submit, run):
    run(submit(peers=True))
    run(submit(trials=8, peers=True), tuner=slower)
    kept = result(sessions, machine)
    assert (kept["best"]["gflops"], kept["trials"]["asked"]) == (13.0, 4)


def test_a_space_that_is_spent_answers_every_budget_that_was_asked_for(client, submit, run):
    run(submit(trials=9), tuner=small_space)
    assert is_answered(client, trials=9)
    assert not is_answered(client, trials=10)


def test_a_result_shows_the_seconds_of_all_runs(sessions, machine, submit, run):
    job_id = submit()
    with writing(sessions) as session:
        queue.get(session, job_id).elapsed_s = 40.0
    run(job_id)
    assert result(sessions, machine)["elapsed_s"] >= 40.0


@pytest.mark.full
def test_a_search_takes_no_script_of_another_flavor_away(client_factory, submit, run, tuned):
    path = f"/v1/schedules/{parse_problem(PROBLEM).key}/script?flavor=air"
    before = client_factory().get(path)
    assert before.status_code == 200, before.text
    run(submit(trials=6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tilewise.service.results.scripts.make",
            lambda *_: pytest.fail("it is proven again"),
        )
        # A service that has just made one keeps it by itself for a while; another asks the store.
        assert client_factory().get(path).text == before.text


def improved(session, row):
    row.gflops = 99.0
    session.flush()
    session.refresh(row)
    row.digest = integrity.result_digest(ResultKey.of(row), row)
    session.flush()


def copied(session, row, toolchain_id):
    names = {column.name for column in models.Schedule.__table__.columns} - {"id"}
    made = models.Schedule(**{name: getattr(row, name) for name in names})
    made.toolchain_id = toolchain_id
    session.add(made)
    improved(session, made)


def is_kept_waiting(sessions, thread):
    if sessions.kw["bind"].dialect.name == "sqlite":
        thread.join(0.1)
        return thread.is_alive()
    with reading(sessions) as session:
        return session.scalar(text("SELECT count(*) FROM pg_locks WHERE NOT granted")) > 0


@pytest.mark.parametrize("is_first", [True, False])
def test_a_job_that_ends_beside_an_import_keeps_the_faster_schedule(
    sessions, machine, submit, run, is_first
):
    run(submit(toolchain="another" if is_first else TOOLCHAIN))
    job_id = submit(trials=8)
    ending = threading.Thread(target=run, args=(job_id,))
    with writing(sessions) as session:
        row = session.scalars(select(models.Schedule)).one()
        if is_first:
            copied(session, row, session.get_one(models.Job, job_id).toolchain_id)
        else:
            improved(session, row)
        ending.start()
        wait_until(lambda: is_kept_waiting(sessions, ending))
    ending.join()
    with reading(sessions) as session:
        row = find_schedule(session, parse_problem(PROBLEM), machine.target, TOOLCHAIN)
        assert (row.gflops, row.budget, integrity.is_whole(row)) == (99.0, 8, True)
        assert queue.get(session, job_id).state == "done"
