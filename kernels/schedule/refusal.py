"""How a step is refused."""

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.schedule.steps.base import Step


def refuse(problem: Problem, step: Step, why: str) -> ScheduleError:
    """The error that names the step, the problem, and why the one does not go with the other."""
    return ScheduleError(f"step '{step}' cannot be applied to {problem}: {why}")
