"""Scripts of ops of modules: of the stored schedules the first that proves on the op, and kept.

The text depends on the op, the schedules and the toolchain alone. It is written and proven in a
child process. A script that proves is kept on disk. That none does is told for a minute, and then
tried again: the time for proofs may have ended.
"""

import hashlib
import json
from itertools import islice
from typing import Any

from sqlalchemy.orm import Session

from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.frontend.graph import LoneOp
from tilewise.kernels.mlir.normalised.choice import MOST_PROOFS, fitting, problems_of
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.typed_json import to_json
from tilewise.service.db import models
from tilewise.service.errors import NotFoundError
from tilewise.service.results import integrity, nearest
from tilewise.service.results.child import answer_of
from tilewise.service.results.nearest import Asked
from tilewise.service.results.stored import shown_proofs
from tilewise.service.results.trials import trials_beside

CHILD = "tilewise.kernels.mlir.normalised"

Origins = dict[str, dict[str, Any]]


def op_source(session: Session, lone: LoneOp, asked: Asked) -> tuple[str, Origins]:
    """What a script depends on, as canonical JSON: the op and the schedules that are tried.

    The schedule of a problem's own script is tried first, since the fastest native kernel is not
    the fastest script; then the best of each problem, and the fastest others. Of each it is what
    the op can use (`fitting`).

    Returns:
        That, and of each schedule by its hash how near it is to what was asked for.

    Raises:
        NotFoundError: no schedule of the op's problem is stored, or no script can be of the op.
        TamperedError: a stored result is not as it was stored.
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
        integrity.check_schedule(row)
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


def op_tag(source: str, toolchain: str) -> str:
    """The name of what the present toolchain makes of `source`."""
    return hashlib.sha256(f"{CHILD}\n{toolchain}\n{source}".encode()).hexdigest()


def op_document(source: str) -> str:
    """The script and what is told of it, made and proven now, as JSON for `told_of`.

    Raises:
        NotFoundError: none proved.
        ConflictError: this machine or this toolchain cannot make or prove a script.
    """
    document = answer_of(CHILD, "the script", source)
    found = json.loads(document)
    if "reason" in found:
        raise NotFoundError(found["reason"])
    return document


def told_of(document: str, *, with_payload: bool) -> dict[str, Any]:
    """What a caller gets of a document: the script alone, or behind the op's function."""
    told: dict[str, Any] = json.loads(document)
    whole = told.pop("with_payload")
    return told | ({"script": whole} if with_payload else {})
