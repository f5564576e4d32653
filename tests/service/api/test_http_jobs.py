import hashlib
import json
import threading
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from tests.service import fakes
from tests.service.api.answers import assert_problem, assert_refused, pages, rows
from tests.service.conftest import OTHER, PROBLEM, TOOLCHAIN
from tilewise.kernels.problem import parse_problem
from tilewise.search.records import TuneRequest
from tilewise.service.db import models, writing
from tilewise.service.db.base import now
from tilewise.service.jobs import idempotency, lease, queue
from tilewise.version import VERSION

# `PROBLEM`, spelled differently.
AS_OBJECT = {"op": "matmul", "dtype": "f32", "k": 32, "n": 48, "m": 64, "batch": 1}


def post(client, key=None, **body):
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 4, **body}, headers=headers)


def test_a_job_is_accepted_with_its_location_and_joined_by_the_same_work(client, machine):
    answer = post(client)
    assert answer.status_code == 202
    job = answer.json()
    assert answer.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert job["state"] == "queued"
    assert job["trials"] == {"asked": 4, "timed": 0, "pruned": 0, "failed": 0}
    assert job["best"] is None and job["started"] is None
    same = post(client, problem=AS_OBJECT, target=machine.target, seed=9)
    assert same.json()["id"] == job["id"] != post(client, problem=PROBLEM + ",bias").json()["id"]


def test_a_job_that_waits_takes_the_larger_budget_and_spread(client):
    asked = [post(client, trials=count).json()["trials"]["asked"] for count in (6, 3, 8)]
    assert asked == [6, 6, 8]
    assert [post(client, spread=spread).json()["spread"] for spread in (3, 8, 1)] == [3, 8, 8]


def test_a_job_shows_its_progress_and_its_result(client, run):
    job_id = post(client, spread=3).json()["id"]
    seen = []
    run(job_id, on_event=lambda _: seen.append(client.get(f"/v1/jobs/{job_id}").json()))

    during, after = seen[1], client.get(f"/v1/jobs/{job_id}").json()
    assert during["state"] == "running"
    assert during["trials"]["timed"] == 2
    assert during["best"]["gflops"] == 11.0 and during["best"]["peak_fraction"] is None
    assert after["state"] == "done" and after["complete"] is True
    assert after["best"]["gflops"] == 13.0 and after["best"]["peak_fraction"] == 0.13
    assert after["elapsed_s"] > 0 and after["helpers"] == 0, "alone, without a driver"
    assert after["created"] <= after["started"] <= after["finished"]
    refused = client.delete(f"/v1/jobs/{job_id}")
    assert_problem(refused, 409, f"job {job_id} is done and cannot be cancelled")


def test_a_stored_schedule_answers_what_asks_for_no_more(client, client_factory, tuned, run):
    answer = post(client, trials=3)
    assert answer.status_code == 200
    assert answer.json()["best"]["gflops"] == 13.0
    assert post(client, trials=5).status_code == 202
    assert post(client_factory(toolchain="a newer one")).status_code == 202
    wanted = post(client, peers=True)
    assert wanted.status_code == 202
    run(wanted.json()["id"])
    assert post(client, peers=True).json()["peers"]["openblas"]["gflops"] == 97.0


def test_wait_answers_when_the_job_has_ended(client, sessions):
    def cancel_soon():
        while not client.get("/v1/jobs").json()["jobs"]:
            pass
        client.delete("/v1/jobs/1")

    other = threading.Thread(target=cancel_soon)
    other.start()
    answer = post(client, wait=True)
    other.join()
    assert answer.status_code == 202
    assert answer.json()["state"] == "cancelled"


def test_a_job_that_is_cancelled_while_it_runs_shows_what_it_has_spent(client, sessions):
    job_id = post(client).json()["id"]
    with writing(sessions) as session:
        lease.claim_one(session, job_id, "elsewhere:1:1")
        queue.get(session, job_id).claimed_at -= timedelta(seconds=30)
    for _ in range(2):
        job = client.delete(f"/v1/jobs/{job_id}").json()
        assert 30 <= job["elapsed_s"] < 50 and job["complete"] is False
    assert client.get(f"/v1/jobs/{job_id}").json() == job


def test_jobs_are_listed_newest_first_by_page(client, sessions, submit):
    """Each second job is cancelled, so a page that forgot its filter would show others."""
    made = [submit(f"{PROBLEM},batch={n}") for n in range(2, 8)]
    with writing(sessions) as session:
        lease.claim_one(session, made[1], "elsewhere:1:1")
    for job_id in made[::2]:
        client.delete(f"/v1/jobs/{job_id}")
    for query, wanted in (
        ({"limit": 2}, made),
        ({"limit": 1, "state": "cancelled"}, made[::2]),
        ({"state": "running"}, made[1:2]),
    ):
        assert [job["id"] for job in rows(client, "/v1/jobs", "jobs", **query)] == wanted[::-1]


def test_a_target_of_several_threads_is_a_job_of_its_own(client, machine):
    most = machine.targets[-1]
    first, other = (post(client, target=target) for target in ("host", most))
    assert other.status_code == 202 and other.json()["target"] == most
    assert (first.headers["Location"] == other.headers["Location"]) == (machine.cores == 1)
    more = machine.targets[0].replace("threads=1", f"threads={machine.cores + 1}")
    assert_problem(post(client, target=more), 422, "give threads=1 to")


def test_a_service_is_ready_as_long_as_its_workers_live(client):
    assert client.get("/healthz").json() == {"status": "ok", "version": VERSION}
    parts = ("schema", "room", "database", "workers")
    assert client.get("/readyz").json() == {"status": "ok", "checks": dict.fromkeys(parts, "ok")}
    assert client.get("/v1/targets").json() == {"targets": [], "workers": []}  # no workers
    state = client.app.state
    for is_alive, status in ((True, 200), (False, 503)):
        state.services = replace(state.services, pool=SimpleNamespace(is_alive=is_alive))
        ready = client.get("/readyz")
        assert ready.status_code == status
    assert "the workers have stopped" in ready.json()["detail"]


def test_the_same_request_names_the_same_job_also_when_it_has_ended(client):
    first = post(client, "k-1")
    assert first.status_code == 202
    job = first.json()["id"]
    assert client.delete(f"/v1/jobs/{job}").status_code == 200
    again = post(client, "k-1")
    assert (again.status_code, again.json()["id"]) == (202, job)
    assert again.headers["Location"] == f"/v1/jobs/{job}"
    assert again.json()["state"] == "cancelled", "as it is now"
    assert post(client, "k-2").json()["id"] != job
    assert post(client, None).json()["id"] != job
    spelled = post(client, "k-1", problem=AS_OBJECT, seed=0)
    assert (spelled.status_code, spelled.json()["id"]) == (202, job)


def test_a_request_that_is_not_spread_has_the_digest_that_it_always_had():
    problem, target = parse_problem(PROBLEM), "cpu:znver5,threads=1"
    told = [problem.canonical, target, {"trials": 4, "seconds": None, "seed": 0, "cache": "hot",
                                        "sampler": "surrogate", "peers": False}]  # fmt: skip
    always = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    assert idempotency.digest_of(problem, target, TuneRequest(trials=4)) == always
    assert idempotency.digest_of(problem, target, TuneRequest(trials=4, spread=2)) != always


def test_a_key_with_another_request_is_refused_and_what_is_no_key(client):
    post(client, "k")
    jobs = client.get("/v1/jobs").json()["jobs"]
    for change in ({"trials": 5}, {"problem": OTHER}, {"seed": 1}, {"spread": 2}):
        assert_refused(post(client, "k", **change), "Idempotency-Key")
    for key in ("", " ", "a b", "é", "x" * 256):
        (error,) = assert_problem(post(client, key.encode()), 422)["errors"]
        assert "idempotency-key" in error["field"].lower()
    assert client.get("/v1/jobs").json()["jobs"] == jobs, "and nothing is queued"


def test_a_key_is_forgotten_after_a_day(client, sessions):
    first = post(client, "k").json()["id"]
    with writing(sessions) as session:
        row = session.query(models.IdempotencyKey).one()
        row.created_at = now() - idempotency.KEPT - timedelta(seconds=1)
    client.delete(f"/v1/jobs/{first}")
    assert post(client, "k", trials=5).json()["id"] != first
    with sessions() as session:
        session.query(models.IdempotencyKey).one()  # the old row is gone


def test_each_token_has_keys_of_its_own(submit, sessions):
    number = submit()
    with writing(sessions) as session:
        job = session.get_one(models.Job, number)
        assert idempotency.remember(session, idempotency.RequestKey("token:1", "k", "0" * 64), job)
        other = idempotency.RequestKey("token:2", "k", "1" * 64)
        assert idempotency.answered(session, other) is None
        assert idempotency.remember(session, other, None)


def failing_tune(problem, target, request, store, **options):
    store.add(fakes.failed_trial(0))
    store.add(fakes.replace(fakes.trial(1), state="pruned"))
    return fakes.tune(problem, target, request, store, **options)


@pytest.fixture
def two_problems(submit, run):
    run(submit(trials=4), tuner=failing_tune)
    run(submit(OTHER, trials=6))


def test_trials_of_all_jobs_are_paged(client, machine, two_problems):
    found = pages(client, "/v1/trials", "trials", limit=3)
    assert [len(page) for page in found] == [3, 3, 3, 1]
    listed = [trial for page in found for trial in page]
    assert [t["problem"] for t in listed] == [PROBLEM] * 4 + [OTHER] * 6
    assert [t["number"] for t in listed] == [*range(4), *range(6)]
    assert {(t["target"], t["toolchain"]) for t in listed} == {(machine.target, TOOLCHAIN)}
    assert [t["job"] for t in listed] == [1] * 4 + [2] * 6
    assert listed[2]["samples_us"] == pytest.approx([1e5, 1e6 / 3, 15.0])


def test_a_trial_of_one_sample_has_no_interval(client, sessions, submit, run):
    def tune(problem, target, request, store, **options):
        alone = fakes.trial(0)
        speed = alone.measurement.gflops
        measurement = fakes.replace(alone.measurement, interval=(speed, speed))
        store.add(fakes.replace(alone, samples=(0.1,), measurement=measurement))
        return fakes.tune(problem, target, request, store, **options)

    run(submit(trials=3), tuner=tune)
    alone, *others = client.get("/v1/trials").json()["trials"]
    assert alone["interval"] is None and alone["gflops"] > 0
    assert all(low < high for low, high in (trial["interval"] for trial in others))
    assert client.get("/jobs/1").text.count("one sample") == 1


def test_trials_are_filtered_on_every_page(client, two_problems):
    query = {"problem": "matmul: k=32, n=48, m=64, dtype=f32", "target": "host", "limit": 1}
    for state, numbers in (("timed", [2, 3]), ("pruned", [1]), ("failed", [0])):
        found = pages(client, "/v1/trials", "trials", state=state, **query)
        assert [[(t["problem"], t["number"]) for t in page] for page in found] == [
            [(PROBLEM, n)] for n in numbers
        ]
        of_job = rows(client, "/v1/jobs/1/trials", "trials", state=state, limit=1)
        assert [t["number"] for t in of_job] == numbers
    (failed,) = of_job
    assert (failed["failure"], failed["message"]) == ("crash", "signal 11")
    assert failed["gflops"] is None and failed["max_error"] is None
    assert pages(client, "/v1/trials", "trials", target="cpu:neoverse-v2") == [[]]


def test_trials_that_a_job_took_over_are_shown_once(client, submit, run, tuned):
    run(submit(trials=7))
    run(submit(trials=9))
    listed = rows(client, "/v1/trials", "trials", problem=PROBLEM, limit=2)
    assert [(t["job"], t["number"]) for t in listed] == [
        *((1, n) for n in range(4)), *((2, n) for n in range(4, 7)), (3, 7), (3, 8)
    ]  # fmt: skip
