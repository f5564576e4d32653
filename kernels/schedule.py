"""Schedules: short tuples of frozen steps, outermost first, independent of the target.

`loop_nest` returns the loop nest that a schedule makes of a problem, and so says whether it is
legal; every consumer of a schedule begins with it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.instructions import WITH_CHOICE, Form, instructions, plain
from tilewise.kernels.nest import LoopKind, Nest, Role, nest_of
from tilewise.kernels.problem import Problem
from tilewise.kernels.steps import (
    MOST_ROWS_OF_B,
    STEP_OF_CHOICE,
    AlgorithmStep,
    Fuse,
    InstructionChoice,
    Jam,
    KStreams,
    Nontemporal,
    Pack,
    Parallel,
    Part,
    Place,
    Prefetch,
    Register,
    Skinny,
    Split,
    Step,
    StepJson,
    StepPhase,
    Strassen,
    Stream,
    Tile,
    Unroll,
    Winograd,
    check_place,
    kind_named,
    step_from_json,
)
from tilewise.kernels.target import Target

__all__ = [
    "Fuse",
    "InstructionChoice",
    "KStreams",
    "Jam",
    "Nontemporal",
    "Pack",
    "Parallel",
    "Prefetch",
    "Register",
    "Schedule",
    "Split",
    "Step",
    "Strassen",
    "Stream",
    "Skinny",
    "Tile",
    "Unroll",
    "Winograd",
    "begin",
    "check_legal",
    "chosen",
    "fast_algorithm",
    "has_choice",
    "instruction_of",
    "loop_nest",
    "steps_hash",
    "with_instruction",
    "with_panels_fetched",
]

_compact = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def steps_hash(steps: list[StepJson]) -> str:
    """Return the first 16 hex digits of the SHA-256 of the compact JSON; stable across runs."""
    return hashlib.sha256(_compact(steps).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Schedule:
    """Steps, outermost first. Equal steps mean equal schedules, whatever made them."""

    steps: tuple[Step, ...]

    def to_json(self) -> list[StepJson]:
        """Return the steps as a JSON array."""
        return [step.to_json() for step in self.steps]

    @classmethod
    def from_json(cls, source: object) -> "Schedule":
        """Return the schedule of an array of steps; ScheduleError when it is not one."""
        if not isinstance(source, Iterable) or isinstance(source, str | bytes | dict):
            raise ScheduleError(f"a schedule is an array of steps, not {type(source).__name__}")
        return cls(tuple(step_from_json(item) for item in source))

    @property
    def hash(self) -> str:
        """Return the hash of the steps; equal schedules have equal ones."""
        return steps_hash(self.to_json())

    def __str__(self) -> str:
        return "\n".join(str(step) for step in self.steps)

    @property
    def algorithm(self) -> AlgorithmStep | None:
        """Return the step that does fewer multiplications than the direct method, if any."""
        return next((step for step in self.steps if isinstance(step, AlgorithmStep)), None)


def fast_algorithm(steps: Iterable[Mapping[str, object]]) -> str | None:
    """Return the name of the step that does fewer multiplications than the direct method, if any.

    Args:
        steps: as JSON has them, also those of another version.
    """
    names = [str(step.get("step")) for step in steps]
    fast = (name for name in names if issubclass(kind_named(name) or Step, AlgorithmStep))
    return next(fast, None)


@lru_cache(maxsize=1024)
def loop_nest(problem: Problem, schedule: Schedule) -> Nest:
    """Return the loop nest of a schedule.

    Raises:
        ScheduleError: a step cannot be applied; names the step, the problem and the way out.
    """
    _check_order(nest_of(problem), schedule.steps)
    steps = sorted(schedule.steps, key=lambda step: step.phase)
    first = tuple(step for step in steps if step.phase <= StepPhase.MICRO_KERNEL)
    nest = _applied(begin(problem, *first), steps[len(first) :])
    _check_complete(nest)
    return nest


@lru_cache(maxsize=1024)
def begin(problem: Problem, *steps: Step) -> Nest:
    """Return the nest of an algorithm and a register tile: what blocks are multiples of.

    Thousands of the schedules of a search share these steps. Others are ignored.

    Raises:
        ScheduleError: a step cannot be applied.
    """
    first = [step for step in steps if step.phase <= StepPhase.MICRO_KERNEL]
    return _applied(nest_of(problem), sorted(first, key=lambda step: step.phase))


def check_legal(problem: Problem, schedule: Schedule) -> None:
    """Raise unless `schedule` can be applied to `problem`.

    Raises:
        ScheduleError: names the step, the problem and the way out.
    """
    loop_nest(problem, schedule)


def chosen(problem: Problem, choices: Mapping[str, Any]) -> Part:
    """Return the steps that choices make (`Step.chosen`), and the part that they leave to a thread.

    The algorithm and the micro-kernel are chosen first, since blocks are multiples of their sizes.

    Args:
        problem: what is computed.
        choices: by name, in the order of the steps in the schedule.

    Raises:
        KeyError: no step is made of a choice.
        ScheduleError: the algorithm or the micro-kernel cannot be applied.
    """
    direct = nest_of(problem)
    plain = Part(direct, direct.extents)
    made: dict[str, list[Step]] = {}
    first: list[Step] = []
    for name, value in choices.items():
        kind = STEP_OF_CHOICE[name]
        if _comes_first(kind):
            made[name] = list(kind.chosen(name, value, plain))
            first += made[name]
    nest = begin(problem, *first)
    part = Part(nest, dict(nest.extents))
    for name, value in choices.items():
        steps = made.get(name)
        part.steps += STEP_OF_CHOICE[name].chosen(name, value, part) if steps is None else steps
    return part


@cache
def _comes_first(kind: type[Step]) -> bool:
    return kind.place.phase <= StepPhase.MICRO_KERNEL


def with_panels_fetched(schedule: Schedule) -> Schedule:
    """Return a schedule that fetches panels of B ahead, and packs B if it did not.

    A skinny GEMM reads B in place by its nature, and stays as it is.
    """
    steps, pack = schedule.steps, Pack("B")
    if Prefetch("B") in steps:
        return schedule
    if pack not in steps:
        places = [step.place for step in steps]
        if Place.SKINNY in places:
            return schedule
        inner = (i for i, place in enumerate(places) if place >= Place.INSTRUCTION)
        at = next(inner, len(steps))
        steps = (*steps[:at], pack, *steps[at:])
    behind = steps.index(pack) + 1
    return Schedule((*steps[:behind], Prefetch("B"), *steps[behind:]))


def instruction_of(nest: Nest, target: Target) -> str:
    """Return the instruction by which the native kernel of a nest multiplies and adds."""
    if nest.compute.instruction is not None:
        return nest.compute.instruction
    dtype = nest.factors
    if nest.group:
        return plain(dtype, target)
    form = Form.SPLIT if nest.compute.lanes > 1 else Form.OUTER_PRODUCT
    return instructions(dtype, target, Form.SKINNY if nest.is_skinny else form)[0].name


def has_choice(problem: Problem) -> bool:
    """Return whether processors have several instructions to multiply a problem's elements by."""
    return nest_of(problem).factors in WITH_CHOICE and problem.quantised_weights is None


def with_instruction(problem: Problem, schedule: Schedule, target: Target) -> Schedule:
    """Return a schedule that names its instruction, where it has a choice and names none."""
    if not has_choice(problem):
        return schedule
    nest = loop_nest(problem, schedule)
    if nest.algorithm or nest.group or nest.compute.instruction:
        return schedule
    at = [step.place for step in schedule.steps].index(Place.REGISTER)
    choice = InstructionChoice(instruction_of(nest, target))
    return Schedule((*schedule.steps[:at], choice, *schedule.steps[at:]))


def _applied(nest: Nest, steps: Iterable[Step]) -> Nest:
    for step in steps:
        check_place(step, nest)
        step.check(nest)
        nest = step.apply(nest)
    return nest


def _check_order(nest: Nest, steps: tuple[Step, ...]) -> None:
    """Raise unless steps are written in the usual order; the nest does not depend on it."""
    if sum(step.place is Place.REGISTER for step in steps) != 1:
        raise ScheduleError(f"{nest.problem}: a schedule has exactly one register step")
    placed = [step for step in steps if step.place is not Place.ANYWHERE]
    for before, step in pairwise(placed):
        if step.place < before.place or step.place == before.place is not Place.LOOPS:
            usual = "an algorithm or fuse, loops and packs, instruction, register, jam, split, "
            usual += "skinny, k_streams, unroll, nontemporal"
            raise step.refused(nest, f"steps are written once, in the order {usual}")


def _check_complete(nest: Nest) -> None:
    """Raise where a nest lacks a loop or a stage without which it cannot run."""
    why = _why_no_loop(nest) or _why_no_stage(nest)
    if nest.problem.quantised_weights and (nest.is_macro or nest.compute.lanes > 1):
        why = "quantised weights are multiplied tile by tile; drop the steps skinny and split"
    if why is not None:
        raise ScheduleError(f"{nest.problem}: {why}")


def _why_no_loop(nest: Nest) -> str | None:
    blocks = {loop.dim for loop in nest.loops_of(LoopKind.TILE) if loop.step == 1}
    alone = nest.named(Role.LEAD)
    if nest.group and nest.extent("n") > 1:
        alone = (*alone, "n")
    for dim in alone:
        if dim not in blocks:
            return f"{dim} is visited one at a time; start with tile dim={dim} size=1"
    if nest.is_skinny and not nest.k_block:
        most = f"a skinny GEMM streams {nest.k} by at most {MOST_ROWS_OF_B}"
        return f"{most}; add stream dim={nest.k}"
    return None


def _why_no_stage(nest: Nest) -> str | None:
    for role in "" if nest.group else "AB":
        operand = nest.operand(role)
        if nest.stage(role):
            continue
        if nest.algorithm:
            return f"with {nest.algorithm.name} both operands are packed; add pack operand={role}"
        if operand.is_gathered:
            return f"patches of the image are packed; add pack operand={role}"
        if operand.is_padded(nest.extents):
            return f"padding needs the image packed; add the step pack operand={role}"
    return None
