"""Which instruction a schedule multiplies and adds by."""

from tilewise.kernels.instructions import WITH_CHOICE, plain, usable
from tilewise.kernels.nest import Nest
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.schedule.apply import loop_nest
from tilewise.kernels.schedule.model import Schedule
from tilewise.kernels.steps import InstructionChoice, Place
from tilewise.kernels.target.model import Target


def instruction_of(nest: Nest, target: Target) -> str:
    """Return the instruction by which the native kernel of a nest multiplies and adds."""
    if nest.compute.instruction is not None:
        return nest.compute.instruction
    dtype = nest.problem.element.name
    if nest.group:
        return plain(dtype, target)
    return usable(dtype, target, nest.compute.lanes > 1)[0]


def with_instruction(problem: Problem, schedule: Schedule, target: Target) -> Schedule:
    """Return a schedule that names its instruction, where it has a choice and names none."""
    if problem.element.name not in WITH_CHOICE:
        return schedule
    nest = loop_nest(problem, schedule)
    if nest.algorithm or nest.group or nest.compute.instruction:
        return schedule
    places = [step.place for step in schedule.steps]
    at, step = places.index(Place.REGISTER), InstructionChoice(instruction_of(nest, target))
    return Schedule((*schedule.steps[:at], step, *schedule.steps[at:]))
