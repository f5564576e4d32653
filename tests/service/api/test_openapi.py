import pytest

from tests.service.api.test_http_errors import assert_problem

JSON, PROBLEM_JSON = "application/json", "application/problem+json"


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
