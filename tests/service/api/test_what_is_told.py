import json
import time
from dataclasses import dataclass, replace

import pytest

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import detect
from tilewise.search.records import TuneRequest
from tilewise.search.store import MemoryStore
from tilewise.service.api.documents import result_json
from tilewise.service.db import reading
from tilewise.service.jobs.trial_store import SqlTrialStore
from tilewise.service.results import schedules, scripts
from tilewise.service.workers import job_run

KEY = parse_problem(PROBLEM).key


def told(sessions, machine):
    with reading(sessions) as session:
        row = schedules.find_schedule(session, parse_problem(PROBLEM), machine.target, TOOLCHAIN)
        return result_json(session, row, TOOLCHAIN), scripts.failed_proof(session, row, "cpu")


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


def test_a_proof_is_told_the_threads_of_the_target(submit, run, monkeypatch):
    monkeypatch.setattr(job_run, "resolve", lambda _: replace(detect(), threads=2))
    told = []

    def prove(problem, schedule, *, seed, seconds, threads):
        told.append(threads)
        return fakes.prove(problem, schedule, seed=seed)

    assert run(submit(), prover=prove).state == "done"
    assert set(told) == {2}


def test_seconds_that_passed_before_the_run_count(submit, run):
    given = []

    def tune(problem, target, request, store, **hooks):
        given.append(request.seconds)
        return fakes.tune(problem, target, request, store, **hooks)

    run(submit(seconds=1000), tuner=tune, began=time.monotonic() - 600)
    assert 0 < given[0] <= 400


def test_of_scripts_that_failed_the_latest_one_is_told_of(sessions, machine, submit, run):
    """Numbers that JSON has no text for are left out."""
    messages = iter(("first", "second", "third"))

    def prove(problem, schedule, *, seed, seconds, threads):
        proof = fakes.prove_wrong(problem, schedule, seed=seed, seconds=seconds, threads=threads)
        return replace(proof, gflops=None, message=next(messages))

    run(submit(), prover=prove)
    result, failed = told(sessions, machine)
    assert result["proof"]["message"] == failed.message == "third"
    assert result["proof"]["max_error"] is None
    json.dumps(result, allow_nan=False)


def test_a_peer_has_the_times_of_its_measurement(sessions, machine, submit, run):
    run(submit(peers=True))
    result, _ = told(sessions, machine)
    measured = fakes.measurement(97.0)
    assert result["peers"] == {
        "openblas": {
            "gflops": 97.0, "interval": list(measured.interval), "time_us": measured.time_us
        }
    }  # fmt: skip


def test_a_search_of_which_no_candidate_ran_teaches_nothing(sessions, submit):
    SqlTrialStore(sessions, submit(PROBLEM + ",bias")).add(fakes.failed_trial(0))
    submit(PROBLEM + ",batch=2")
    assert SqlTrialStore(sessions, submit()).earlier("matmul") == []


def test_a_store_in_memory_knows_what_failed_alone():
    store = MemoryStore()
    store.add(fakes.trial(0))
    store.add(replace(fakes.trial(1), state="pruned"))
    store.add(fakes.failed_trial(2))
    assert store.known_failures() == {fakes.schedule(2).hash}


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
    assert is_alive or "nothing takes jobs any more" in ready.json()["detail"]
