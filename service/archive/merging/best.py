"""Best schedules of an archive with their proofs, taken into a store that may have others."""

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from tilewise.service.archive.lines import PastLine, ProofLine, ScheduleLine
from tilewise.service.archive.merging.checks import ELSEWHERE, proof_row
from tilewise.service.archive.merging.merged import Merged, Numbers
from tilewise.service.db import models
from tilewise.service.db.base import now
from tilewise.service.errors import ArchiveError
from tilewise.service.results import history, integrity
from tilewise.service.results.scripts import drop_proofs
from tilewise.service.results.stored import Work


def add_schedule(session: Session, line: ScheduleLine, numbers: Numbers, merged: Merged) -> None:
    """Take in a schedule: the better of what is here and what comes stays, with all proofs.

    The other one goes into the history. What is here and not what was stored gives way, however
    fast it says it is.

    Args:
        session: a transaction that writes.
        line: the schedule.
        numbers: of the rows that it refers to.
        merged: counts it.

    Raises:
        ArchiveError: it or one of its proofs is not what was stored.
    """
    row = _find(session, line, numbers)
    merged.count("schedules", is_new=row is None)
    if row is None:
        row = models.Schedule()
        session.add(row)
        _fill(row, line, numbers)
    else:
        drop_proofs(session, integrity.tampered_proofs(session, row))
        merged.replaced += _merge(session, row, line, numbers)
    if session.is_modified(row):
        _seal(session, row)
    _add_proofs(session, row, line.proofs, merged)


def _seal(session: Session, row: models.Schedule | models.PastSchedule) -> None:
    """Write a row with its digest, as the database gives its values back."""
    session.flush()
    session.refresh(row)
    row.digest = integrity.schedule_digest(Work.of(row), row)
    session.flush()
    if not integrity.is_whole(row):
        raise ArchiveError("it is not what was stored")


def _find(session: Session, line: ScheduleLine, numbers: Numbers) -> models.Schedule | None:
    query = select(models.Schedule).filter_by(**numbers.work(line))
    return session.scalar(query.with_for_update(of=models.Schedule))


def add_past(session: Session, line: PastLine, numbers: Numbers, merged: Merged) -> None:
    """Take in a past result, unless it is here, in the history or as the best."""
    is_new = not _is_here(session, line, numbers)
    merged.count("history", is_new=is_new)
    if is_new:
        _remember(session, line, numbers, was_best=line.was_best, ended_at=line.ended_at)


def _merge(session: Session, row: models.Schedule, line: ScheduleLine, numbers: Numbers) -> bool:
    """Make of two schedules for one piece of work the row; whether it is another one now."""
    is_whole = integrity.is_whole(row)
    budget = max(row.budget, line.budget) if is_whole else line.budget
    is_replaced = not is_whole or _is_better(line, row)
    if is_replaced:
        history.supersede(session, row)
        _fill(row, line, numbers)
    elif not _is_here(session, line, numbers):
        _remember(session, line, numbers, was_best=False, ended_at=now())
    row.budget = budget
    return is_replaced


def _is_here(session: Session, line: ScheduleLine, numbers: Numbers) -> bool:
    """Whether a result of this job and moment is here, as the best or in the history."""
    named = {"job_id": numbers.jobs[line.job].id, "created_at": line.created_at}
    return any(
        session.scalar(select(model.id).filter_by(**numbers.work(line), **named).limit(1))
        is not None
        for model in (models.Schedule, models.PastSchedule)
    )


def _remember(
    session: Session, line: ScheduleLine, numbers: Numbers, *, was_best: bool, ended_at: datetime
) -> None:
    """Add a result to the history, sealed."""
    past = models.PastSchedule(was_best=was_best, ended_at=ended_at, digest="")
    _fill(past, line, numbers)
    session.add(past)
    _seal(session, past)


def _fill(row: models.Schedule | models.PastSchedule, line: ScheduleLine, numbers: Numbers) -> None:
    for name, value in line.model_dump(exclude=ELSEWHERE).items():
        setattr(row, name, value)
    row.problem_id = numbers.problems[line.problem]
    row.toolchain_id = numbers.toolchains[line.toolchain]
    row.machine_id = numbers.machines[line.host]
    row.job_id = numbers.jobs[line.job].id


def _is_better(line: ScheduleLine, row: models.Schedule) -> bool:
    """Whether a result is the better one; of two that are as good, the one that came first."""
    theirs, ours = history.measured_of(line), history.measured_of(row)
    if theirs.supersedes(ours) != ours.supersedes(theirs):
        return theirs.supersedes(ours)
    return line.created_at < row.created_at


def _add_proofs(
    session: Session, row: models.Schedule, proofs: list[ProofLine], merged: Merged
) -> None:
    """Add the proofs that are not here, each with the digest that it came with."""
    query = select(models.Proof.digest, models.Proof.created_at)
    known = {
        tuple(found) for found in session.execute(query.where(models.Proof.schedule_id == row.id))
    }
    new = []
    for proof in proofs:
        is_new = (proof.digest, proof.created_at) not in known
        merged.count("proofs", is_new=is_new)
        if is_new:
            new.append(proof_row(proof, schedule_id=row.id))
    if new:
        session.add_all(new)
        session.flush()
        if integrity.tampered_proofs(session, row):
            raise ArchiveError("a proof of it is not what was proven")
