"""`/v1/problems`: the problems of an MLIR module.

Whatever a module does to MLIR it does to a child process within limits; the rest of the service
waits for nothing. The same module, asked for again within a minute, is not read again.
"""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi import APIRouter, Request

from kernels.errors import CompilerAbsentError, ModuleError
from kernels.mlir.frontend.graph import Graph
from kernels.mlir.frontend.imported import Imported
from kernels.mlir.frontend.read import Limits, read_graph, read_module
from service.api.problem_details import responses
from service.api.schemas import ImportedView, UnfinishedView
from service.api.services import Services, ServicesDep
from service.errors import ConflictError

Found = TypeVar("Found")

PARSE = "/v1/problems/parse"
PATHS = (PARSE, "/v1/models", "/v1/plans")
"""Where a body may be as large as a module."""

LIMITS = Limits(seconds=20.0, memory_bytes=2 << 30)
JSON_TYPE = "application/json"

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


@router.post(
    "/parse",
    response_model=ImportedView,
    responses={
        HTTPStatus.ACCEPTED.value: {
            "model": UnfinishedView,
            "description": "It is being read; post it again after `Retry-After` seconds",
        },
        **responses(HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY),
    },
    openapi_extra=BODY,
)
async def parse_module(request: Request, services: ServicesDep) -> dict[str, Any]:
    """The matmuls and convolutions of a module, as problem strings, and what is skipped and why.

    The body is the module as `text/x-mlir`, text or bytecode, or JSON with it as `module`: linalg,
    torch, StableHLO or TOSA, of static shapes; or an ONNX model's bytes, where `onnx` is installed.
    """
    body, kind = await request.body(), request.headers.get("content-type", "")
    key, module = await services.lanes.reads.run(partial(given, body, kind))
    return (await imported_of(services, key, module)).to_json()


async def imported_of(services: Services, key: str, module: bytes) -> Imported:
    """What a module holds, read once for all who ask within a minute.

    Raises:
        ModuleError: it cannot be read.
        UnfinishedError: it is being read.
    """
    found: Imported | ModuleError = await services.modules.make(
        key, partial(_read, read_module, module)
    )
    if isinstance(found, ModuleError):
        raise found
    return found


async def graph_of(services: Services, key: str, module: bytes) -> Graph:
    """A module's problems, its other ops and the tensors between, read as `imported_of` does.

    Raises:
        ModuleError: it cannot be read.
        UnfinishedError: it is being read.
    """
    found: Graph | ModuleError = await services.modules.make(
        ("graph", key), partial(_read, read_graph, module)
    )
    if isinstance(found, ModuleError):
        raise found
    return found


def given(body: bytes, kind: str) -> tuple[str, bytes]:
    """A module's name for the cache, and the module."""
    module = _of_json(body) if kind.partition(";")[0].strip() == JSON_TYPE else body
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


def _read(read: Callable[[bytes, Limits], Found], module: bytes) -> Found | ModuleError:
    """What the module holds; an error is a result too, which need not be found out again."""
    try:
        return read(module, LIMITS)
    except ModuleError as error:
        return error
    except CompilerAbsentError as error:
        raise ConflictError(f"modules cannot be read here: {error}") from error
