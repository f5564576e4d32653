"""Every error of the HTTP API as `application/problem+json` (RFC 9457)."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Match

from tilewise.kernels.errors import (
    ModuleError,
    PlaceError,
    ProblemError,
    ScheduleError,
    TargetError,
    UnsupportedError,
)
from tilewise.kernels.problem.parse import LONGEST_FIELD
from tilewise.kernels.quoting import quoted
from tilewise.search.errors import BudgetError
from tilewise.service.api.schemas import FieldError, ProblemDetails, UnfinishedView
from tilewise.service.errors import KeyReusedError, RefusedError, ServiceError, UnfinishedError

MEDIA_TYPE = "application/problem+json"
HTML = "text/html"
OF_PROGRAMS = ("/v1/", "/openapi.json", "/metrics", "/healthz", "/readyz")
"""Where nothing is a page."""

MOST_FAULTS = 20  # of one message of a worker
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_FIELD: dict[type[Exception], str] = {
    TargetError: "target",
    ScheduleError: "schedule",
    KeyReusedError: "Idempotency-Key",
}


def wants_page(path: str, accept: str) -> bool:
    """Return whether the `Accept` header requests a page."""
    return HTML in accept and not path.startswith(OF_PROGRAMS)


class ProblemResponse(JSONResponse):
    """A problem document."""

    media_type = MEDIA_TYPE

    def __init__(self, details: ProblemDetails, headers: dict[str, str] | None = None) -> None:
        super().__init__(details.model_dump(exclude_none=True), details.status, headers=headers)
        self.details = details
        self.further = dict(headers or {})


AsPage = Callable[[Request, ProblemResponse], Response]
"""Renders a problem document as a page for browsers."""


def install(app: FastAPI, as_page: AsPage) -> None:
    """Answer every error of `app` with a problem document, or a page if requested."""
    app.add_exception_handler(ServiceError, _service_error)
    for bad in (ProblemError, UnsupportedError, ModuleError, PlaceError, BudgetError, *_FIELD):
        app.add_exception_handler(bad, _bad_value)
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(UnfinishedError, _unfinished)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, partial(_http_error, as_page))
    app.add_exception_handler(Exception, _fault)


def status_and_text(error: Exception) -> tuple[HTTPStatus, str]:
    """Return the status and text of a refusal for clients that get no problem document."""
    if isinstance(error, ServiceError) and error.status is not None:
        return error.status, str(error)
    if isinstance(error, RequestValidationError):
        return HTTPStatus.UNPROCESSABLE_ENTITY, "; ".join(
            _describe(_field_error(found)) for found in error.errors()
        )
    return HTTPStatus.UNPROCESSABLE_ENTITY, str(error)


def headers_of(error: Exception) -> dict[str, str]:
    """Return the headers of an error response, such as `Retry-After`."""
    wait_s = error.retry_after_s if isinstance(error, ServiceError) else None
    return {} if wait_s is None else {"Retry-After": str(wait_s)}


def field_of(error: Exception) -> str:
    """Return the request field of a refused value."""
    return str(getattr(error, "field", None) or _FIELD.get(type(error), "problem"))


def responses(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entry of a route that can answer with these errors."""
    return {
        status.value: {"model": ProblemDetails, "description": status.phrase} for status in statuses
    }


def text_responses(
    *media_types: str, document: type[BaseModel] | None = None
) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entry of a route that gives a text, which may have to be made first.

    `document` is the model of its JSON form, if there is one.
    """
    return {
        HTTPStatus.OK.value: {
            "content": {media_type: {"schema": {"type": "string"}} for media_type in media_types},
            "description": "The text",
            **({"model": document} if document else {}),
        },
        HTTPStatus.ACCEPTED.value: {
            "model": UnfinishedView,
            "description": "It is being generated; retry `Location` after `Retry-After` seconds",
            "headers": {
                "Location": {"schema": {"type": "string"}},
                "Retry-After": {"schema": {"type": "integer", "minimum": 0}},
            },
        },
        HTTPStatus.NOT_MODIFIED.value: {"description": "The client has this text"},
        **responses(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    }


def problem_response(
    path: str,
    status: HTTPStatus,
    detail: str,
    errors: Sequence[FieldError] | None = None,
    headers: dict[str, str] | None = None,
    kind: str | None = None,
) -> ProblemResponse:
    """Return a problem document; `kind` is its type, by default one of the status."""
    details = ProblemDetails(
        type=kind or f"urn:tilewise:{status.name.lower().replace('_', '-')}",
        title=status.phrase,
        status=status.value,
        detail=detail,
        instance=path,
        errors=list(errors) if errors is not None else None,
    )
    return ProblemResponse(details, headers)


def answer_to(path: str, error: ServiceError) -> ProblemResponse:
    """Return the answer to an error of ours; raise it if it has no status of its own."""
    if error.status is None:
        raise error
    return problem_response(path, error.status, str(error), None, headers_of(error), error.kind)


async def _service_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ServiceError)
    return answer_to(request.url.path, error)


async def _unfinished(request: Request, error: Exception) -> JSONResponse:
    """What is being generated is at the same URL when it is done."""
    url = request.url
    place = f"{url.path}?{url.query}" if url.query else url.path
    headers = {"Location": place, **headers_of(error)}
    view = UnfinishedView(detail=str(error), location=place)
    return JSONResponse(view.model_dump(), HTTPStatus.ACCEPTED, headers=headers)


async def _bad_value(request: Request, error: Exception) -> JSONResponse:
    """A value that the domain refused; its error names the field."""
    return _unprocessable(request, [FieldError(field=field_of(error), message=str(error))])


async def _refused(request: Request, error: Exception) -> JSONResponse:
    """A message of a worker that does not fit its job."""
    assert isinstance(error, RefusedError)
    faults = error.faults[:MOST_FAULTS]
    return _unprocessable(request, [FieldError(field=at, message=why) for at, why in faults])


async def _invalid_request(request: Request, error: Exception) -> JSONResponse:
    """A request that does not match the schema."""
    assert isinstance(error, RequestValidationError)
    if isinstance(error.body, bytes):  # the framework reads JSON only where the header says so
        given = request.headers.get("content-type")
        sent = f"the body was sent as {quoted(given)}" if given else "the body has no content type"
        message = f"{sent}; send JSON with the header Content-Type: application/json"
        return _unprocessable(request, [FieldError(field="Content-Type", message=message)])
    return _unprocessable(request, [_field_error(found) for found in error.errors()])


async def _http_error(as_page: AsPage, request: Request, error: Exception) -> Response:
    """An error of the framework: no such path, method not allowed."""
    assert isinstance(error, HTTPException)
    answer = _problem_of(request, error)
    accept = request.headers.get("accept", "")
    return as_page(request, answer) if wants_page(request.url.path, accept) else answer


def _problem_of(request: Request, error: HTTPException) -> ProblemResponse:
    if error.status_code == HTTPStatus.BAD_REQUEST:
        # The framework's answer to a body that is not text or is nested too deeply.
        return _unprocessable(request, [FieldError(field="body", message=error.detail)])
    status = HTTPStatus(error.status_code)
    headers = dict(error.headers) if error.headers else {}
    path, detail = request.url.path, error.detail
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_allowed(request))
        detail = f"{request.method} is not allowed here; use {headers['Allow']}"
    elif detail == status.phrase:  # the framework's own, which says nothing else
        detail = f"nothing is at {quoted(path)}; /api lists the pages and calls"
    return problem_response(path, status, detail, headers=headers)


def _allowed(request: Request) -> list[str]:
    """The methods that any route takes at the path of a request; the router names but one's."""
    taken = {
        method
        for method in _METHODS
        for route in request.app.routes
        if route.matches({**request.scope, "method": method})[0] is Match.FULL
    }
    return sorted(taken | ({"HEAD"} if "GET" in taken else set()))


async def _fault(request: Request, _error: Exception) -> JSONResponse:
    return fault_response(request.url.path)


def fault_response(path: str) -> ProblemResponse:
    """Return the response to an internal error, without details."""
    detail = "the service failed; its log says more"
    return problem_response(path, HTTPStatus.INTERNAL_SERVER_ERROR, detail)


def _unprocessable(request: Request, errors: Sequence[FieldError]) -> ProblemResponse:
    detail = "; ".join(map(_describe, errors))
    return problem_response(request.url.path, HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors)


def _describe(error: FieldError) -> str:
    """Return the message of an error with its field, unless the message itself names the field."""
    field = re.escape(error.field)
    is_named = re.search(rf"(^|: ){field} |(?<!\w){field}=", error.message)
    return error.message if is_named else f"{error.field}: {error.message}"


def _field_error(found: dict[str, Any]) -> FieldError:
    if found["type"] == "json_invalid":
        position = found["loc"][-1]
        message = f"not JSON: {found['ctx']['error']} at character {position}"
        return FieldError(field="body", message=message)
    place = [_shown(str(part)) for part in found["loc"][1:]] or ["body"]
    message = {"extra_forbidden": "unknown field", "missing": "is missing"}.get(
        found["type"], found["msg"].removeprefix("Value error, ")
    )
    return FieldError(field=".".join(place), message=message)


def _shown(part: str) -> str:
    """A part of a field's name as it was written, if that can be shown."""
    return part if part.isprintable() and len(part) <= LONGEST_FIELD else quoted(part)
