"""`/v1/problems`: the problems of an MLIR module, and scripts of its ops.

Whatever a module does to MLIR it does to a child process within limits; the rest of the service
waits for nothing. A module that is requested again within a minute is not read again.
"""

import hashlib
import json
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from pydantic import StringConstraints

from tilewise.kernels.errors import CompilerAbsentError, ModuleError, PlaceError, TargetError
from tilewise.kernels.mlir.frontend.dims import exact_dims
from tilewise.kernels.mlir.frontend.graph import Graph, Imported, LoneOp
from tilewise.kernels.mlir.frontend.read import (
    NO_SIZES,
    ReadLimits,
    read_graph,
    read_module,
    read_op,
)
from tilewise.kernels.problem import Accuracy
from tilewise.kernels.quoting import quoted
from tilewise.kernels.target import target_kind
from tilewise.schema.base import KeyMatch
from tilewise.service.api.problem_details import responses
from tilewise.service.api.requests import TargetText
from tilewise.service.api.schemas import ImportedView, OpScriptView, UnfinishedView
from tilewise.service.api.services import Services, ServicesDep
from tilewise.service.errors import ConflictError
from tilewise.service.results import kernels
from tilewise.service.results.stored import Lookup

Found = TypeVar("Found")

PARSE = "/v1/problems/parse"
SCRIPT = "/v1/problems/script"
PATHS = (PARSE, SCRIPT, "/v1/models", "/v1/plans")
"""Where a body may be as large as a module."""

LIMITS = ReadLimits(seconds=20.0, memory_bytes=2 << 30)
JSON_TYPE = "application/json"
PlaceText = Annotated[str, Query(max_length=600, examples=["@scores 8:8", "1"])]
DimTexts = Annotated[
    tuple[Annotated[str, StringConstraints(max_length=600)], ...],
    Query(max_length=16, examples=[["batch=8"]]),
]

router = APIRouter(prefix="/v1/problems", tags=["problems"])
_TEXT = {"schema": {"type": "string"}}
_OBJECT = {
    "schema": {
        "type": "object",
        "properties": {"module": {"type": "string"}},
        "required": ["module"],
        "additionalProperties": False,
    }
}

BODY = {"requestBody": {"required": True, "content": {"text/x-mlir": _TEXT, JSON_TYPE: _OBJECT}}}
"""A module as OpenAPI shows it."""


def _later(description: str) -> dict[int | str, dict[str, Any]]:
    return {HTTPStatus.ACCEPTED.value: {"model": UnfinishedView, "description": description}}


@router.post(
    "/parse",
    response_model=ImportedView,
    responses={
        **_later("It is being read; post it again after `Retry-After` seconds"),
        **responses(HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY),
    },
    openapi_extra=BODY,
)
async def parse_module(
    request: Request, services: ServicesDep, accuracy: Accuracy = "standard", dim: DimTexts = ()
) -> dict[str, Any]:
    """List the matmuls and convolutions of a module, and what is skipped and why.

    The body is the module as `text/x-mlir`, text or bytecode, or JSON with it as `module`: linalg,
    torch, StableHLO or TOSA; or an ONNX model's bytes, if `onnx` is installed. Each dynamic dim
    of an argument needs a size: `dim=batch=8` by its name in an ONNX model, `dim=0.1=8` for axis 1
    of argument 0. With `accuracy=strict` all problems have `accuracy=strict`.
    """
    sizes = exact_dims(dim)
    key, module = await given(request, services)
    imported = await imported_of(services, key, module, sizes)
    return imported.with_accuracy(accuracy).to_json()


@router.post(
    "/script",
    response_model=OpScriptView,
    responses={
        **_later("It is being made; post the module again after `Retry-After` seconds"),
        **responses(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY),
    },
    openapi_extra=BODY,
)
async def script_of_op(
    request: Request,
    services: ServicesDep,
    place: PlaceText = "",
    target: TargetText = "host",
    match: KeyMatch = "exact",
    with_payload: bool = False,
    accuracy: Accuracy = "standard",
) -> dict[str, Any]:
    """Return the transform script of one op of a module, proven on the op as the module has it.

    `place` is the location of the op in `/v1/problems/parse`, or its number among the module's
    problems, from 1; a module with one problem needs none. The schedule is the fastest stored one
    whose script proves on the op, which takes some seconds. If that takes longer than a request
    waits, the answer is 202: send the same request again. `with_payload` prepends the op in a
    separate function. `accuracy` selects the schedules that may be used.
    """
    if target_kind(target) != "cpu":
        raise TargetError(f"target {quoted(target)}: scripts of ops are for targets cpu:NAME")
    key, module = await given(request, services)
    lone = await _read_once(services, ("op", key, place), partial(_read_op, place), module)
    canonical = services.machine.canonical_target(target)
    lookup = Lookup(canonical, services.toolchain, match=match)
    lone = lone.with_accuracy(accuracy)
    source, origins = await services.executors.reads.run(
        partial(_op_source, services, lone, lookup)
    )
    found = await services.code(source, kernels.OF_OP)
    document = kernels.document_for_caller(found, with_payload=with_payload)
    return document | origins[document["schedule"]["hash"]]


def _read_op(place: str, module: bytes, limits: ReadLimits) -> LoneOp:
    return read_op(module, place or None, limits)


def _op_source(services: Services, lone: LoneOp, lookup: Lookup) -> tuple[str, kernels.Origins]:
    with services.reading() as session:
        return kernels.op_source(session, lone, lookup)


async def imported_of(
    services: Services, key: str, module: bytes, sizes: Mapping[str, int] = NO_SIZES
) -> Imported:
    """Read a module once for all requests within a minute; raise ModuleError or UnfinishedError."""
    read = partial(read_module, sizes=sizes)
    return await _read_once(services, (key, *sorted(sizes.items())), read, module)


async def graph_of(services: Services, key: str, module: bytes) -> Graph:
    """Read the graph of a module, as `imported_of` does."""
    return await _read_once(services, ("graph", key), read_graph, module)


async def _read_once(
    services: Services, key: Hashable, read: Callable[[bytes, ReadLimits], Found], module: bytes
) -> Found:
    made = services.modules.make(key, partial(_read, read, module), len(module))
    found: Found | ModuleError | PlaceError = await made
    if isinstance(found, ModuleError | PlaceError):
        raise found
    return found


async def given(request: Request, services: Services) -> tuple[str, bytes]:
    """Return the SHA-256 of the module in a request's body, and the module."""
    body, kind = await request.body(), request.headers.get("content-type", "")
    return await services.executors.reads.run(partial(_module_in, body, kind))


def _module_in(body: bytes, kind: str) -> tuple[str, bytes]:
    is_json = kind.partition(";")[0].strip().lower() == JSON_TYPE
    module = _of_json(body) if is_json else body
    return hashlib.sha256(module).hexdigest(), module


def _of_json(body: bytes) -> bytes:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ModuleError("the body is not JSON; send the module as text/x-mlir") from error
    if not isinstance(found, dict) or set(found) != {"module"}:
        raise ModuleError('give a JSON object with the field "module" alone')
    if not isinstance(found["module"], str):
        raise ModuleError("module is not text")
    return found["module"].encode(errors="replace")


def _read(
    read: Callable[[bytes, ReadLimits], Found], module: bytes
) -> Found | ModuleError | PlaceError:
    """What the module holds; an error is a result too, which need not be found out again."""
    try:
        return read(module, LIMITS)
    except (ModuleError, PlaceError) as error:
        return error
    except CompilerAbsentError as error:
        raise ConflictError(f"modules cannot be read here: {error}") from error
