"""Candidates of distributed searches: the leader offers them, helpers try them.

Only a call of the leader, which carries the epoch of its run, makes a trial of an answer. A
candidate is a helper's or the leader's: one that its helper has lost goes back to the leader, and
an answer that comes after that is dropped. So each counts once. Every call may be sent twice.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import ColumnElement, and_, func, insert, or_, select, update
from sqlalchemy.orm import Session

from tilewise.search.helpers import Exchanged, Helped, RemoteTrial
from tilewise.service.db import models
from tilewise.service.db.base import now
from tilewise.service.db.trials import readable
from tilewise.service.db.trials import row as trial_row
from tilewise.service.errors import ConflictError
from tilewise.service.jobs import lease
from tilewise.service.jobs.lease import Lease
from tilewise.service.jobs.trial_store import extent
from tilewise.service.runs import helper_offers
from tilewise.service.runs.wire import CandidateWire, TrialWire

LEADER = "leader"
SHOWN = 12  # digits of an offer's digest that name a machine

Of = models.Candidate
_OPEN = and_(Of.answer.is_(None), Of.trial.is_(None))
_IS_OUT = and_(Of.trial.is_(None), or_(Of.taken_by.is_(None), Of.taken_by != LEADER))


def exchange(
    session: Session,
    held: Lease,
    offered: Sequence[RemoteTrial],
    back: Collection[int],
    late: timedelta,
) -> None:
    """Store what the leader says: new candidates, and numbers that it takes back.

    A helper that had a candidate for longer than `late` has lost it. Raises LeaseLostError.
    """
    of_run = _of_run(held)
    query = select(Of).where(of_run, Of.answer.is_not(None), Of.trial.is_(None))
    answered = list(session.scalars(query.order_by(Of.number)))
    lease.beat(session, held, has_trial=bool(answered))
    _put_out(session, held, offered)
    _take_back(session, held, of_run, back, late)
    _store(session, held, answered)


def used(session: Session, held: Lease, offered: Collection[int], budget: int) -> tuple[int, int]:
    """Return how much of a job's budget is used, and the largest number of a trial, or -1.

    Counted are trials, and candidates that are with helpers, wait for one, or are `offered` now.
    """
    known = select(Of.number, Of.trial, Of.taken_by).where(_of_run(held))
    rows = session.execute(known).all()
    out = {row.number for row in rows if row.trial is None and row.taken_by != LEADER}
    new = set(offered) - {row.number for row in rows}
    trials, last = extent(session, held.job_id, budget)
    return trials + len(out | new), last


def outcome(session: Session, held: Lease, start: int) -> Exchanged:
    """Return the results of all exchanges of the run, from trial `start`.

    It only reads, so that no writer waits meanwhile.
    """
    of_run = _of_run(held)
    out = session.scalars(select(Of.number).where(of_run, _IS_OUT))
    helpers = helper_offers.count(session, held.job_id, held.epoch)
    return Exchanged(_helped(session, held, of_run, start), set(out), helpers)


def _of_run(held: Lease) -> ColumnElement[bool]:
    return and_(Of.job_id == held.job_id, Of.epoch == held.epoch)


def _put_out(session: Session, held: Lease, offered: Sequence[RemoteTrial]) -> None:
    numbers = [candidate.number for candidate in offered]
    query = select(Of.number).where(
        Of.job_id == held.job_id, Of.epoch == held.epoch, Of.number.in_(numbers)
    )
    known = set(session.scalars(query))
    rows = [
        {
            "job_id": held.job_id,
            "epoch": held.epoch,
            "number": candidate.number,
            "asked": CandidateWire.model_validate(candidate).model_dump_json(),
        }
        for candidate in offered
        if candidate.number not in known
    ]
    if rows:
        session.execute(insert(Of), rows)


def _take_back(
    session: Session,
    held: Lease,
    of_run: ColumnElement[bool],
    back: Collection[int],
    late: timedelta,
) -> None:
    """Give the leader what it requests and nobody has begun, and what helpers have lost."""
    helpers = select(models.Offer.digest).where(
        models.Offer.job_id == held.job_id, models.Offer.role == "helper"
    )
    is_lost = or_(Of.taken_at < now() - late, Of.taken_by.not_in(helpers))
    is_requested = and_(Of.taken_by.is_(None), Of.number.in_(back))
    is_with_helper = and_(Of.taken_by.is_not(None), Of.taken_by != LEADER)
    statement = (
        update(Of)
        .where(of_run, _OPEN, or_(is_requested, and_(is_with_helper, is_lost)))
        .values(taken_by=LEADER)
        .execution_options(synchronize_session=False)
    )
    session.execute(statement)


def _store(session: Session, held: Lease, answered: Sequence[models.Candidate]) -> None:
    """Make trials of answers, under the next numbers."""
    if not answered:
        return
    query = select(func.max(models.Trial.number)).where(models.Trial.job_id == held.job_id)
    last = session.scalar(query)
    trials, stored = [], []
    for number, row in enumerate(answered, start=0 if last is None else last + 1):
        trial = TrialWire.model_validate_json(row.answer or "")
        trials.append(trial_row(held.job_id, replace(trial.record(), number=number)))
        stored.append({"id": row.id, "trial": number, "asked": "", "answer": None})
    session.execute(insert(models.Trial), trials)
    session.execute(update(Of), stored)


def _helped(session: Session, held: Lease, of_run: ColumnElement[bool], start: int) -> list[Helped]:
    """The trials from a number on that came of candidates, whichever call has stored them."""
    is_its = and_(models.Trial.job_id == held.job_id, models.Trial.number == Of.trial)
    query = (
        select(Of.number, Of.answered_by, models.Trial)
        .join(models.Trial, is_its)
        .where(of_run, Of.trial >= start)
        .order_by(Of.trial)
    )
    found = [
        (number, place, readable(trial)) for number, place, trial in session.execute(query).all()
    ]
    return [
        Helped(number, trial, (place or "")[:SHOWN])
        for number, place, trial in found
        if trial is not None
    ]


def has_any(session: Session, offer: models.Offer) -> bool:
    """Return whether `take` may find a candidate, without writing."""
    is_its = or_(Of.taken_by.is_(None), Of.taken_by == offer.digest)
    query = select(Of.id).where(Of.job_id == offer.job_id, Of.epoch == offer.epoch, _OPEN, is_its)
    return session.scalar(query.limit(1)) is not None


def answer(session: Session, offer: models.Offer, trial: TrialWire) -> None:
    """Store a helper's answer to its candidate; drop that of any other.

    `trial` has the candidate's number. Raises ConflictError if it is of another schedule.
    """
    query = select(Of).where(
        Of.job_id == offer.job_id,
        Of.epoch == offer.epoch,
        Of.number == trial.number,
        Of.taken_by == offer.digest,
        _OPEN,
    )
    row = session.scalar(query.with_for_update())
    if row is None:
        return
    candidate = CandidateWire.model_validate_json(row.asked)
    if (candidate.schedule, candidate.params, candidate.origin) != (
        trial.schedule,
        trial.params,
        trial.origin,
    ):
        raise ConflictError(
            f"candidate {trial.number} of job {offer.job_id} is not what was tried under its number"
        )
    row.answer, row.answered_by = trial.model_dump_json(), offer.digest


def take(session: Session, offer: models.Offer, wants: int) -> list[CandidateWire]:
    """Return the candidates of a helper, after giving it waiting ones up to `wants`, in order."""
    of_run = and_(Of.job_id == offer.job_id, Of.epoch == offer.epoch, _OPEN)
    mine = list(session.scalars(select(Of).where(of_run, Of.taken_by == offer.digest)))
    if len(mine) < wants:
        waiting = select(Of).where(of_run, Of.taken_by.is_(None)).order_by(Of.number)
        free = waiting.limit(wants - len(mine)).with_for_update(skip_locked=True)
        for row in session.scalars(free):
            row.taken_by, row.taken_at = offer.digest, now()
            mine.append(row)
    mine.sort(key=lambda row: row.number)
    return [CandidateWire.model_validate_json(row.asked) for row in mine]
