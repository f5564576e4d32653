"""Which instruction a schedule multiplies and adds by."""

from tilewise.kernels.instructions import WITH_CHOICE, plain, usable
from tilewise.kernels.nest import nest_of
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.schedule.model import Schedule
from tilewise.kernels.steps import Instruction
from tilewise.kernels.target.model import Target


def instruction_of(problem: Problem, schedule: Schedule, target: Target) -> str:
    """Return the instruction by which the native kernel of a schedule multiplies and adds."""
    if schedule.instruction is not None:
        return schedule.instruction
    dtype = problem.element.name
    if nest_of(problem).group:
        return plain(dtype, target)
    return usable(dtype, target, schedule.lanes > 1)[0]


def with_instruction(problem: Problem, schedule: Schedule, target: Target) -> Schedule:
    """Return a schedule that names its instruction, where it has a choice and names none."""
    has_choice = problem.element.name in WITH_CHOICE and not schedule.transforms
    if not has_choice or schedule.instruction or nest_of(problem).group:
        return schedule
    at = schedule.steps.index(schedule.register)
    step = Instruction(instruction_of(problem, schedule, target))
    return Schedule((*schedule.steps[:at], step, *schedule.steps[at:]))
