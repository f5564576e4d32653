"""Predicted schedules of problems that nothing is stored of."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewise.kernels.problem import Problem

if TYPE_CHECKING:  # it loads NumPy, which other answers do without
    from tilewise.search.predictor.predictor import Prediction

Json = dict[str, Any]


def predicted(problems: Sequence[Problem], target: str) -> list[Json | None]:
    """Return a predicted schedule of each problem; None where none can be predicted."""
    from tilewise.search.predictor.predictor import in_use

    predictor = in_use()
    where = predictor.target(target)
    if where is None:
        return [None] * len(problems)
    found = predictor.predict(problems, where)
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
