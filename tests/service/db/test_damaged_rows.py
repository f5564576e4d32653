import logging
from datetime import timedelta

import pytest
from sqlalchemy import text

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tilewise.kernels.problem import parse_problem
from tilewise.service import faults
from tilewise.service.db import make_engine, models, reading, writing
from tilewise.service.host.process_identity import is_dead, me
from tilewise.service.jobs import claims, lease, queue
from tilewise.service.jobs.lease import LEASE
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.results.schedules import find_schedule

OTHER = PROBLEM + ",bias"
SHOWN_OF_A_JOB = [
    "created_at = 'lately'",
    "created_at = 17",
    "elapsed_s = 'long'",
    "trials = 9e999",
]
OF_A_RUN = ["claimed_at = '{}'", "elapsed_s = 9e999", "trials = 9e999", "seconds = x'00'"]
OF_A_JOB = ["created_at = 'lately'", "heartbeat_at = 'never'", "seed = 'two'"]
OF_A_TRIAL = [
    "steps = 'garbage'",
    'steps = \'{"step": "unroll"}\'',
    "steps = 'null'",
    "params = '[1, 2]'",
    "params = ''",
    "created_at = '2026-13-01'",
    "samples = x'0102'",
    "gflops = 'fast'",
    "gflops = 9e999",
    "rejected = 'few'",
]


@pytest.fixture
def change(url):
    def make(table, values, row_id):
        with make_engine(url).begin() as connection:
            statement = text(f"UPDATE {table} SET {values} WHERE id = {row_id}")
            assert connection.execute(statement).rowcount == 1

    faults.tell_once.cache_clear()
    return make


def pages(client, path, name):
    found, unreadable = [], 0
    while path:
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found, unreadable, path = found + page[name], unreadable + page["unreadable"], page["next"]
    return found, unreadable


@pytest.mark.parametrize("values", SHOWN_OF_A_JOB)
def test_a_list_of_jobs_lacks_a_damaged_one(client, submit, change, caplog, values):
    first, bad, last = (submit(f"{PROBLEM},batch={n}") for n in (2, 3, 4))
    assert client.get("/v1/jobs").json()["unreadable"] == 0
    change("jobs", values, bad)
    for limit in (100, 1):
        listed, unreadable = pages(client, f"/v1/jobs?limit={limit}", "jobs")
        assert [job["id"] for job in listed] == [last, first]
        assert unreadable == 1
    (told,) = [r.getMessage() for r in caplog.records if "damaged" in r.getMessage()]
    assert told.startswith(f"row {bad} of jobs is damaged and left out of lists: ")
    assert values.split()[0] in told


@pytest.mark.parametrize("values", OF_A_JOB)
def test_a_damaged_job_says_so(client, submit, change, values):
    job_id = submit()
    change("jobs", values, job_id)
    for answer in (client.get(f"/v1/jobs/{job_id}"), client.delete(f"/v1/jobs/{job_id}")):
        assert answer.status_code == 500
        assert answer.headers["Content-Type"] == "application/problem+json"
        expected = f"the row of job {job_id} in the database is damaged: {values.split()[0]} is "
        assert answer.json()["detail"].startswith(expected)


@pytest.mark.parametrize("values", OF_A_TRIAL)
def test_lists_of_trials_lack_a_damaged_one(client, tuned, change, values):
    change("trials", values, 4)
    for path in (f"/v1/jobs/{tuned}/trials", "/v1/trials"):
        for limit in (100, 1):
            listed, unreadable = pages(client, f"{path}?limit={limit}", "trials")
            assert [trial["number"] for trial in listed] == [0, 1, 2]
            assert unreadable == 1


@pytest.mark.parametrize("values", ["steps = '{}'", "gflops = 'fast'", "samples = x'0102'"])
def test_a_job_shows_the_best_trial_that_can_be_read(client, sessions, submit, change, values):
    job_id = submit()
    for number in range(3):
        SqlTrialStore(sessions, job_id).add(fakes.trial(number, gflops=10.0 + number))
    change("trials", values, 3)
    (job,) = client.get("/v1/jobs").json()["jobs"]
    expected = 12.0 if "samples" in values else 11.0
    assert job["best"]["gflops"] == expected
    assert client.get(f"/v1/jobs/{job_id}").json() == job


@pytest.mark.parametrize("values", OF_A_JOB)
def test_a_damaged_job_is_not_joined_but_fails(client, sessions, submit, change, values):
    bad = submit()
    change("jobs", values, bad)
    answer = client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 4})
    assert answer.status_code == 202 and answer.json()["id"] != bad
    with reading(sessions) as session:
        row = session.get_one(models.Job, bad)
        assert (row.state, row.complete) == ("failed", False)
        assert row.error.startswith("its row in the database is damaged: " + values.split()[0])


@pytest.mark.parametrize(
    "values", ["budget = 'all'", "gflops = 9e999", "steps = '?'", "created_at = ''", "peers = '[]'"]
)
def test_a_damaged_schedule_answers_nobody_and_is_found_anew(
    client, sessions, machine, tuned, run, change, values
):
    change("schedules", values, 1)
    answer = client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 4})
    assert answer.status_code == 202
    assert client.get("/v1/jobs").json()["unreadable"] == 0
    assert run(answer.json()["id"]).state == "done"
    with reading(sessions) as session:
        row = find_schedule(session, parse_problem(PROBLEM), machine.target, TOOLCHAIN)
        assert (row.hash, row.budget) == (fakes.schedule(3).hash, 4)


def test_what_is_inherited_lacks_a_damaged_trial(sessions, tuned, submit, run, change):
    change("trials", "params = '[]'", 2)
    job_id = submit(trials=6)
    timed = []
    assert run(job_id, on_event=lambda e: timed.append(getattr(e, "trial", None))).state == "done"
    assert [trial.number for trial in timed if trial] == [1, 4, 5]


@pytest.mark.parametrize(
    "values",
    [*OF_A_TRIAL, "steps = '[{}]'", "gflops = NULL", "number = 1.5", "time_us = 0", "pace = -1"],
)
def test_a_damaged_trial_of_its_own_is_timed_again(sessions, submit, run, change, values):
    job_id, timed = submit(), []
    for number in (0, 1):
        SqlTrialStore(sessions, job_id).add(fakes.trial(number, gflops=10.0 + number))
    change("trials", values, 2)
    assert run(job_id, on_event=lambda e: timed.append(getattr(e, "trial", None))).state == "done"
    assert [trial.number for trial in timed if trial] == [1, 2, 3]
    assert [trial.number for trial in SqlTrialStore(sessions, job_id).trials()] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("problems", "canonical = 'matmul:m=lots'"),
        ("jobs", "target = 'cpu'"),
        ("jobs", "target = 'cpu:any,threads=0'"),
    ],
)
def test_a_search_learns_from_others_beside_a_damaged_one(sessions, submit, change, table, values):
    """Both are found by their trials; one of them cannot say what it was for."""
    bad, good = submit(), submit("matmul:m=8,n=8,k=8,dtype=f32")
    for job_id in (bad, good):
        SqlTrialStore(sessions, job_id).add(fakes.trial(0))
    change(table, values, bad)
    own = SqlTrialStore(sessions, submit("matmul:m=16,n=8,k=8,dtype=f32"))
    assert [search.key for search in own.earlier("matmul")] == [good]


@pytest.mark.parametrize(
    "values", ["params = '[]'", "params = '?'", "time_us = 'short'", "time_us = 0"]
)
def test_what_a_search_learns_lacks_a_damaged_trial(sessions, submit, change, values):
    other = SqlTrialStore(sessions, submit())
    for number in range(3):
        other.add(fakes.trial(number, gflops=10.0 + number))
    change("trials", values, 2)
    own = SqlTrialStore(sessions, submit(OTHER))
    (solved,) = own.solved(own.earlier("matmul"))
    assert [params["rows"] for params, _ in solved.points] == [3, 1]


@pytest.mark.parametrize("pace", ["'slow'", "0", "9e999"])
def test_a_pace_that_is_no_number_is_none(sessions, submit, change, pace):
    other = SqlTrialStore(sessions, submit())
    for number in range(2):
        other.add(fakes.trial(number))
    change("trials", f"pace = {pace}", 1)
    assert SqlTrialStore(sessions, submit(OTHER)).earlier_paces() == [[1.25]]


@pytest.mark.parametrize("owner", ["nobody", "a:b", "host:one:2", "host:1:two", "::", "", "\0:1:1"])
def test_a_malformed_owner_is_not_known_to_be_dead(owner):
    assert not is_dead(owner)
    host = me().rsplit(":", 2)[0]
    assert not is_dead(f"{host}:{owner}")


def test_a_job_of_a_malformed_owner_is_free_when_that_is_silent(sessions, submit, machine):
    job_id = submit()
    with writing(sessions) as session:
        lease.claim_one(session, job_id, "nobody")
        assert claims.claim(session, me(), machine.targets, TOOLCHAIN) is None
        queue.get(session, job_id).heartbeat_at -= 2 * LEASE
        session.flush()
        assert claims.claim(session, me(), machine.targets, TOOLCHAIN).job_id == job_id


def test_a_running_job_without_a_heartbeat_is_free(sessions, submit, machine, change):
    job_id = submit()
    with writing(sessions) as session:
        lease.claim_one(session, job_id, "another-host:1:1")
    change("jobs", "heartbeat_at = NULL", job_id)
    with writing(sessions) as session:
        assert claims.claim(session, me(), machine.targets, TOOLCHAIN).job_id == job_id


@pytest.mark.parametrize("values", OF_A_JOB + OF_A_RUN)
def test_a_damaged_job_fails_and_the_next_one_is_claimed(
    sessions, submit, machine, change, caplog, values
):
    bad, good = submit(), submit(OTHER)
    with writing(sessions) as session:
        lease.claim_one(session, bad, "another-host:1:1")
    change("jobs", values, bad)
    with (
        writing(sessions) as session,
        caplog.at_level(logging.ERROR, "tilewise.service.jobs.lease"),
    ):
        assert claims.claim(session, me(), machine.targets, TOOLCHAIN).job_id == good
    with reading(sessions) as session:
        row = session.get_one(models.Job, bad)
        assert (row.state, row.owner, row.complete) == ("failed", None, False)
        assert 0 <= row.elapsed_s < 60
        assert row.error.startswith("its row in the database is damaged: " + values.split()[0])
    assert caplog.text.count(f"job {bad} fails: its row") == 1


def test_the_death_of_a_worker_whose_job_is_damaged_fails_the_job(sessions, submit, change):
    job_id = submit()
    with writing(sessions) as session:
        held = lease.claim_one(session, job_id, me())
    change("jobs", "crashes = 'some', elapsed_s = '?'", job_id)
    with writing(sessions) as session:
        lease.crash(session, held, "signal SIGSEGV")
    with reading(sessions) as session:
        row = session.get_one(models.Job, job_id)
        assert (row.state, row.complete) == ("failed", False)
        assert "damaged: crashes is 'some', not of type int" in row.error


@pytest.mark.parametrize(
    ("table", "values", "says"),
    [
        ("problems", "canonical = 'gemm:x'", "does not have the problem's key"),
        ("jobs", "trials = 0", "trials=0"),
        ("jobs", "sampler = 'luck'", "sampler='luck'"),
    ],
)
def test_a_job_that_cannot_be_run_fails_with_the_reason(
    sessions, submit, run, change, table, values, says
):
    job_id = submit()
    change(table, values, job_id)
    assert run(job_id).state == "failed"
    with reading(sessions) as session:
        assert says in queue.get(session, job_id).error


def test_times_of_the_future_and_of_no_zone_are_read(sessions, submit, change):
    job_id = submit()
    change("jobs", "created_at = '2999-01-01 00:00:00'", job_id)
    with reading(sessions) as session:
        made = queue.get(session, job_id).created_at
    assert made.year == 2999 and made.utcoffset() == timedelta(0)
