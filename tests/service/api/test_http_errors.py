import json

import pytest

from tests.service.conftest import PROBLEM
from tilewise.service.db import models, reading

SQUARE = "matmul:m=8,n=8,k=8,dtype=f32"
NESTED = "[" * 100_000


@pytest.mark.parametrize(
    ("problem", "field", "message"),
    [
        ("fft:n=8,dtype=f32", "op", "unknown operation 'fft'"),
        ("matmul:m=8,n=8,k=8,q=1,dtype=f32", "q", "unknown key 'q'"),
        ("matmul:m=8,n=8,dtype=f32", "k", "k is missing"),
        ("matmul:m=0,n=8,k=8,dtype=f32", "m", "out of range"),
        ("matmul:m=2000000000,n=2000000000,k=8,dtype=f32", "problem", "this machine has"),
        ({"op": "matmul", "m": "8", "n": 8, "k": 8, "dtype": "f32"}, "m", "not a whole number"),
        (7, "problem", "a problem string, or its JSON object"),
    ],
)
def test_a_bad_problem_names_its_key(client, sessions, problem, field, message):
    answer = client.post("/v1/jobs", json={"problem": problem})
    assert_refused(answer, field, message)
    assert_nothing_stored(sessions)


@pytest.mark.parametrize(
    ("extra", "field", "message"),
    [
        ({"target": "gpu"}, "target", "neither 'host' nor"),
        ({"target": "cpu:neoverse-v2"}, "target", "this machine is cpu:"),
        ({"trials": 0}, "trials", "out of range"),
        ({"trials": "many"}, "trials", "valid integer"),
        ({"seconds": -1}, "seconds", "out of range"),
        ({"sampler": "magic"}, "sampler", "not one of"),
        ({"sampler": "os:system"}, "sampler", "give one of surrogate"),
        ({"spread": 0}, "spread", "greater than or equal to 1"),
        ({"wait": "yes"}, "wait", "valid boolean"),
        ({"trails": 64}, "trails", "unknown field"),
    ],
)
def test_a_bad_field_is_named_as_it_was_written(client, sessions, extra, field, message):
    assert_refused(client.post("/v1/jobs", json={"problem": SQUARE, **extra}), field, message)
    assert_nothing_stored(sessions)


def test_a_problem_that_no_tuning_spec_covers_is_refused(client, sessions):
    pytest.importorskip("iree.runtime", reason="without IREE's runtime the target is refused")
    problem = "conv2d:n=1,h=8,w=8,ci=8,co=8,kh=3,kw=3,dtype=f32"
    answer = client.post("/v1/jobs", json={"problem": problem, "target": "iree:host"})
    assert_refused(answer, "n", "cannot be tuned by a spec")
    assert_nothing_stored(sessions)


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        (b"", "body", "is missing"),
        (b"{", "body", "not JSON"),
        (b'{"problem": }', "body", "not JSON: Expecting value at character 12"),
        (b"[]", "body", "valid dictionary"),
        (b'{"problem": "\xff\xff"}', "body", "parsing the body"),
        (NESTED.encode(), "body", "parsing the body"),
        (b"{}", "problem", "is missing"),
        (b'{"problem": "%s", "seconds": NaN}' % SQUARE.encode(), "seconds", "out of range"),
    ],
)
def test_a_malformed_body_is_refused(client, sessions, body, field, message):
    headers = {"Content-Type": "application/json"}
    assert_refused(client.post("/v1/jobs", content=body, headers=headers), field, message)
    assert_nothing_stored(sessions)


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded", "text/plain"])
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/schedules/lookup", "/v1/suite-reports"])
def test_json_under_another_content_type_is_refused_by_the_headers_name(client, path, kind):
    headers = {} if kind is None else {"Content-Type": kind}
    answer = client.post(path, content=json.dumps({"problem": SQUARE}), headers=headers)
    assert_refused(answer, "Content-Type", kind or "no content type")
    assert "Content-Type: application/json" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/schedules", "problem"),
        ("/v1/schedules?problem=matmul:m=0,n=1,k=1,dtype=f32", "m"),
        ("/v1/jobs?limit=0", "limit"),
    ],
)
def test_a_bad_parameter_is_named(client, path, field):
    assert_refused(client.get(path), field, "")


@pytest.mark.parametrize(
    "path", ["/v1/jobs/12", "/v1/jobs/12/trials", "/v2", "/v1/schedules/x/script"]
)
def test_what_does_not_exist_is_a_problem_document(client, path):
    details = assert_problem(client.get(path), 404)
    assert details["instance"] == path and "errors" not in details


def test_a_fault_of_ours_shows_no_traceback(client_factory, monkeypatch):
    def fault(*_args, **_kwargs):
        raise RuntimeError("secret")

    monkeypatch.setattr("tilewise.service.jobs.queue.list_jobs", fault)
    answer = client_factory(raises=False).get("/v1/jobs")
    assert_problem(answer, 500)
    assert "secret" not in answer.text and "Traceback" not in answer.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["X-Request-ID"]


def test_a_read_only_database_is_read_and_not_written(client_factory, url, tuned, submit):
    queued = submit(SQUARE)
    file = url.removeprefix("sqlite:///")
    client = client_factory(f"sqlite:///file:{file}?mode=ro&uri=true")
    assert client.get("/v1/schedules", params={"problem": PROBLEM}).status_code == 200
    for answer in (
        client.post("/v1/jobs", json={"problem": SQUARE + ",bias"}),
        client.delete(f"/v1/jobs/{queued}"),
        client.get("/readyz"),
    ):
        assert "is read-only; make the file" in assert_problem(answer, 503)["detail"]
        assert int(answer.headers["Retry-After"]) >= 1
    assert client.get("/healthz").status_code == 200


def assert_problem(answer, status):
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    details = answer.json()
    assert details["status"] == status and details["title"] and details["detail"]
    assert details["type"].startswith("urn:tilewise:")
    return details


def assert_refused(answer, field, message):
    details = assert_problem(answer, 422)
    assert [error["field"] for error in details["errors"]] == [field], json.dumps(details)
    assert message in details["errors"][0]["message"]


def assert_nothing_stored(sessions):
    with reading(sessions) as session:
        assert session.query(models.Problem).count() == 0
        assert session.query(models.Job).count() == 0
