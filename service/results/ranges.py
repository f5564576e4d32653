"""Stored ranges of sizes: the variants that serve them, and answers for single sizes."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, combinations
from typing import Any

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.orm import Session

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import MOST_DIMS, Problem, ProblemRange, parse_range
from tilewise.search.ranges.result import RangeResult, contains
from tilewise.service.db import models
from tilewise.service.db.rows import WORK, given, same_work
from tilewise.service.errors import TamperedError
from tilewise.service.results import integrity
from tilewise.service.results.schedules import find_fresh
from tilewise.service.results.stored import Lookup, ResultKey


def family_of(problem: Problem, dims: Sequence[str]) -> str:
    """Return the SHA-256 of a problem without some sizes, which ranges that contain it share."""
    text = json.dumps(problem.to_json() | dict.fromkeys(dims), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def find_range(session: Session, key: str, lookup: Lookup) -> models.TunedRange | None:
    """Return what is stored of the range with a key, as `schedules.find_schedule` chooses."""
    newest = models.TunedRange.created_at.desc()
    return next(iter(_best_first(session, models.Problem.key == key, lookup, newest)), None)


def find_containing(
    session: Session, problem: Problem | ProblemRange, lookup: Lookup
) -> models.TunedRange | None:
    """Return the stored range with the least loss that contains a problem or a range.

    Damaged ranges do not.
    """
    one = problem.smallest if isinstance(problem, ProblemRange) else problem
    dims = ProblemRange.DIMS.get(one.op, ())
    varied = chain.from_iterable(combinations(dims, n + 1) for n in range(MOST_DIMS))
    families = [family_of(one, some) for some in varied]
    stored = models.TunedRange
    least = stored.loss_mean, stored.created_at.desc()
    for row in _best_first(session, stored.family.in_(families), lookup, *least):
        with suppress(TamperedError):
            if contains(result_of(row).schedule.problems, problem):
                return row
    return None


def _best_first(
    session: Session, wanted: ColumnElement[bool], lookup: Lookup, *last: Any
) -> Sequence[models.TunedRange]:
    """Return wanted rows of a target: the toolchain's, hot ones first, then in the order `last`."""
    row = models.TunedRange
    of_work = given((row.target, lookup.target), (row.cache, lookup.cache))
    query = select(row).join(row.problem).join(row.toolchain).where(wanted, *of_work)
    is_present = models.Toolchain.identity == lookup.toolchain
    return session.scalars(
        query.order_by(is_present.desc(), (row.cache == "hot").desc(), *last)
    ).all()


def result_of(row: models.TunedRange) -> RangeResult:
    """Return the result of a stored range; raise TamperedError if the row was changed."""
    integrity.check_result(row)
    try:
        problems = parse_range(row.problem.canonical)
        return RangeResult.from_json(problems, row.result)
    except (KernelsError, KeyError, TypeError) as error:
        fault = f"its result cannot be read: {error}"
        raise integrity.refusal(row.__tablename__, row.id, fault) from error


def store_range(
    session: Session, job: models.Job, result: RangeResult, machine_id: int
) -> models.TunedRange:
    """Store a job's result in place of an earlier one; its budget is the least of its samples."""
    problems = result.schedule.problems
    samples = (problems.at(sample.size) for sample in result.samples)
    stored = (find_fresh(session, sample, Lookup.of(job)) for sample in samples)
    budget = min((row.budget for row in stored if row is not None), default=job.trials)
    job.complete = budget >= job.trials  # not where the seconds were too few
    session.execute(delete(models.TunedRange).where(*same_work(models.TunedRange, job)))
    row = models.TunedRange(
        **{name: getattr(job, name) for name in WORK},
        problem=job.problem,
        toolchain=job.toolchain,
        machine_id=machine_id,
        job_id=job.id,
        family=family_of(problems.smallest, problems.dims),
        result=result.to_json(),
        loss_mean=result.loss.geometric_mean,
        loss_worst=result.loss.worst,
        budget=budget,
        elapsed_s=job.elapsed_s,
    )
    row.digest = integrity.result_digest(ResultKey.of(row), row)
    session.add(row)
    session.flush()
    return row
