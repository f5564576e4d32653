import threading
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from tests.service import fakes
from tests.service.conftest import PROBLEM
from tilewise.service.db import writing
from tilewise.service.jobs import lease, queue
from tilewise.version import VERSION


def post(client, **body):
    return client.post("/v1/jobs", json={"problem": PROBLEM, "trials": 4, **body})


def test_a_new_job_is_accepted_with_its_location(client):
    answer = post(client)
    assert answer.status_code == 202
    job = answer.json()
    assert answer.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert job["state"] == "queued"
    assert job["trials"] == {"asked": 4, "timed": 0, "pruned": 0, "failed": 0}
    assert job["best"] is None and job["started"] is None


def test_the_same_work_is_joined_however_it_is_spelled(client, machine):
    first = post(client).json()["id"]
    as_object = {"op": "matmul", "dtype": "f32", "k": 32, "n": 48, "m": 64, "batch": 1}
    assert post(client, problem=as_object, target=machine.target, seed=9).json()["id"] == first
    assert post(client, problem=PROBLEM + ",bias").json()["id"] != first


def test_a_job_that_waits_takes_the_larger_spread_and_runs_alone_without_a_driver(client, run):
    job = post(client, spread=3).json()
    assert (job["spread"], job["helpers"]) == (3, 0)
    assert post(client, spread=8).json()["spread"] == 8
    assert post(client).json()["spread"] == 8
    assert run(job["id"]).state == "done"
    assert client.get(f"/v1/jobs/{job['id']}").json()["helpers"] == 0


def test_a_job_shows_its_progress_and_its_result(client, run):
    job_id = post(client).json()["id"]
    seen = []
    run(job_id, on_event=lambda _: seen.append(client.get(f"/v1/jobs/{job_id}").json()))

    during, after = seen[1], client.get(f"/v1/jobs/{job_id}").json()
    assert during["state"] == "running"
    assert during["trials"]["timed"] == 2
    assert during["best"]["gflops"] == 11.0 and during["best"]["peak_fraction"] is None
    assert after["state"] == "done" and after["complete"] is True
    assert after["best"]["gflops"] == 13.0 and after["best"]["peak_fraction"] == 0.13
    assert after["elapsed_s"] > 0
    assert after["created"] <= after["started"] <= after["finished"]


def test_a_job_that_waits_takes_the_larger_budget(client):
    asked = [post(client, trials=count).json()["trials"]["asked"] for count in (6, 3, 8)]
    assert asked == [6, 6, 8]


def test_a_stored_schedule_answers_an_equal_or_smaller_request(client, tuned):
    answer = post(client, trials=3)
    assert answer.status_code == 200
    assert answer.json()["best"]["gflops"] == 13.0
    assert post(client, trials=5).status_code == 202


def test_a_schedule_without_peers_does_not_answer_who_asks_for_them(client, tuned, run):
    wanted = post(client, peers=True)
    assert wanted.status_code == 202
    run(wanted.json()["id"])
    assert post(client, peers=True).json()["peers"]["openblas"]["gflops"] == 97.0


def test_a_schedule_of_another_toolchain_does_not_answer(client_factory, tuned):
    assert post(client_factory(toolchain="a newer one")).status_code == 202


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


def test_a_job_that_has_ended_cannot_be_cancelled(client, tuned):
    answer = client.delete(f"/v1/jobs/{tuned}")
    assert answer.status_code == 409
    assert answer.json()["detail"] == f"job {tuned} is done and cannot be cancelled"


def test_jobs_are_listed_newest_first_by_page(client, sessions, submit):
    made = [submit(f"{PROBLEM},batch={n}") for n in range(2, 7)]
    with writing(sessions) as session:
        lease.claim_one(session, made[0], "elsewhere:1:1")
    listed, path = [], "/v1/jobs?limit=2"
    while path:
        page = client.get(path).json()
        listed += [job["id"] for job in page["jobs"]]
        path = page["next"]
    assert listed == made[::-1]
    assert [j["id"] for j in client.get("/v1/jobs?state=running").json()["jobs"]] == made[:1]


def test_a_failed_trial_shows_how_it_failed(client, submit, run):
    job_id = submit()
    run(job_id, tuner=fakes.fruitless_tune)
    (trial,) = client.get(f"/v1/jobs/{job_id}/trials?state=failed").json()["trials"]
    assert (trial["failure"], trial["message"]) == ("crash", "signal 11")
    assert trial["gflops"] is None and trial["max_error"] is None


def test_a_target_of_several_threads_is_a_job_of_its_own(client, machine):
    most = machine.targets[-1]
    first = client.post("/v1/jobs", json={"problem": PROBLEM, "target": "host"})
    other = client.post("/v1/jobs", json={"problem": PROBLEM, "target": most})
    assert other.status_code == 202 and other.json()["target"] == most
    assert (first.headers["Location"] == other.headers["Location"]) == (machine.cores == 1)
    more = machine.targets[0].replace("threads=1", f"threads={machine.cores + 1}")
    refused = client.post("/v1/jobs", json={"problem": PROBLEM, "target": more})
    assert refused.status_code == 422 and "give threads=1 to" in refused.json()["detail"]


def test_status_and_documentation(client, machine):
    assert client.get("/healthz").json() == {"status": "ok", "version": VERSION}
    parts = ("schema", "room", "database", "workers")
    assert client.get("/readyz").json() == {"status": "ok", "checks": dict.fromkeys(parts, "ok")}
    assert client.get("/v1/targets").json() == {"targets": [], "workers": []}  # no workers
    assert client.get("/docs").status_code == 200
    assert "/v1/jobs/{job_id}" in client.get("/openapi.json").json()["paths"]


def test_the_pages_of_jobs_keep_their_filter(client, submit):
    """Each second job is called off, so that a page of all jobs would show others."""
    made = [submit(f"{PROBLEM},batch={n}") for n in range(2, 8)]
    for job_id in made[::2]:
        client.delete(f"/v1/jobs/{job_id}")
    listed, path = [], "/v1/jobs?limit=1&state=cancelled"
    while path:
        page = client.get(path).json()
        listed += [job["id"] for job in page["jobs"]]
        path = page["next"]
    assert listed == made[::2][::-1]


def test_a_problem_must_fit_in_the_memory_of_the_machine_that_times_it(client_factory, machine):
    small = replace(machine, memory_bytes=4096)
    refused = client_factory(on=small).post("/v1/jobs", json={"problem": PROBLEM})
    assert refused.status_code == 422 and "this machine has" in refused.json()["detail"]


@dataclass(frozen=True)
class Workers:
    is_alive: bool


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_service_without_its_workers_is_not_ready(client, machine, is_alive):
    state = client.app.state
    state.services = replace(state.services, pool=Workers(is_alive))
    ready = client.get("/readyz")
    assert ready.status_code == (200 if is_alive else 503)
    assert is_alive or "the workers have stopped" in ready.json()["detail"]
