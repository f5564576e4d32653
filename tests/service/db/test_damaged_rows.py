import pytest
from sqlalchemy import text

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN, stored_best
from tilewise.service import faults
from tilewise.service.db import make_engine, models, reading, writing
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import claims, lease
from tilewise.service.jobs.trial_store import SqlTrialStore

OTHER = PROBLEM + ",bias"
OF_A_RUN = ["claimed_at = '{}'", "elapsed_s = 9e999", "trials = 9e999", "seconds = x'00'"]
OF_A_JOB = ["created_at = 'lately'", "heartbeat_at = 'never'", "seed = 'two'"]
OF_A_TRIAL = [
    "steps = 'garbage'", 'steps = \'{"step": "unroll"}\'', "params = '[1, 2]'",
    "created_at = '2026-13-01'", "samples = x'0102'", "gflops = 'fast'", "rejected = 'few'",
]  # fmt: skip


@pytest.fixture
def change(url):
    def make(table, values, row_id):
        with make_engine(url).begin() as connection:
            statement = text(f"UPDATE {table} SET {values} WHERE id = {row_id}")
            assert connection.execute(statement).rowcount == 1

    faults.tell_once.cache_clear()
    return make


def assert_failed(sessions, job_id, values):
    with reading(sessions) as session:
        row = session.get_one(models.Job, job_id)
        assert (row.state, row.owner, row.complete) == ("failed", None, False)
        assert 0 <= row.elapsed_s < 60
        assert row.error.startswith("its row in the database is damaged: " + values.split()[0])


def pages(client, path, name):
    found, unreadable = [], 0
    while path:
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found, unreadable, path = found + page[name], unreadable + page["unreadable"], page["next"]
    return found, unreadable


@pytest.mark.parametrize(
    "values", ["created_at = 'lately'", "elapsed_s = 'long'", "trials = 9e999"]
)
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
    assert job["best"]["gflops"] == (12.0 if "samples" in values else 11.0)
    assert client.get(f"/v1/jobs/{job_id}").json() == job


@pytest.mark.parametrize("values", OF_A_JOB)
def test_a_damaged_job_is_not_joined_but_fails(client, sessions, submit, change, values):
    bad = submit()
    change("jobs", values, bad)
    answer = client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 4})
    assert answer.status_code == 202 and answer.json()["id"] != bad
    assert_failed(sessions, bad, values)


@pytest.mark.parametrize(
    "values", ["budget = 'all'", "gflops = 9e999", "steps = '?'", "created_at = ''", "peers = '[]'"]
)
def test_a_damaged_schedule_is_found_again(client, sessions, machine, tuned, run, change, values):
    change("schedules", values, 1)
    answer = client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 4})
    assert answer.status_code == 202
    assert client.get("/v1/jobs").json()["unreadable"] == 0
    assert run(answer.json()["id"]).state == "done"
    with reading(sessions) as session:
        row = stored_best(session, machine)
        assert (row.hash, row.budget) == (fakes.schedule(3).hash, 4)


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


@pytest.mark.parametrize("values", OF_A_JOB + OF_A_RUN)
def test_a_damaged_job_is_not_claimed(sessions, submit, machine, change, caplog, values):
    bad, good = submit(), submit(OTHER)
    with writing(sessions) as session:
        lease.claim_one(session, bad, "another-host:1:1")
    change("jobs", values, bad)
    with writing(sessions) as session:
        assert claims.claim(session, me(), machine.targets, TOOLCHAIN).job_id == good
    assert_failed(sessions, bad, values)
    assert caplog.text.count(f"job {bad} fails: its row") == 1
