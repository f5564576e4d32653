"""What a stored trial or search has to be for a search to learn from it.

Types alone do not say it: whoever learns takes logarithms of times and parses problems.
"""

import logging
from math import inf
from typing import TypeGuard

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import parse_target
from tilewise.search.records import Earlier, TrialRecord
from tilewise.service.faults import tell_once

log = logging.getLogger(__name__)


def is_above_0(value: object) -> TypeGuard[float]:
    """Whether a value of the database is a finite number above 0."""
    return isinstance(value, float) and 0 < value < inf


def fault_of(trial: TrialRecord) -> str | None:
    """Why this was never a trial; None for one that may have been."""
    speed = trial.measurement
    if speed is None:
        return None if trial.state == "failed" else f"{trial.state} without a speed"
    if not (is_above_0(speed.time_us) and is_above_0(speed.gflops)):
        return "its time or its speed is not above 0"
    if trial.pace is not None and not is_above_0(trial.pace):
        return "its pace is not above 0"
    return None


def earlier_search(job_id: int, problem: str, target: str, ran: int) -> Earlier | None:
    """A search that others can learn from; None, logged, where nobody can tell what it was for."""
    try:
        parse_target(target)
        return Earlier(job_id, parse_problem(problem), target, ran)
    except KernelsError as error:
        tell_once(log, f"job {job_id} is damaged, so no search learns from it: {error}")
        return None
