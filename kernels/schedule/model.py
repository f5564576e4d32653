"""`Schedule`: the tuple of steps with JSON, text and a stable hash."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.steps import (
    Instruction,
    Interleave,
    Jam,
    Nontemporal,
    Pack,
    Parallel,
    Prefetch,
    Register,
    Split,
    Step,
    StepJson,
    Strassen,
    Stream,
    Sweep,
    Unroll,
    Winograd,
    step_from_json,
)

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
    def register(self) -> Register:
        """The register step; ScheduleError when there is none."""
        for step in self.steps:
            if isinstance(step, Register):
                return step
        raise ScheduleError("schedule has no register step")

    @property
    def instruction(self) -> str | None:
        """The instruction that multiplies and adds, None when the schedule does not name one."""
        return next((s.op for s in self.steps if isinstance(s, Instruction)), None)

    @property
    def unroll(self) -> int:
        """The unroll factor, 1 when the schedule has no unroll step."""
        return next((s.factor for s in self.steps if isinstance(s, Unroll)), 1)

    @property
    def jam(self) -> int:
        """Iterations of an outer loop in the register tile, 1 when none is jammed."""
        return next((s.factor for s in self.steps if isinstance(s, Jam)), 1)

    @property
    def writes_past_caches(self) -> bool:
        """Whether the result goes to memory without a stay in the caches."""
        return any(isinstance(s, Nontemporal) for s in self.steps)

    @property
    def sweeps(self) -> bool:
        """Whether the micro-kernel walks the columns of a chunk, with sums in the first cache."""
        return any(isinstance(s, Sweep) for s in self.steps)

    @property
    def streams(self) -> int:
        """Parts of the reduction that a sweep's chunk has its rows from, 1 for neighbours."""
        return next((s.streams for s in self.steps if isinstance(s, Interleave)), 1)

    @property
    def threads(self) -> int:
        """Threads that the parallel steps ask for, 1 when there is none."""
        return prod(s.parts for s in self.steps if isinstance(s, Parallel))

    @property
    def lanes(self) -> int:
        """The partial sums that the reduction is split in, 1 when it is not."""
        return next((s.lanes for s in self.steps if isinstance(s, Split)), 1)

    @property
    def winograd(self) -> int | None:
        """Pixels of a side of the tiles that minimal filtering computes, None without it."""
        return next((s.output for s in self.steps if isinstance(s, Winograd)), None)

    @property
    def strassen(self) -> int | None:
        """How often operands are cut in halves that are multiplied, None without it."""
        return next((s.levels for s in self.steps if isinstance(s, Strassen)), None)

    @property
    def transforms(self) -> bool:
        """Whether products are of transformed operands, and so fewer than the direct method's."""
        return self.winograd is not None or self.strassen is not None

    @property
    def depth(self) -> int | None:
        """The K-streaming depth, None when the reduction is not streamed."""
        return next((s.depth for s in self.steps if isinstance(s, Stream)), None)

    @property
    def prefetches(self) -> bool:
        """Whether the next block of B is fetched while the present one is computed on."""
        return any(isinstance(s, Prefetch) for s in self.steps)

    def packs(self, operand: str) -> bool:
        """Whether the schedule packs `operand` (else the micro-kernel reads it in place)."""
        return any(isinstance(s, Pack) and s.operand == operand for s in self.steps)


def fast_algorithm(steps: Iterable[Mapping[str, object]]) -> str | None:
    """Return the name of the step that does fewer multiplications than the direct method, if any.

    Args:
        steps: as JSON has them, also those of another version.
    """
    names = (step.get("step") for step in steps)
    return next((str(name) for name in names if name in (Winograd.name, Strassen.name)), None)
