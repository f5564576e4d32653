import hashlib
import json
from datetime import timedelta

import pytest

from tests.service.conftest import PROBLEM
from tilewise.kernels.problem import parse_problem
from tilewise.search.records import TuneRequest
from tilewise.service.db import models, writing
from tilewise.service.db.base import now
from tilewise.service.jobs import idempotency

OTHER = "matmul:m=8,n=8,k=8,dtype=f32"


def post(client, key, problem=PROBLEM, **body):
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post("/v1/jobs", json={"problem": problem, "trials": 4, **body}, headers=headers)


def keys(sessions):
    with sessions() as session:
        return session.query(models.IdempotencyKey).count()


def test_the_same_request_names_the_same_job_also_when_it_has_ended(client, sessions):
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


def test_a_request_is_the_same_however_it_is_spelled(client):
    first = post(client, "k").json()["id"]
    as_object = {"op": "matmul", "dtype": "f32", "k": 32, "n": 48, "m": 64, "batch": 1}
    again = post(client, "k", problem=as_object, seed=0)
    assert (again.status_code, again.json()["id"]) == (202, first)


def test_a_request_that_is_not_spread_has_the_digest_that_it_always_had():
    problem, target = parse_problem(PROBLEM), "cpu:znver5,threads=1"
    told = [problem.canonical, target, {
        "trials": 4, "seconds": None, "seed": 0, "sampler": "surrogate", "peers": False,
        "cache": "hot"}]  # fmt: skip
    always = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    assert idempotency.digest_of(problem, target, TuneRequest(trials=4)) == always
    assert idempotency.digest_of(problem, target, TuneRequest(trials=4, spread=2)) != always


@pytest.mark.parametrize("change", [{"trials": 5}, {"problem": OTHER}, {"seed": 1}, {"spread": 2}])
def test_a_key_with_another_request_is_refused(client, change):
    post(client, "k")
    jobs = client.get("/v1/jobs").json()["jobs"]
    answer = post(client, "k", **change)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "Idempotency-Key"
    assert client.get("/v1/jobs").json()["jobs"] == jobs, "and nothing is queued"


@pytest.mark.parametrize("key", ["", " ", "a b", "é", "x" * 256])
def test_what_is_no_key(client, key):
    answer = post(client, key.encode())
    assert answer.status_code == 422
    assert "idempotency-key" in answer.json()["errors"][0]["field"].lower()


def test_a_key_is_forgotten_after_a_day(client, sessions):
    first = post(client, "k").json()["id"]
    with writing(sessions) as session:
        row = session.query(models.IdempotencyKey).one()
        row.created_at = now() - idempotency.KEPT - timedelta(seconds=1)
    client.delete(f"/v1/jobs/{first}")
    assert post(client, "k", trials=5).json()["id"] != first
    assert keys(sessions) == 1, "the old row is gone"


def test_each_token_has_keys_of_its_own(submit, sessions):
    number = submit()
    with writing(sessions) as session:
        job = session.get_one(models.Job, number)
        assert idempotency.remember(session, idempotency.RequestKey("token:1", "k", "0" * 64), job)
        other = idempotency.RequestKey("token:2", "k", "1" * 64)
        assert idempotency.answered(session, other) is None
        assert idempotency.remember(session, other, None)
