"""Kernels, machine code and scripts of ops, printed by child processes that load compilers."""

import base64
import hashlib
import json
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, Literal

from sqlalchemy.orm import Session

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.frontend.graph import LoneOp
from tilewise.kernels.mlir.op_scripts.choice import MOST_PROOFS, fitting, problems_of
from tilewise.kernels.problem import parse_any, stem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.files import cache_dir, keep, kept
from tilewise.kernels.system.typed_json import to_json
from tilewise.service.db import models
from tilewise.service.errors import NotFoundError
from tilewise.service.host.child import answer_of
from tilewise.service.results import integrity, nearest
from tilewise.service.results.nearest import Asked
from tilewise.service.results.stored import shown_proofs
from tilewise.service.results.trials import trials_beside

MOST_BYTES = 64 << 20  # of modules, of about 50 kB
MODULES = "modules"
_PARTS = ("problem", "target", "toolchain")
_OF_PROBLEM, _OF_RANGE = ("best",), ("variants", "spans", "samples")


def kernel_source(result: dict[str, Any], target: str) -> str:
    """Return what a module depends on, as canonical JSON; `target` may differ from the result's."""
    parts = (*_PARTS, *(_OF_RANGE if "variants" in result else _OF_PROBLEM))
    return json.dumps({part: result[part] for part in parts} | {"target": target}, sort_keys=True)


def kernel_tag(source: str, toolchain: str, form: str = "module") -> str:
    """Return the strong entity tag of a form of what a toolchain makes of `source`.

    The form is `FLAVOR` for a library, `OF_OP` for the script of an op, else one of `Form`.
    """
    head = "" if form == MODULE else f"{form}\n"
    return hashlib.sha256(f"{head}{toolchain}\n{source}".encode()).hexdigest()


def kernel_module(tag: str, source: str, form: str) -> str:
    """Make the form that `tag` names, which takes a second, and keep it.

    `source` is from `kernel_source` or `op_source`. Call it in a flight. Raises ConflictError if
    it cannot be made here, NotFoundError if no script of an op was proven.
    """
    text = MAKERS[form](source)
    keep(cache_dir() / MODULES / tag, text.encode(), MOST_BYTES)
    return text


def kept_module(tag: str) -> str | None:
    """The module that `tag` names, if it is kept and not damaged."""
    found = kept(cache_dir() / MODULES / tag)
    return None if found is None else found.decode()


FLAVOR = "iree"


def library_of(document: str) -> str:
    """Return the library; raise NotFoundError with the times if IREE is as fast without it."""
    found = json.loads(document)
    if found["script"] is None:
        raise NotFoundError(f"no script of flavor {FLAVOR} is served: {found['reason']}")
    return str(found["script"])


Form = Literal["module", "object", "bitcode", "c-header", "json"]
MODULE: Form = "module"
DOCUMENT: Form = "json"
MEDIA_TYPES: dict[str, str] = {
    "module": "text/x-python",
    "object": "application/octet-stream",
    "bitcode": "application/octet-stream",
    "c-header": "text/x-c",
    "json": "application/json",
}
TEXT_TYPES = tuple(dict.fromkeys(kind for form, kind in MEDIA_TYPES.items() if form != DOCUMENT))
"""The media types of the forms that are files."""
_ENDINGS = {"object": ".o", "bitcode": ".bc", "c-header": ".h"}


def content_of(document: str, form: str) -> bytes:
    """One form of what was made, such as the header of an object."""
    if form in (MODULE, DOCUMENT):
        return document.encode()
    if form == FLAVOR:
        return library_of(document).encode()
    found = json.loads(document)
    if form == "c-header":
        return str(found["header"]).encode()
    return base64.b64decode(found[form])


def file_name(problem: str, form: str) -> str | None:
    """Such as `matmul_m64_n48_k32_f32.o`; None for a form that is no file for a compiler."""
    ending = _ENDINGS.get(form)
    return None if ending is None else stem(parse_any(problem)) + ending


OF_OP = "tilewise.kernels.mlir.op_scripts.choice:script_of_op"
"""What makes scripts of ops, in a child."""

Origins = dict[str, dict[str, Any]]


def op_source(session: Session, lone: LoneOp, asked: Asked) -> tuple[str, Origins]:
    """Return the op and the schedules to try as canonical JSON, and the origin of each by hash.

    The schedule of a problem's own script comes first, since the fastest native kernel is not the
    fastest script; then the best of each problem, and the fastest others, each reduced to what the
    op can use (`fitting`).

    Raises NotFoundError if no schedule is stored or no script is possible, TamperedError.
    """
    try:
        problems = problems_of(lone)
    except UnsupportedError as error:
        raise NotFoundError(str(error)) from error
    found = nearest.find(session, [one.key for one in problems], asked)
    rows = {one: found[one.key] for one in problems if one.key in found}
    if not rows:
        told = " or ".join(one.canonical for one in problems)
        raise NotFoundError(f"no schedule of {told} is stored for {asked.target}; tune it first")
    for row in rows.values():
        integrity.check_result(row)
    stored = [(one, row, Schedule.from_json(row.steps)) for one, row in rows.items()]
    for one, row in rows.items():
        timed = islice(trials_beside(session, row, ("timed",)), MOST_PROOFS)
        stored += [(one, row, trial.schedule) for trial in timed]
    proofs = shown_proofs(session, [row.id for row in rows.values()]).values()
    of_scripts = {one.script.hash for one in proofs if one.script and one.failure is None}
    stored.sort(key=lambda each: each[2].hash not in of_scripts)
    tried: dict[str, tuple[models.Schedule, Schedule]] = {}
    for one, row, schedule in stored:
        fit = fitting(lone, one, schedule)
        tried.setdefault(fit.hash, (row, fit))
    first = dict(islice(tried.items(), MOST_PROOFS))
    source = {
        "op": to_json(lone),
        "schedules": [schedule.to_json() for _, schedule in first.values()],
    }
    origins = {hashed: _origin(row, asked) for hashed, (row, _) in first.items()}
    return json.dumps(source, sort_keys=True), origins


def _origin(row: models.Schedule, asked: Asked) -> dict[str, Any]:
    toolchain = row.toolchain.identity
    return {
        "target": row.target,
        "toolchain": toolchain,
        "match": nearest.kind_of(row.target, toolchain, asked),
        "stale": toolchain != asked.toolchain,
    }


def op_document(source: str) -> str:
    """Make and prove the script of an op and return JSON for `document_for_caller`.

    Raises NotFoundError if none was proven, ConflictError if that is impossible here.
    """
    document = answer_of(OF_OP, "the script", source)
    found = json.loads(document)
    if "reason" in found:
        raise NotFoundError(found["reason"])
    return document


_OBJECTS = "tilewise.kernels.native.objects.document"
MAKERS: dict[str, Callable[[str], str]] = {
    MODULE: partial(answer_of, f"{_OBJECTS}:python_module", "the kernel"),
    DOCUMENT: partial(answer_of, f"{_OBJECTS}:lasting", "the object"),
    FLAVOR: partial(answer_of, "tilewise.search.libraries.library:library_of", "the library"),
    OF_OP: op_document,
}
"""What makes each form that is kept: in a child, of its source."""


def document_for_caller(document: str, *, with_payload: bool) -> dict[str, Any]:
    """What a caller gets of a document: the script alone, or behind the op's function."""
    told: dict[str, Any] = json.loads(document)
    whole = told.pop("with_payload")
    return told | ({"script": whole} if with_payload else {})


def inner_loop_text(source: str) -> str:
    """Return the inner loop of a kernel with its counts and bound; takes a second.

    `source` is from `kernel_source`. Call it in a flight of `Services.kernels`. Raises
    ConflictError if it does not compile here.
    """
    return answer_of(f"{__name__}:inner_loop", "the inner loop", source)


def inner_loop(found: dict[str, Any]) -> str:
    """Return the inner loop of a stored result; in the child.

    It stands here and not beside what it calls, since every file of code generation is part of the
    generator's hash, and would make results stale.
    """
    from tilewise.kernels.native.assembly import inspect_result, render

    return render(inspect_result(found))
