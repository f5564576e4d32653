"""`/v1/schedules`: the best schedules of problems, their transform scripts and kernels."""

from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic_core import to_json
from sqlalchemy.orm import Session

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.problem import Problem, parse_any, parse_problem
from tilewise.schema.base import Json, KeyMatch, Match
from tilewise.search.records import CacheMode, TuneRequest
from tilewise.service.api import files
from tilewise.service.api.access import caller_of
from tilewise.service.api.answer_cache import not_modified
from tilewise.service.api.documents import result_json
from tilewise.service.api.executors import in_executor
from tilewise.service.api.problem_details import responses, text_responses
from tilewise.service.api.range_documents import found_json, range_json
from tilewise.service.api.requests import LookupRequest, TargetText
from tilewise.service.api.routes.jobs import Sender
from tilewise.service.api.schemas import (
    Flavor,
    LookupView,
    ObjectView,
    ProblemKey,
    RangeView,
    ResultView,
)
from tilewise.service.api.services import Services, ServicesDep
from tilewise.service.db import models
from tilewise.service.errors import ForbiddenError, NotFoundError
from tilewise.service.jobs import model_jobs, queue
from tilewise.service.results import kernels, nearest, predictions, ranges, scripts
from tilewise.service.results.kernels import (
    DOCUMENT,
    MEDIA_TYPES,
    MODULE,
    TEXT_TYPES,
    Form,
    content_of,
    file_name,
    kernel_source,
    kernel_tag,
)
from tilewise.service.results.stored import Lookup, ResultKey

ProblemText = Annotated[str, Query(examples=["matmul:m=1024,n=512,k=2048,dtype=f32"])]
SCRIPT_TYPE = "text/x-mlir"

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])


@router.get("", response_model=ResultView | RangeView, responses=responses(HTTPStatus.NOT_FOUND))
@in_executor("reads")
def get_schedule(
    problem: ProblemText,
    services: ServicesDep,
    target: TargetText = "host",
    cache: CacheMode | None = None,
    match: Match = "exact",
) -> dict[str, Any]:
    """Return the best schedule; `problem` is a problem string, or its JSON object as text.

    `cache` selects results for hot or cold caches; without it, hot ones are preferred.

    If the current toolchain has no result, one of another toolchain is returned, marked `stale`.
    With `match=nearest`, a result of another processor is returned if there is none for the target
    and the target can run its kernels. `match` in the answer says what differs.

    A range of sizes returns the variants that serve it. With `match=range`, the variant of a tuned
    range that contains the problem is returned if nothing else is stored, and for a range another
    one that contains it.
    """
    wanted = parse_any(problem)
    lookup = _lookup(services, target, match, cache)
    with services.reading() as session:
        found = found_json(session, wanted, lookup)
    if found is None:
        services.metrics.count_answer(None)
        text = f"no schedule of {wanted} is stored for {lookup.target}; POST it to /v1/jobs"
        raise NotFoundError(text)
    is_of_other = found["key"] != wanted.key or found.get("match", {}).get("range")
    kind = nearest.kind_of(found["target"], found["toolchain"], lookup)
    services.metrics.count_answer("range" if is_of_other else kind)
    return found


@router.get("/{key}/script", response_class=Response, responses=text_responses(SCRIPT_TYPE))
async def get_script(
    key: ProblemKey,
    services: ServicesDep,
    target: TargetText = "host",
    flavor: Flavor = "cpu",
    match: KeyMatch = "exact",
    cache: CacheMode | None = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Return the proven transform script.

    `cache` selects that of the schedule for hot or for cold caches; without it, hot is preferred.

    A script of flavor air or iree is generated and proven on the first request, in some seconds. If
    that takes longer than a request waits, the answer is 202: retry later. A script of flavor iree
    is returned only if IREE is faster with it.
    """
    lookup = _lookup(services, target, match, cache)
    if flavor == kernels.FLAVOR:
        result = await services.executors.reads.run(partial(_find_result, services, key, lookup))
        return await _code(services, result, flavor, lookup, if_none_match)
    script, work = await services.executors.reads.run(
        partial(_find_script, services, key, lookup, flavor)
    )
    if script is None:
        on_target = replace(lookup, target=work.target)
        make = partial(scripts.make, services.sessions, key, on_target)
        script = await services.proofs.make((key, work.target, work.cache), make)
    headers = _headers(script.sha256, work.target, work.toolchain, lookup)
    return not_modified(headers, if_none_match) or Response(
        script.text, media_type=SCRIPT_TYPE, headers=headers
    )


@router.get(
    "/{key}/kernel",
    response_class=Response,
    responses=text_responses(*TEXT_TYPES, document=ObjectView),
)
async def get_kernel(
    key: ProblemKey,
    services: ServicesDep,
    target: TargetText = "host",
    match: KeyMatch = "exact",
    cache: CacheMode | None = None,
    form: Annotated[Form, Query(alias="format")] = "module",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Return the best schedule's kernel as a standalone Python module or as machine code.

    With the key of a tuned range it serves all sizes of the range. `cache` selects the kernel for
    hot or for cold caches; without it, hot is preferred.

    `object` is a relocatable file for x86-64 Linux, `bitcode` the same for LLVM, `c-header` the
    header of both, and `json` all of them in one. An object is returned only after it was linked,
    run between guard pages, and compared with the reference.

    A kernel is generated on the first request, in a second or two. If that takes longer than a
    request waits, the answer is 202: retry later.
    """
    lookup = _lookup(services, target, match, cache)
    finding = partial(_find_result, services, key, lookup, with_ranges=True)
    result = await services.executors.reads.run(finding)
    return await _code(services, result, form, lookup, if_none_match)


async def _code(
    services: Services, result: dict[str, Any], form: str, lookup: Lookup, if_none_match: str | None
) -> Response:
    """A form of the code of a result; made unless the client or this service has it."""
    source = kernel_source(result, lookup.target)
    tag = kernel_tag(source, services.toolchain, form)
    headers = _headers(tag, result["target"], result["toolchain"], lookup)
    if (known := not_modified(headers, if_none_match)) is not None:
        return known
    is_whole = form in (MODULE, kernels.FLAVOR)  # all forms of an object are made at once
    text = await services.code(source, form if is_whole else DOCUMENT)
    name = file_name(result["problem"], form)
    if name is not None:
        headers["Content-Disposition"] = f'attachment; filename="{name}"'
    kind = MEDIA_TYPES.get(form, SCRIPT_TYPE)
    return Response(content_of(text, form), media_type=kind, headers=headers)


def _lookup(
    services: Services, target: str, match: Match, cache: CacheMode | None = None
) -> Lookup:
    canonical = services.machine.canonical_target(target)
    return Lookup(canonical, services.toolchain, cache, match)


def _find_script(
    services: Services, key: str, lookup: Lookup, flavor: Flavor
) -> tuple[models.Script | scripts.ScriptText | None, ResultKey]:
    """The script, None for an air script that was not requested yet; what it belongs to."""
    with services.reading() as session:
        found = scripts.served_script(session, key, lookup, flavor)
        if found is None:  # the one query finds nothing on the target itself
            other = replace(lookup, target=_stored(session, services, key, lookup).target)
            found = scripts.served_script(session, key, other, flavor)
        if found is None:
            raise _missing(key, lookup.target)
        if found.script is None and flavor == scripts.FLAVOR:
            row = _stored(session, services, key, lookup)
            return scripts.find(session, row), found.work
        if found.script is None:
            raise NotFoundError(f"no proven {flavor} script of {found.work.canonical} is stored")
        return found.script, found.work


def _find_result(
    services: Services, key: str, lookup: Lookup, *, with_ranges: bool = False
) -> dict[str, Any]:
    with services.reading() as session:
        if with_ranges and (whole := ranges.find_range(session, key, lookup)):
            return range_json(whole, services.toolchain)
        row = _stored(session, services, key, lookup)
        return result_json(session, row, services.toolchain, target=lookup.target)


def _stored(session: Session, services: Services, key: str, lookup: Lookup) -> models.Schedule:
    row = nearest.find(session, [key], lookup).get(key)
    if row is None:
        services.metrics.count_answer(None)
        raise _missing(key, lookup.target)
    return row


def _missing(key: str, target: str) -> NotFoundError:
    return NotFoundError(f"no schedule of a problem with the key {key} is stored for {target}")


def _headers(tag: str, target: str, toolchain: str, lookup: Lookup) -> dict[str, str]:
    """Return the headers that name a text and say how closely it matches the request.

    Clients may store it, but revalidate each time, since the next search may find a better one.
    """
    return {
        "ETag": f'"{tag}"',
        "Cache-Control": "no-cache",
        "Tilewise-Stale": str(toolchain != lookup.toolchain).lower(),
        "Tilewise-Match": nearest.kind_of(target, toolchain, lookup),
        "Tilewise-Target": target,
        "Tilewise-Toolchain": toolchain,
    }


@router.post("/lookup", response_model=LookupView)
async def look_up(body: LookupRequest, request: Request, services: ServicesDep) -> Response:
    """Return the best schedules of many problems at once.

    With `files` the answer has the entity tag of each script and kernel. With `known`, the tags
    that the client has, unchanged problems are only marked `unchanged`: one conditional request
    for a whole folder.

    With `predict`, a problem without a stored result gets `predicted`: a schedule that was neither
    timed nor proven, for hot caches of this machine's processor and those of the training.

    With `trials`, such a problem gets a search in the background, or joins the queued one: `job` is
    its number. That takes a token of scope `submit`.
    """
    if body.trials and caller_of(request).scope == "read":
        raise ForbiddenError("trials: this takes a token of scope submit, not read")
    found = await services.executors.reads.run(partial(_look_up, services, body))
    if body.trials:
        sender = Sender.of(request, services)
        await services.executors.writes.run(partial(_queue_searches, services, body, found, sender))
    # To validate a thousand results would take as long as all else, on the thread of all requests.
    return Response(to_json(found, inf_nan_mode="null"), media_type="application/json")


def _look_up(services: Services, body: LookupRequest) -> Json:
    wanted = [_parse(index, problem) for index, problem in enumerate(body.problems)]
    target = services.machine.canonical_target(body.target)
    lookup = Lookup(target, services.toolchain, body.cache, body.match)
    predicts = body.predict and body.cache != "cold"
    with services.reading() as session:
        found = files.look_up(session, wanted, lookup, body.files, body.known)
        near = predictions.winners(session, wanted, target) if predicts else []
    if predicts:
        files.add_predictions(found, near)
    for one in found["schedules"]:
        services.metrics.count_answer(_kind_of(one))
    return found


def _queue_searches(services: Services, body: LookupRequest, found: Json, sender: Sender) -> None:
    """Queue or join a search for each answer without a stored result, and name its job."""
    search = TuneRequest(trials=body.trials, cache=body.cache or "hot")
    if not (unseen := files.unseen(found)):
        return
    target = services.require_served(body.target)
    for _, problem in unseen:
        services.check_memory(queue.check_covered(problem, target))
    with services.writing() as session:
        work = target, search, services.toolchain, sender.by
        jobs = model_jobs.request_searches(session, (one["problem"] for one, _ in unseen), *work)
    for answer, _ in unseen:
        answer["job"] = jobs[answer["problem"]]
    services.wake()


def _kind_of(found: Json) -> str | None:
    """How near an answer is; what a client has already is what it was given."""
    if found["unchanged"]:
        return "exact"
    schedule = found["schedule"]
    kind: str | None = schedule and schedule["match"]["kind"]
    return kind


def _parse(index: int, source: str | dict[str, Any]) -> Problem:
    """The problem; an error names its place in the list."""
    try:
        return parse_problem(source)
    except ProblemError as error:
        raise ProblemError(str(error), f"problems.{index}") from error
