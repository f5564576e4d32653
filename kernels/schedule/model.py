"""`Schedule`: the tuple of steps with JSON, text and a stable hash."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.steps import STEPS, Step, StepJson, step_from_json
from tilewise.kernels.steps.algorithm import AlgorithmStep

_compact = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def steps_hash(steps: list[StepJson]) -> str:
    """Return the first 16 hex digits of the SHA-256 of the compact JSON; stable across runs."""
    return hashlib.sha256(_compact(steps).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Schedule:
    """Steps, outermost first. Equal steps mean equal schedules, whatever made them."""

    steps: tuple[Step, ...]

    def to_json(self) -> list[StepJson]:
        """The steps as a JSON array."""
        return [step.to_json() for step in self.steps]

    @classmethod
    def from_json(cls, source: object) -> "Schedule":
        """Read an array of steps; ScheduleError when it is not one."""
        if not isinstance(source, Iterable) or isinstance(source, str | bytes | dict):
            raise ScheduleError(f"a schedule is an array of steps, not {type(source).__name__}")
        return cls(tuple(step_from_json(item) for item in source))

    @property
    def hash(self) -> str:
        """The hash of the steps; equal schedules have equal ones."""
        return steps_hash(self.to_json())

    def __str__(self) -> str:
        return "\n".join(str(step) for step in self.steps)

    @property
    def algorithm(self) -> AlgorithmStep | None:
        """The step that does fewer multiplications than the direct method, if any."""
        return next((step for step in self.steps if isinstance(step, AlgorithmStep)), None)


def fast_algorithm(steps: Iterable[Mapping[str, object]]) -> str | None:
    """Return the name of the step that does fewer multiplications than the direct method, if any.

    Args:
        steps: as JSON has them, also those of another version.
    """
    names = (str(step.get("step")) for step in steps)
    return next((name for name in names if issubclass(STEPS.get(name, Step), AlgorithmStep)), None)
