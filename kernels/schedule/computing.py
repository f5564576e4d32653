"""Which instruction a schedule multiplies and adds by."""

from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.iteration import IterationSpace, iteration_space
from tilewise.kernels.schedule.model import Schedule
from tilewise.kernels.schedule.refusal import refuse
from tilewise.kernels.schedule.steps.register import Instruction, Register
from tilewise.kernels.target.instructions import WITH_CHOICE, known, plain, usable
from tilewise.kernels.target.model import Target


def check_instruction(
    problem: Problem, space: IterationSpace, schedule: Schedule, step: Instruction
) -> None:
    """Raise unless a step names an instruction for the problem, directly before the register step.

    Raises:
        ScheduleError: names the step, the problem and the way out.
    """
    dtype, is_split = problem.element.name, schedule.lanes > 1
    if dtype not in WITH_CHOICE or space.spans_groups or schedule.transforms:
        raise refuse(problem, step, "there is one way to multiply here; drop the step")
    if sum(isinstance(s, Instruction) for s in schedule.steps) > 1:
        raise refuse(problem, step, "a kernel has one instruction; give the step once")
    if not isinstance(schedule.steps[schedule.steps.index(step) + 1], Register):
        raise refuse(problem, step, "it stands directly before the register step")
    names = known(dtype, is_split)
    if step.op not in names:
        form = "a split reduction" if is_split else "a reduction that is not split"
        raise refuse(problem, step, f"{form} of {dtype} has {', '.join(names)}")


def instruction_of(problem: Problem, schedule: Schedule, target: Target) -> str:
    """Return the instruction by which the native kernel of a schedule multiplies and adds."""
    if schedule.instruction is not None:
        return schedule.instruction
    dtype = problem.element.name
    if iteration_space(problem).spans_groups:
        return plain(dtype, target)
    return usable(dtype, target, schedule.lanes > 1)[0]


def with_instruction(problem: Problem, schedule: Schedule, target: Target) -> Schedule:
    """Return a schedule that names its instruction, where it has a choice and names none."""
    has_choice = problem.element.name in WITH_CHOICE and not schedule.transforms
    if not has_choice or schedule.instruction or iteration_space(problem).spans_groups:
        return schedule
    at = schedule.steps.index(schedule.register)
    step = Instruction(instruction_of(problem, schedule, target))
    return Schedule((*schedule.steps[:at], step, *schedule.steps[at:]))
