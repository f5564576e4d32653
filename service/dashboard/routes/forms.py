"""Forms of the dashboard: start a search, cancel a job, sign in."""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, StringConstraints, ValidationError

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.footprint import check_memory
from tilewise.kernels.problem import ProblemRange, parse_any
from tilewise.search.errors import SearchError
from tilewise.service.api.access import caller_of
from tilewise.service.api.access.caller import TOKEN_COOKIE
from tilewise.service.api.executors import in_executor
from tilewise.service.api.problem_details import field_of
from tilewise.service.api.requests import JobRequest
from tilewise.service.api.routes.jobs import JobId, Sender, submit
from tilewise.service.api.services import Services, ServicesDep
from tilewise.service.dashboard.rendering import PageRoute, page
from tilewise.service.jobs import queue, registry

LONGEST = 4000  # characters of a problem
LONGEST_TOKEN = 200
SEE_OTHER = HTTPStatus.SEE_OTHER.value

router = APIRouter(include_in_schema=False, route_class=PageRoute)

Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=LONGEST)]
Next = Annotated[str, Query(alias="next", max_length=LONGEST)]


class SearchForm(BaseModel):
    """The fields of the search form, as text."""

    problem: Text = ""
    target: Text = "host"
    trials: Text = "64"
    seconds: Text = ""
    cache: Text = "hot"
    peers: Text = ""
    again: Text = ""


@router.get("/submit")
async def show_form(
    request: Request, services: ServicesDep, problem: str = "", target: str = "host"
) -> Response:
    """Return the form for a new search."""
    given = SearchForm(problem=problem[:LONGEST], target=target[:LONGEST]).model_dump()
    return await _form(request, services, given, {})


@router.post("/submit")
async def send_form(
    request: Request, services: ServicesDep, form: Annotated[SearchForm, Form()]
) -> Response:
    """Request a search and redirect to its page or to the stored result, or show the error.

    With `again` the finalists of a stored result are timed again.
    """
    given = form.model_dump(exclude={"again"})
    body, wrong = _read(given, again=bool(form.again))
    if body is None:
        return await _form(request, services, given, wrong, HTTPStatus.UNPROCESSABLE_ENTITY)
    sender = Sender.of(request, services)
    try:
        job_id, _ = await services.executors.writes.run(partial(submit, services, body, sender))
    except (KernelsError, SearchError) as error:
        field = field_of(error)
        wrong = {field if field in given else "problem": str(error)}
        return await _form(request, services, given, wrong, HTTPStatus.UNPROCESSABLE_ENTITY)
    place = f"/problems/{parse_any(form.problem).key}" if job_id is None else f"/jobs/{job_id}"
    return RedirectResponse(place, SEE_OTHER)


@router.get("/submit/check")
async def check(
    services: ServicesDep, problem: Annotated[str, Query(max_length=LONGEST)] = ""
) -> dict[str, Any]:
    """Describe a problem, or the largest of a range, while it is typed, or return its error."""
    try:
        given = parse_any(problem.strip())
        found = given.at(given.sizes[-1]) if isinstance(given, ProblemRange) else given
        check_memory(found)
    except KernelsError as error:
        return {"error": str(error)}
    return {
        "problem": found.canonical,
        "gflop": found.flops / 1e9,
        "mib": found.bytes / 1024**2,
        "intensity": found.flops / found.bytes,
    }


@router.post("/jobs/{job_id}/cancel")
@in_executor("writes")
def cancel(job_id: JobId, request: Request, services: ServicesDep) -> Response:
    """Call a job off, as `DELETE /v1/jobs/{id}` does."""
    with services.writing() as session:
        queue.cancel(session, job_id, caller_of(request).only_of)
    services.wake()
    return RedirectResponse(f"/jobs/{job_id}", SEE_OTHER)


@router.get("/sign-in")
async def show_sign_in(request: Request, place: Next = "/") -> Response:
    """Return the form for a token."""
    return page(request, "sign_in.html", place=_local(place), wrong="")


@router.post("/sign-in")
async def sign_in(
    request: Request,
    services: ServicesDep,
    token: Annotated[str, Form(max_length=LONGEST_TOKEN)] = "",
    place: Annotated[str, Form(alias="next", max_length=LONGEST)] = "/",
) -> Response:
    """Store a token in a cookie that scripts cannot read and other sites cannot send."""
    caller = await services.tokens.caller(token.strip()) if token.strip().isascii() else None
    if caller is None:
        wrong = "the token is unknown, expired or revoked"
        return page(
            request, "sign_in.html", HTTPStatus.UNAUTHORIZED, place=_local(place), wrong=wrong
        )
    answer = RedirectResponse(_local(place), SEE_OTHER)
    answer.set_cookie(
        TOKEN_COOKIE,
        token.strip(),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@router.post("/sign-out")
async def sign_out() -> Response:
    """Forget the token in this browser."""
    answer = RedirectResponse("/", SEE_OTHER)
    answer.delete_cookie(TOKEN_COOKIE, httponly=True, samesite="strict")
    return answer


def _local(place: str) -> str:
    """A path of this service; the overview in place of what leads elsewhere."""
    parts = urlsplit(place)
    is_path = place.startswith("/") and not place.startswith(("//", "/\\"))
    if parts.scheme or parts.netloc or not is_path or not place.isprintable():
        return "/"
    return quote(place, safe="/?&=%,:;+-._~")


def _read(given: dict[str, str], *, again: bool) -> tuple[JobRequest | None, dict[str, str]]:
    """The request of the form, or what is wrong with each of its fields."""
    wrong, values = {}, dict[str, Any](given, again=again)
    for name, kind, empty in (("trials", int, 64), ("seconds", float, None)):
        try:
            values[name] = kind(given[name]) if given[name] else empty
        except ValueError:
            wrong[name] = f"{name} {given[name]!r} is not a number"
    values["peers"] = bool(given["peers"])
    if wrong:
        return None, wrong
    try:
        return JobRequest(**values), {}
    except ValidationError as error:
        return None, {str(one["loc"][0]): one["msg"] for one in error.errors()}


async def _form(
    request: Request,
    services: Services,
    given: dict[str, str],
    wrong: dict[str, str],
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:
    targets = await services.executors.reads.run(partial(_targets, services))
    targets.setdefault(given["target"], f"{given['target']} (no live worker serves it)")
    return page(request, "submit.html", status, given=given, wrong=wrong, targets=targets)


def _targets(services: Services) -> dict[str, str]:
    """Return the targets that can be chosen, each with its text in the form."""
    with services.reading() as session:
        served = {str(target) for worker in registry.live(session) for target in worker.targets}
    host = services.machine.canonical_target("host")
    found = {} if services.has_cluster else {"host": f"host: this service's machine, {host}"}
    return found | {target: target for target in sorted(served)}
