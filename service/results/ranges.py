"""Stored ranges of sizes: the variants that serve them, and answers for single sizes."""

import hashlib
import json
from collections.abc import Sequence
from itertools import chain, combinations
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import MOST_DIMS, Problem, ProblemRange, parse_range
from tilewise.kernels.system.toolchain import identity
from tilewise.search.ranges.result import RangeResult, contains
from tilewise.search.records import CacheMode
from tilewise.service.db import models
from tilewise.service.errors import TamperedError
from tilewise.service.results import integrity
from tilewise.service.results.stored import ResultKey

Json = dict[str, Any]


def family_of(problem: Problem, dims: Sequence[str]) -> str:
    """Return the SHA-256 of a problem without some sizes, which ranges that contain it share."""
    text = json.dumps(problem.to_json() | dict.fromkeys(dims), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def find_range(
    session: Session,
    problems: ProblemRange | str,
    target: str,
    toolchain: str | None = None,
    cache: CacheMode | None = None,
) -> models.TunedRange | None:
    """Return what is stored of a range (or its key), as `schedules.find_schedule` chooses."""
    key = problems if isinstance(problems, str) else problems.key
    query = select(models.TunedRange).join(models.TunedRange.problem)
    query = query.where(models.Problem.key == key)
    found = _best_first(session, query, target, toolchain, cache)
    return found[0] if found else None


def find_containing(
    session: Session,
    problem: Problem | ProblemRange,
    target: str,
    toolchain: str | None = None,
    cache: CacheMode | None = None,
) -> models.TunedRange | None:
    """Return the stored range with the least loss that contains a problem or a range.

    Damaged ranges do not.
    """
    one = problem.smallest if isinstance(problem, ProblemRange) else problem
    dims = ProblemRange.DIMS.get(one.op, ())
    varied = chain.from_iterable(combinations(dims, n + 1) for n in range(MOST_DIMS))
    families = [family_of(one, some) for some in varied]
    query = select(models.TunedRange).where(models.TunedRange.family.in_(families))
    for row in _best_first(session, query, target, toolchain, cache):
        try:
            if contains(result_of(row).schedule.problems, problem):
                return row
        except TamperedError:
            continue
    return None


def _best_first(
    session: Session,
    query: Select[models.TunedRange],
    target: str,
    toolchain: str | None,
    cache: CacheMode | None,
) -> Sequence[models.TunedRange]:
    """Return rows of a target: the present toolchain's, hot ones, those of least loss first."""
    row = models.TunedRange
    query = query.join(row.toolchain).where(row.target == target)
    if cache is not None:
        query = query.where(row.cache == cache)
    is_present = models.Toolchain.identity == (toolchain or identity())
    order = is_present.desc(), (row.cache == "hot").desc(), row.loss_mean, row.created_at.desc()
    return session.scalars(query.order_by(*order)).all()


def result_of(row: models.TunedRange) -> RangeResult:
    """Return the result of a stored range; raise TamperedError if the row was changed."""
    integrity.check_result(row)
    try:
        problems = parse_range(row.problem.canonical)
        return RangeResult.from_json(problems, row.result, row.elapsed_s)
    except (KernelsError, KeyError, TypeError) as error:
        fault = f"its result cannot be read: {error}"
        raise integrity.refusal(row.__tablename__, row.id, fault) from error


def store_range(
    session: Session, job: models.Job, result: RangeResult, machine_id: int
) -> models.TunedRange:
    """Store the result of a job; it replaces an earlier one of the same work."""
    problems = result.schedule.problems
    same = {
        "problem_id": job.problem_id,
        "target": job.target,
        "toolchain_id": job.toolchain_id,
        "cache": job.cache,
    }
    earlier = session.scalar(select(models.TunedRange).filter_by(**same).with_for_update())
    if earlier is not None:
        session.delete(earlier)
        session.flush()
    row = models.TunedRange(
        **same,
        problem=job.problem,
        toolchain=job.toolchain,
        machine_id=machine_id,
        job_id=job.id,
        family=family_of(problems.smallest, problems.dims),
        result=result.to_json(),
        loss_mean=result.loss.geometric_mean,
        loss_worst=result.loss.worst,
        budget=job.trials,
        elapsed_s=job.elapsed_s,
    )
    row.digest = integrity.result_digest(ResultKey.of(row), row)
    session.add(row)
    session.flush()
    return row
