"""Predicted schedules of problems without stored results."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import and_, false, or_, select
from sqlalchemy.orm import Session

from tilewise.kernels.problem import Problem
from tilewise.schema.base import Json
from tilewise.search.records import Solved
from tilewise.service.db import models
from tilewise.service.db.trials import earlier_search, is_above_0

if TYPE_CHECKING:  # it loads NumPy, which other answers do without
    from tilewise.search.predictor.predictor import Prediction


MOST_WINNERS = 512  # results that a look-up learns from


def winners(session: Session, problems: Sequence[Problem], target: str) -> list[Solved]:
    """Return the newest results for operations of `problems`, each with its fastest point."""
    problem, result, trial = models.Problem.canonical, models.Schedule, models.Trial
    operations = {f"{one.op}:" for one in problems}
    query = (
        select(result.job_id, problem, result.time_us, trial.params)
        .join(result.problem)
        .join(trial, and_(trial.job_id == result.job_id, trial.hash == result.hash))
        .where(result.target == target, result.cache == "hot")
        .where(or_(false(), *map(problem.startswith, operations)))
        .order_by(result.id.desc())
        .limit(MOST_WINNERS)
    )
    found: dict[str, Solved] = {}
    for job_id, canonical, time_us, params in session.execute(query):
        known = earlier_search(job_id, canonical, target, 1)
        if known is not None and isinstance(params, dict) and is_above_0(time_us):
            found.setdefault(canonical, Solved(known.problem, target, ((params, time_us),)))
    return list(found.values())


def predicted(
    problems: Sequence[Problem], target: str, near: Sequence[Solved] = ()
) -> list[Json | None]:
    """Return a predicted schedule of each problem; None where none can be predicted."""
    from tilewise.search.predictor.predictor import in_use

    predictor = in_use()
    where = predictor.target(target)
    if where is None:
        return [None] * len(problems)
    found = predictor.predict(problems, where, near)
    return [None if one is None else prediction_json(one) for one in found]


def prediction_json(one: "Prediction") -> Json:
    """Return a prediction as the API has it."""

    def gflops(time_us: float) -> float:
        return one.problem.flops / time_us / 1e3

    return {
        "hash": one.schedule.hash,
        "steps": one.schedule.to_json(),
        "gflops": one.time_us and gflops(one.time_us),
        "interval": one.interval_us and [gflops(time) for time in reversed(one.interval_us)],
        "time_us": one.time_us,
        "grade": "predicted",
    }
