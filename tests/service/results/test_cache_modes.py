import pytest

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tilewise.kernels.problem import parse_problem
from tilewise.service.api.documents import trial_json
from tilewise.service.db import models, reading
from tilewise.service.jobs import queue
from tilewise.service.results.schedules import find_schedule


def test_a_cold_request_is_not_answered_by_a_hot_result(sessions, submit, run, tuned):
    cold = submit(cache="cold")
    assert cold != tuned
    with reading(sessions) as session:
        assert queue.get(session, cold).cache == "cold"
        assert queue.trials_page(session, cold) == [], "hot times are no cold ones"
    given = []

    def tune(problem, target, request, store, **hooks):
        given.append(request.cache)
        return fakes.tune(problem, target, request, store, **hooks)

    assert run(cold, tuner=tune).state == "done"
    assert given == ["cold"]
    with pytest.raises(AssertionError, match="a stored schedule answers this"):
        submit(cache="cold")


def test_both_results_are_kept_and_told_apart(sessions, machine, submit, run, tuned):
    run(submit(cache="cold"), tuner=lambda *a, **k: fakes.tune(*a, **k, peak_of=50.0))
    with reading(sessions) as session:
        rows = {
            cache: find_schedule(session, parse_problem(PROBLEM), machine.target, TOOLCHAIN, cache)
            for cache in ("hot", "cold", None)
        }
        assert rows["hot"].id == rows[None].id != rows["cold"].id
        assert (rows["hot"].cache, rows["cold"].cache) == ("hot", "cold")
        assert rows["cold"].peak_gflops == 50.0
        assert {trial_json(t)["cache"] for t in session.query(models.Trial)} == {"hot", "cold"}


def test_a_waiting_job_is_joined_only_in_its_mode(submit):
    hot = submit()
    assert submit(cache="cold") != hot == submit()


def test_the_mode_over_http(client, submit, run):
    body = {"problem": PROBLEM, "trials": 4, "cache": "cold"}
    job = client.post("/v1/jobs", json=body).json()
    assert job["cache"] == "cold"
    run(job["id"])
    assert client.post("/v1/jobs", json=body).json()["cache"] == "cold"
    assert client.post("/v1/jobs", json=body | {"cache": "hot"}).status_code == 202
    query = {"problem": PROBLEM}
    assert client.get("/v1/schedules", params=query).json()["cache"] == "cold"
    assert client.get("/v1/schedules", params=query | {"cache": "hot"}).status_code == 404
    kernel = f"/v1/schedules/{job['key']}/kernel"
    for mode, status in (("cold", 200), ("hot", 404), ("lukewarm", 422)):
        assert client.get(kernel, params={"cache": mode}).status_code == status
    trials = client.get(f"/v1/jobs/{job['id']}/trials").json()["trials"]
    assert {trial["cache"] for trial in trials} == {"cold"}
    refused = client.post("/v1/jobs", json=body | {"cache": "lukewarm"})
    assert refused.status_code == 422 and refused.json()["errors"][0]["field"] == "cache"
