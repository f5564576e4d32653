"""Repeated requests, recognised by a key that the client chose.

The header is that of the IETF's draft-ietf-httpapi-idempotency-key-header.
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from tilewise.kernels.problem import Problem, ProblemRange
from tilewise.search.records import TuneRequest
from tilewise.service.db import models
from tilewise.service.db.base import now
from tilewise.service.db.rows import inserted
from tilewise.service.errors import KeyReusedError

KEPT = timedelta(hours=24)


@dataclass(frozen=True)
class RequestKey:
    """A client's name for one request, unique per `subject`; `request` is its SHA-256."""

    subject: str
    key: str
    request: str


def digest_of(
    problem: Problem | ProblemRange,
    target: str,
    request: TuneRequest,
    again: bool = False,
    kind: str = "tune",
) -> str:
    """Return the SHA-256 of a requested search, independent of its spelling, hex."""
    more = ({"again": True} if again else {}) | ({"kind": kind} if kind != "tune" else {})
    wanted = [problem.canonical, target, request.to_json() | more]
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()


def answered(session: Session, given: RequestKey) -> models.Job | None:
    """Return the job that answered this key, or None.

    Raises KeyReusedError if the key belongs to another request.
    """
    row = session.scalar(
        select(models.IdempotencyKey).where(
            models.IdempotencyKey.subject == given.subject, models.IdempotencyKey.key == given.key
        )
    )
    if row is None or row.created_at < now() - KEPT:
        return None
    if row.request != given.request:
        raise KeyReusedError(
            f"the key belongs to another request of the last {KEPT.total_seconds() / 3600:.0f} h; "
            "give each request a key of its own"
        )
    return None if row.job_id is None else session.get(models.Job, row.job_id)


def remember(session: Session, given: RequestKey, job: models.Job | None) -> bool:
    """Store the answer of a key and forget old keys; return False if another process was first."""
    session.execute(
        delete(models.IdempotencyKey).where(models.IdempotencyKey.created_at < now() - KEPT)
    )
    made = models.IdempotencyKey(
        subject=given.subject,
        key=given.key,
        request=given.request,
        job_id=None if job is None else job.id,
    )
    is_first = inserted(session, made)
    if not is_first:
        session.expire_all()
    return is_first
