"""The OpenAPI document of the framework, completed with the errors of the API.

The framework describes its own answer to invalid requests, and every body as plain JSON. Ours
are problem documents, and some belong to every route.
"""

from http import HTTPStatus

from fastapi import FastAPI

from tilewise.schema.base import Json
from tilewise.service.api.access.gate import OPEN, RUNS
from tilewise.service.api.problem_details import MEDIA_TYPE
from tilewise.service.api.schemas import ProblemDetails

BEARER = "token"
PROBLEM = ProblemDetails.__name__
FRAMEWORK = ("HTTPValidationError", "ValidationError")
REFERENCE = {"schema": {"$ref": f"#/components/schemas/{PROBLEM}"}}
LIGHT = ("/healthz",)  # what answers from memory
OF_THE_GATE = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.MISDIRECTED_REQUEST,
    HTTPStatus.TOO_MANY_REQUESTS,
)
TELLS_WHEN = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)
RETRY_AFTER = {
    "description": "Seconds after which to retry",
    "schema": {"type": "integer", "minimum": 0},
}


class DescribedApp(FastAPI):
    """An application that describes its responses."""

    def openapi(self) -> Json:
        """Return the framework's document, corrected once."""
        if self.openapi_schema is None:
            self.openapi_schema = corrected(super().openapi())
        return self.openapi_schema


def corrected(document: Json) -> Json:
    """Correct the errors of all operations in the framework's document, in place."""
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _correct(path, operation)
    document["components"]["securitySchemes"] = {BEARER: {"type": "http", "scheme": "bearer"}}
    schemas = document["components"]["schemas"]
    for name in FRAMEWORK:
        schemas.pop(name, None)
    return document


def _correct(path: str, operation: Json) -> None:
    answers = operation["responses"]
    statuses = {HTTPStatus.INTERNAL_SERVER_ERROR}
    if path not in LIGHT:
        statuses.add(HTTPStatus.SERVICE_UNAVAILABLE)
    statuses.update((HTTPStatus.FORBIDDEN, HTTPStatus.MISDIRECTED_REQUEST))
    if path not in OPEN:
        statuses.update(OF_THE_GATE)
        operation["security"] = [{BEARER: []}] if path.startswith(RUNS) else [{}, {BEARER: []}]
    if "requestBody" in operation:
        statuses.add(HTTPStatus.REQUEST_TIMEOUT)
        statuses.add(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        statuses.add(HTTPStatus.UNPROCESSABLE_ENTITY)
    for status in statuses:
        answers.setdefault(str(status.value), {"description": status.phrase})
    for status, answer in answers.items():
        if int(status) >= HTTPStatus.BAD_REQUEST:
            answer["content"] = {MEDIA_TYPE: REFERENCE}
            answer["description"] = HTTPStatus(int(status)).phrase
        if int(status) in TELLS_WHEN:
            answer.setdefault("headers", {})["Retry-After"] = RETRY_AFTER
    operation["responses"] = dict(sorted(answers.items()))
