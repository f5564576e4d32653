"""What all steps share: fields, JSON, and a rewrite of a loop nest that checks itself.

Stored schedules list their steps outermost first. They are applied by phase: the algorithm, then
what makes the micro-kernel, then the loops and stages around it in their order, then what changes
loops and stores that are there. So every check finds in its nest what it asks about: a loop the
register tile that it is a multiple of, a pack the panels that it fills.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.nest import Nest

OperandName = Literal["A", "B"]
StepJson = dict[str, str | int]


class StepPhase(IntEnum):
    """When a step is applied."""

    ALGORITHM = 0
    MICRO_KERNEL = 1
    LOOPS = 2
    FINISH = 3


class Place(IntEnum):
    """Where a step is written in a schedule: places ascend, and only LOOPS takes several steps."""

    ANYWHERE = -1
    ALGORITHM = 0
    LOOPS = 1
    INSTRUCTION = 2
    REGISTER = 3
    JAM = 4
    SPLIT = 5
    SKINNY = 6
    K_STREAMS = 7
    UNROLL = 8
    STORE = 9

    @property
    def phase(self) -> StepPhase:
        """Return when steps of the place are applied."""
        if self <= Place.ALGORITHM:
            return StepPhase.ALGORITHM
        if self is Place.LOOPS:
            return StepPhase.LOOPS
        is_of_tile = Place.REGISTER <= self <= Place.SKINNY
        return StepPhase.MICRO_KERNEL if is_of_tile else StepPhase.FINISH


@dataclass(frozen=True)
class Step(ABC):
    """One step of a schedule: a frozen value with a JSON form.

    Attributes:
        name: as it is printed.
        json_name: in JSON; a renamed step keeps its name there, of which stored hashes are.
        place: where it is written in a schedule, which also says when it is applied.
        words: the values that a field of text can have; other fields are sizes of at least 1, and
            `dim` is a name.
        choices: the choices of a search that the step is made of (`chosen`).
    """

    name: ClassVar[str]
    json_name: ClassVar[str] = ""
    place: ClassVar[Place] = Place.LOOPS
    words: ClassVar[Mapping[str, Collection[str]]] = {}
    choices: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def chosen(cls, choice: str, value: Any, part: "Part") -> "Iterable[Step]":
        """Return the steps that one of `choices` means; none where it has no effect.

        Args:
            choice: its name.
            value: what was chosen.
            part: what the steps so far have left to one thread.
        """
        return ()

    @property
    def phase(self) -> StepPhase:
        """Return when it is applied."""
        return self.place.phase

    def to_json(self) -> StepJson:
        """Return `{"step": json_name or name, ...fields}`."""
        return {"step": self.json_name or self.name, **vars(self)}

    @abstractmethod
    def check(self, nest: Nest) -> None:
        """Raise unless the step can be applied to a nest.

        Raises:
            ScheduleError: names the step, the problem and the reason.
        """

    @abstractmethod
    def apply(self, nest: Nest) -> Nest:
        """Return the nest after the step, which has been checked."""

    def refused(self, nest: Nest, why: str) -> ScheduleError:
        """Return the error that names the step, the problem and the reason."""
        return ScheduleError(f"step '{self}' cannot be applied to {nest.problem}: {why}")

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{f.name}={getattr(self, f.name)}" for f in fields(self))])


@dataclass
class Part:
    """One thread's part of a nest, while the steps of a schedule are chosen.

    Attributes:
        nest: of the algorithm and the micro-kernel, which are chosen first.
        extents: of the part; division among threads makes them smaller.
        steps: so far, in the order of the schedule.
    """

    nest: Nest
    extents: dict[str, int]
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Retired(Step):
    """A step of an earlier version: stored schedules that have it are displayed, and never run."""

    place: ClassVar[Place] = Place.ANYWHERE

    def check(self, nest: Nest) -> None:
        """Raise: no schedule that has the step is legal."""
        self.apply(nest)

    def apply(self, nest: Nest) -> Nest:
        """Raise: no schedule that has the step is legal."""
        raise self.refused(nest, "an earlier version had this step; search again")


@dataclass(frozen=True)
class SplitK(Retired):
    """Sum blocks of the reduction apart."""

    name: ClassVar[str] = "divide"
    dim: str
    size: int


@dataclass(frozen=True)
class Alternate(Retired):
    """Visit blocks from the end that is in the cache."""

    name: ClassVar[str] = "alternate"
    dim: str


S = TypeVar("S", bound=Step)
STEPS: dict[str, type[Step]] = {}
"""Every step by its name, in the order of registration."""

STEP_OF_CHOICE: dict[str, type[Step]] = {}
"""The step that each choice of a search makes."""

RETIRED: dict[str, type[Step]] = {kind.name: kind for kind in (SplitK, Alternate)}
"""Steps of earlier versions: they can be read, and are refused for every nest."""


@dataclass_transform(frozen_default=True)
def register_step(kind: type[S]) -> type[S]:
    """Add a step to those that schedules can have, as a frozen dataclass; a class decorator.

    Raises:
        ValueError: a step has the name, or had it in an earlier version, or is made of one of the
            choices.
    """
    if kind.name in STEPS or kind.name in RETIRED:
        taken = (STEPS | RETIRED)[kind.name].__name__
        raise ValueError(f"step {kind.name!r} is registered as {taken}; give another name")
    for choice in kind.choices:
        if choice in STEP_OF_CHOICE:
            taken = STEP_OF_CHOICE[choice].__name__
            raise ValueError(f"choice {choice!r} makes the step {taken}; give another name")
    has_fields = "__dataclass_fields__" in vars(kind)
    STEPS[kind.name] = kind = kind if has_fields else dataclass(frozen=True)(kind)
    STEP_OF_CHOICE.update(dict.fromkeys(kind.choices, kind))
    return kind


@contextmanager
def registered(kind: type[Step]) -> Iterator[None]:
    """Add a step for the duration of a `with` block."""
    register_step(kind)
    try:
        yield
    finally:
        del STEPS[kind.name]
        for choice in kind.choices:
            del STEP_OF_CHOICE[choice]


def kind_named(name: str) -> type[Step] | None:
    """Return the step of a name, or of a name in JSON; None for no step."""
    renamed = (kind for kind in STEPS.values() if kind.json_name == name)
    return STEPS.get(name) or RETIRED.get(name) or next(renamed, None)


def step_from_json(source: object) -> Step:
    """Return a step as it was stored.

    Raises:
        ScheduleError: not an object, an unknown step, or a missing, unknown or bad field.
    """
    if not isinstance(source, dict):
        raise ScheduleError(f"step {source!r} is not an object")
    values = dict(source)
    name = str(values.pop("step", None))
    kind = kind_named(name)
    if kind is None:
        known = ", ".join(STEPS)
        raise ScheduleError(
            f"step {source!r}: no step of a schedule for a target cpu:NAME; known are {known}; "
            "TILEWISE_EXTENSIONS names modules that add others"
        )
    names = [field.name for field in fields(kind)]
    if set(values) != set(names):
        raise ScheduleError(f"step {source!r}: {kind.name} has the fields {sorted(names)}")
    for name in names:
        why = _why_not(kind, name, values[name])
        if why is not None:
            raise ScheduleError(f"step {source!r}: {name} {why}")
    return kind(**values)


def _why_not(kind: type[Step], name: str, value: object) -> str | None:
    """Why a field cannot have a value; None where it can."""
    if words := tuple(kind.words.get(name, ())):
        return None if value in words else f"is one of {words}"
    if name == "dim":
        return None if isinstance(value, str) else "is a name"
    is_size = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return None if is_size else "is a whole number of at least 1"
