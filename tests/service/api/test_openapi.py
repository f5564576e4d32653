import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import make_url

from tests.service.api.test_http_errors import assert_problem
from tests.service.conftest import PROBLEM

JSON, PROBLEM_JSON = "application/json", "application/problem+json"
MIB = 1024**2


@pytest.fixture
def operations(client):
    document = client.get("/openapi.json").json()
    return {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_every_error_is_described_as_a_problem_document(operations):
    for operation in operations.values():
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                (media_type,) = answer["content"]
                assert media_type == PROBLEM_JSON
                reference = answer["content"][media_type]["schema"]["$ref"]
                assert reference == "#/components/schemas/ProblemDetails"


def test_each_operation_has_the_errors_that_it_can_give(operations):
    for (_, path), operation in operations.items():
        statuses = set(operation["responses"])
        takes_input = "requestBody" in operation or operation.get("parameters")
        assert ("422" in statuses) == bool(takes_input), path
        assert ("413" in statuses) == ("requestBody" in operation), path
        assert ("503" in statuses) == (path != "/healthz"), path
        assert "500" in statuses, path


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/jobs", "GET, HEAD, POST"),
        ("PATCH", "/v1/jobs/3", "DELETE, GET, HEAD"),
        ("POST", "/v1/jobs/3/trials", "GET, HEAD"),
        ("DELETE", "/v1/schedules/lookup", "POST"),
        ("POST", "/openapi.json", "GET, HEAD"),
    ],
)
def test_allow_names_every_method_of_the_path(client, method, path, allowed):
    answer = client.request(method, path)
    assert_problem(answer, 405)
    assert answer.headers["Allow"] == allowed


@pytest.mark.parametrize(("free_mib", "status"), [(15, 503), (16, 200)])
def test_a_full_disk_is_not_ready(client, url, monkeypatch, free_mib, status):
    asked = []

    def disk_usage(folder):
        asked.append(folder)
        return SimpleNamespace(free=free_mib * MIB)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    answer = client.get("/readyz")
    assert answer.status_code == status
    assert asked == [Path(make_url(url).database or "").parent]
    if status == 503:
        detail = assert_problem(answer, 503)["detail"]
        assert "is on a full disk: 15.0 MiB are free and 16 are needed; free some space" in detail
    assert client.get("/healthz").status_code == 200
    assert client.get("/v1/schedules", params={"problem": PROBLEM}).status_code == 404
