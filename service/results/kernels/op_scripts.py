"""Scripts of ops of modules: of the stored schedules the first that proves on the op, and kept.

The text depends on the op, the schedules and the toolchain alone. It is written and proven in a
child process. That none proves is not kept: it may be for want of time.
"""

import hashlib
import json
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from kernels.errors import UnsupportedError
from kernels.mlir.frontend.lone import LoneOp
from kernels.mlir.normalised.choice import MOST_PROOFS, problems_of
from kernels.system.typed_json import to_json
from service.db import models
from service.errors import NotFoundError
from service.host.machine import MachineInfo
from service.results import nearest
from service.results.child import answer_of
from service.results.nearest import Asked

CHILD = "kernels.mlir.normalised"


def op_source(
    session: Session, lone: LoneOp, asked: Asked, here: MachineInfo, *, with_payload: bool
) -> str:
    """What a script depends on: the op and the schedules that are tried, as canonical JSON.

    Raises:
        NotFoundError: no schedule of the op's problem is stored, or no script can be of the op.
    """
    try:
        problems = problems_of(lone)
    except UnsupportedError as error:
        raise NotFoundError(str(error)) from error
    found = nearest.find(session, [one.key for one in problems], asked, here)
    steps: dict[str, list[Any]] = {}
    for problem in problems:
        if (row := found.get(problem.key)) is not None:
            steps = {**steps, row.hash: row.steps, **_timed(session, row)}
    if not steps:
        told = " or ".join(one.canonical for one in problems)
        raise NotFoundError(f"no schedule of {told} is stored for {asked.target}; tune it first")
    source = {
        "op": to_json(lone),
        "schedules": list(steps.values())[:MOST_PROOFS],
        "with_payload": with_payload,
    }
    return json.dumps(source, sort_keys=True)


def op_tag(source: str, toolchain: str) -> str:
    """The name of what the present toolchain makes of `source`."""
    return hashlib.sha256(f"{CHILD}\n{toolchain}\n{source}".encode()).hexdigest()


def op_document(source: str) -> str:
    """The script and what is told of it, made and proven now, as JSON.

    Raises:
        NotFoundError: none proved.
        ConflictError: this machine or this toolchain cannot make or prove a script.
    """
    document = answer_of(CHILD, "the script", source)
    found = json.loads(document)
    if "reason" in found:
        raise NotFoundError(found["reason"])
    return document


def _timed(session: Session, row: models.Schedule) -> dict[str, list[Any]]:
    """The fastest schedules that searches of a result's problem timed, by their hashes."""
    query = (
        select(models.Trial.hash, models.Trial.steps)
        .join(models.Job, models.Job.id == models.Trial.job_id)
        .where(models.Job.problem_id == row.problem_id, models.Job.target == row.target)
        .where(models.Trial.state == "timed")
        .order_by(models.Trial.gflops.desc())
        .limit(MOST_PROOFS)
    )
    return {row.hash: row.steps for row in session.execute(query)}
