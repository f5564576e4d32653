"""Whole models: a job for each problem that is not known, and how far all of them are."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewise.kernels.mlir.frontend.graph import Imported
from tilewise.kernels.problem import Accuracy, parse_problem
from tilewise.schema.base import JobState
from tilewise.search.records import TuneRequest
from tilewise.service.db import models
from tilewise.service.db.base import damage
from tilewise.service.db.rows import toolchain_row
from tilewise.service.errors import DamagedError, NotFoundError
from tilewise.service.jobs import queue
from tilewise.service.jobs.queue import Submitter
from tilewise.service.results.schedules import find_fresh

Json = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """One problem of a model, as it is now.

    Attributes:
        found: the problem, its count and its places, as the model's row has them.
        state: of its job; done where a schedule is stored.
        job: its number; None where a stored schedule needed none.
        schedule: what is stored; None before.
    """

    found: Mapping[str, Any]
    state: JobState
    job: int | None
    schedule: models.Schedule | None


def ask(
    session: Session,
    module: tuple[str, Imported],
    target: str,
    request: TuneRequest,
    toolchain: str,
    by: Submitter,
) -> models.Network:
    """Queue what the store does not answer, and remember the model.

    Args:
        session: a transaction that writes.
        module: SHA-256 of the text, hex, and what was found in it.
        target: canonical.
        request: how hard to search, for each problem.
        toolchain: the present one.
        by: who asks.
    """
    sha256, imported = module
    for found in imported.problems:
        problem = parse_problem(found.problem)
        queue.create_or_join(session, problem, target, request, toolchain, by)
    made = models.Network(
        sha256=sha256,
        target=target,
        toolchain=toolchain_row(session, toolchain),
        trials=request.trials,
        cache=request.cache,
        problems=[asdict(found) for found in imported.problems],
        skipped=[asdict(one) for one in imported.skipped],
        token_id=by.token_id,
    )
    session.add(made)
    session.flush()
    return made


def get(session: Session, number: int) -> models.Network:
    """A model by its number.

    Raises:
        NotFoundError: there is none.
        DamagedError: its row cannot be read.
    """
    found = session.get(models.Network, number)
    if found is None:
        raise NotFoundError(f"there is no model {number}")
    broken = damage(found)
    if broken is not None:
        raise DamagedError(f"the row of model {number} in the database is damaged: {broken}")
    return found


def accuracy_of(network: models.Network) -> Accuracy:
    """Of the model's problems, each of which says it."""
    are_strict = all(parse_problem(found["problem"]).is_strict for found in network.problems)
    return "strict" if are_strict else "standard"


def parts(session: Session, network: models.Network) -> list[Part]:
    """The model's problems as they are now, in its order."""
    return [_part(session, network, found) for found in network.problems]


def state_of(found: list[Part]) -> JobState:
    """One state of all parts: running once any has begun, failed if any failed in the end."""
    states = {part.state for part in found}
    if states == {"queued"}:
        return "queued"
    if states & {"queued", "running"}:
        return "running"
    return next(state for state in ("failed", "cancelled", "done") if state in states)


def _part(session: Session, network: models.Network, found: Json) -> Part:
    problem = parse_problem(found["problem"])
    toolchain = network.toolchain.identity
    job = session.scalar(
        select(models.Job)
        .join(models.Job.problem)
        .where(
            models.Problem.key == problem.key,
            models.Job.target == network.target,
            models.Job.toolchain_id == network.toolchain_id,
            models.Job.cache == network.cache,
        )
        .order_by(models.Job.id.desc())
        .limit(1)
    )
    stored = find_fresh(session, problem, network.target, toolchain, network.cache)
    number = None if job is None else job.id
    if job is not None and job.state in ("queued", "running"):
        return Part(found, job.state, number, stored)
    if stored is not None:
        return Part(found, "done", number, stored)
    return Part(found, "failed" if job is None else job.state, number, None)
