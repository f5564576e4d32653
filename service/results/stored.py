"""Stored proofs with their scripts, fetched in one query however many there are."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, contains_eager

from tilewise.schema.base import Match
from tilewise.search.records import CacheMode
from tilewise.service.db import models
from tilewise.service.db.rows import given

_PROBLEMS, _TOOLCHAINS = models.Problem.__table__, models.Toolchain.__table__
_SCHEDULES, _SCRIPTS, _PROOFS = (
    models.Schedule.__table__,
    models.Script.__table__,
    models.Proof.__table__,
)
_SCRIPT, _PROOF = _SCRIPTS.c, _PROOFS.c
_SEARCHED = ("cpu", "iree-spec")


@dataclass(frozen=True)
class ResultKey:
    """What a stored row is a result of; `key` and `canonical` are those of the problem's row."""

    key: str
    canonical: str
    target: str
    toolchain: str
    cache: str

    @classmethod
    def of(
        cls, row: models.Schedule | models.PastSchedule | models.TunedRange | models.Job
    ) -> "ResultKey":
        """Return the work that a schedule or a job belongs to."""
        problem = row.problem
        return cls(problem.key, problem.canonical, row.target, row.toolchain.identity, row.cache)


@dataclass(frozen=True)
class Lookup:
    """A look-up; `cache` None prefers hot over cold."""

    target: str
    toolchain: str
    cache: CacheMode | None = None
    match: Match = "exact"

    @classmethod
    def of(cls, job: models.Job) -> "Lookup":
        """Return the look-up of the results of a job's work."""
        return cls(job.target, job.toolchain.identity, job.cache)


_WITH_SCRIPT = (
    sa.select(models.Proof)
    .outerjoin(models.Proof.script)
    .options(contains_eager(models.Proof.script))
    .execution_options(populate_existing=True)
)

FASTEST = (_PROOF.gflops.desc().nulls_last(), _PROOF.id)
"""The order of proofs of which the first one's script is served."""


def named(schedule: str) -> str:
    """Return how the message of a proof begins that has no script to name its schedule."""
    return f"schedule {schedule}: "


def why_not_own(session: Session, schedule_id: int, name: str) -> str | None:
    """Return why a schedule's own script is not served; None if nothing of it is stored.

    `name` is the hash of the schedule.
    """
    for proof in reversed(all_proofs(session, schedule_id)):
        if proof.ok:
            continue
        if proof.script is not None and proof.script.hash == name:
            return f"{proof.failure}: {proof.message}"
        if proof.script is None and proof.message.startswith(named(name)):
            return proof.message.removeprefix(named(name))
    return None


def among(
    session: Session, column: sa.ColumnElement[Any], values: Collection[Any]
) -> sa.ColumnElement[bool]:
    """Return the condition that a column has one of some values.

    A server gets them as one array: its driver takes longer over hundreds of parameters than the
    server over the question.
    """
    if session.get_bind().dialect.name != "postgresql":
        return column.in_(values)
    return column == sa.any_(sa.cast(list(values), sa.ARRAY(column.type)))


def best_first(present: str | sa.BindParameter[str]) -> tuple[sa.ColumnElement[Any], ...]:
    """Return the order of stored schedules: current toolchain, hot, and newest first."""
    return (
        (_TOOLCHAINS.c.identity == present).desc(),
        (_SCHEDULES.c.cache == "hot").desc(),
        _SCHEDULES.c.created_at.desc(),
    )


def best_proof(
    session: Session, key: str, lookup: Lookup, flavor: str
) -> tuple[ResultKey, models.Proof | None] | None:
    """Return the best schedule's work and the proof of its fastest script, in one query."""
    of_work = {"target": lookup.target, "toolchain": lookup.toolchain}
    query = _BEST_PROOF.where(*given((_SCHEDULES.c.cache, lookup.cache)))
    row = session.execute(query, {"key": key, "flavor": flavor, **of_work}).first()
    return None if row is None else (ResultKey(*row[1:]), row[0])


def all_proofs(session: Session, schedule_id: int) -> list[models.Proof]:
    """Return all proofs of a schedule in the order in which they were stored."""
    return list(session.scalars(_of(schedule_id).order_by(_PROOF.id)))


def fastest_proof(session: Session, schedule_id: int, flavor: str) -> models.Proof | None:
    """Return the proof of the schedule's fastest proven script of a flavor."""
    query = _of(schedule_id).where(_PROOF.ok, _SCRIPT.flavor == flavor).order_by(*FASTEST)
    return session.scalar(query.limit(1))


def fastest_proofs(
    session: Session, schedule_ids: Collection[int], flavor: str
) -> dict[int, models.Proof]:
    """Return the result of `fastest_proof` for each schedule that has one, in one query."""
    of_these = among(session, _PROOF.schedule_id, schedule_ids)
    query = _WITH_SCRIPT.where(of_these, _PROOF.ok, _SCRIPT.flavor == flavor)
    found: dict[int, models.Proof] = {}
    for proof in session.scalars(query.order_by(*FASTEST)):
        found.setdefault(proof.schedule_id, proof)
    return found


def latest_failure(session: Session, schedule_id: int, flavor: str) -> models.Proof | None:
    """Return the latest failed proof of a flavor."""
    query = _of(schedule_id).where(~_PROOF.ok, _SCRIPT.flavor == flavor).order_by(_PROOF.id.desc())
    return session.scalar(query.limit(1))


def shown_proofs(session: Session, schedule_ids: Collection[int]) -> dict[int, models.Proof]:
    """Return each schedule's proof of its search's flavor, else its latest failure."""
    served_first = sa.func.row_number().over(
        partition_by=_PROOF.schedule_id,
        order_by=(
            _PROOF.ok.desc(),
            _PROOF.gflops.desc().nulls_last(),
            sa.case((_PROOF.ok, _PROOF.id), else_=-_PROOF.id),
        ),
    )
    # A schedule has scripts of one of the searched flavors alone, by its target.
    is_searched = sa.or_(_SCRIPT.flavor.in_(_SEARCHED), _PROOF.script_id.is_(None))
    ranked = (
        sa.select(_PROOF.id, served_first.label("place"))
        .select_from(_PROOFS.outerjoin(_SCRIPTS, _PROOF.script_id == _SCRIPT.id))
        .where(among(session, _PROOF.schedule_id, schedule_ids), is_searched)
        .subquery()
    )
    query = _WITH_SCRIPT.join(ranked, ranked.c.id == _PROOF.id).where(ranked.c.place == 1)
    return {proof.schedule_id: proof for proof in session.scalars(query)}


def _of(schedule_id: int) -> sa.Select[models.Proof]:
    return _WITH_SCRIPT.where(_PROOF.schedule_id == schedule_id)


def _best_proof() -> sa.Select[Any]:
    """Of a problem on a target: the best schedule first, and its fastest proven script first."""
    problems, schedules, toolchains = _PROBLEMS.c, _SCHEDULES.c, _TOOLCHAINS.c
    spelled = _SCRIPTS.alias()
    of_flavor = sa.exists().where(
        spelled.c.id == _PROOF.script_id, spelled.c.flavor == sa.bindparam("flavor")
    )
    is_proven = sa.and_(_PROOF.schedule_id == schedules.id, _PROOF.ok, of_flavor)
    work = problems.key, problems.canonical, schedules.target, toolchains.identity, schedules.cache
    return (
        sa.select(models.Proof, *work)
        .select_from(
            _PROBLEMS.join(_SCHEDULES, schedules.problem_id == problems.id)
            .join(_TOOLCHAINS, schedules.toolchain_id == toolchains.id)
            .outerjoin(_PROOFS, is_proven)
            .outerjoin(_SCRIPTS, _SCRIPT.id == _PROOF.script_id)
        )
        .options(contains_eager(models.Proof.script))
        .execution_options(populate_existing=True)
        .where(problems.key == sa.bindparam("key"), schedules.target == sa.bindparam("target"))
        .order_by(*best_first(sa.bindparam("toolchain")), *FASTEST)
        .limit(1)
    )


_BEST_PROOF = _best_proof()
