import json
from pathlib import Path

from tests.service.api.answers import assert_problem

DOCUMENT = Path(__file__).parents[3] / "docs" / "openapi.json"


def test_the_document_is_committed(client, request):
    text = json.dumps(client.get("/openapi.json").json(), indent=1, ensure_ascii=False) + "\n"
    if request.config.getoption("--update-golden"):
        DOCUMENT.write_text(text)
    assert DOCUMENT.read_text() == text, "if this change is meant, run with --update-golden"
    schemas = json.loads(text)["components"]["schemas"]
    assert all(schemas[f"{name}Request"]["examples"] for name in ("Job", "Lookup", "Token"))


def test_each_operation_describes_the_errors_that_it_can_give(client):
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for operation in methods.values():
            statuses = set(operation["responses"])
            takes_input = "requestBody" in operation or operation.get("parameters")
            assert ("422" in statuses) == bool(takes_input), path
            assert ("413" in statuses) == ("requestBody" in operation), path
            assert ("503" in statuses) == (path != "/healthz"), path
            assert "500" in statuses, path
            for status in statuses:
                if int(status) >= 400:
                    schema = {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}
                    content = operation["responses"][status]["content"]
                    assert content == {"application/problem+json": schema}, path


def test_allow_names_every_method_of_the_path(client):
    for method, path, allowed in (
        ("PUT", "/v1/jobs", "GET, HEAD, POST"),
        ("PATCH", "/v1/jobs/3", "DELETE, GET, HEAD"),
        ("POST", "/v1/jobs/3/trials", "GET, HEAD"),
        ("DELETE", "/v1/schedules/lookup", "POST"),
        ("POST", "/openapi.json", "GET, HEAD"),
    ):
        answer = client.request(method, path)
        assert_problem(answer, 405)
        assert answer.headers["Allow"] == allowed
