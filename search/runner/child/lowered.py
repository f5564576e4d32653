"""Steps made into code that runs: ours, or IREE's with the sizes of a tuning spec."""

from dataclasses import dataclass
from typing import Any, Protocol

from tilewise.kernels.mlir.tuning_spec.config import Configuration
from tilewise.kernels.native import compile_ahead, lower
from tilewise.kernels.oracle.operands import Array, Operands
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target


class BoundCall(Protocol):
    """Code bound to its operands."""

    @property
    def scratch_bytes(self) -> dict[str, int]:
        """Bytes of scratch by operand."""
        ...

    def __call__(self, repeat: int = 1) -> None:
        """Compute C so many times."""
        ...


class Lowered(Protocol):
    """A schedule's code, for any operands of its problem."""

    @property
    def scratch_bytes(self) -> dict[str, int]:
        """Bytes of scratch by operand."""
        ...

    def packs_ahead(self, operand: str) -> bool:
        """Whether an operand is packed once, when it is bound."""
        ...

    def bind(self, operands: Operands, scratch: dict[str, Array] | None = None) -> BoundCall:
        """Bind operands, and scratch where there is any."""
        ...


@dataclass(frozen=True)
class SpecCall:
    """IREE's code bound to operands.

    Attributes:
        run: computes C so many times.
        scratch_bytes: none; IREE allocates what it needs.
    """

    run: Any
    scratch_bytes: dict[str, int]

    def __call__(self, repeat: int = 1) -> None:
        """Compute C so many times."""
        self.run(repeat)


@dataclass(frozen=True)
class SpecCode:
    """IREE's code of a problem, with the sizes of a spec."""

    problem: Problem
    code: bytes
    threads: int

    @property
    def scratch_bytes(self) -> dict[str, int]:
        """None that is ours."""
        return {}

    def packs_ahead(self, operand: str) -> bool:
        """Never into scratch of ours."""
        return False

    def bind(self, operands: Operands, scratch: dict[str, Array] | None = None) -> SpecCall:
        """Load the module anew, bound to operands."""
        from tilewise.search.peers.iree import bound

        made = bound(self.code, self.problem, operands, self.threads, "spec")
        return SpecCall(made.run, {})


def lowered(problem: Problem, steps: object, target: Target) -> Lowered:
    """The code of a schedule, or of a configuration if the target's code is IREE's.

    Raises:
        ScheduleError: the steps are not of the target's code, or cannot be applied to the problem.
        LoweringError: the target has not what it asks for, or it does not compile.
    """
    if target.kind == "cpu":
        return lower(problem, Schedule.from_json(steps), target)
    return SpecCode(problem, _spec_code(problem, steps, target), target.threads)


def lower_ahead(problem: Problem, steps: object, target: Target) -> None:
    """Compile what `lowered` will load, here or in another process; raises what that raises."""
    if target.kind == "cpu":
        compile_ahead(problem, Schedule.from_json(steps), target)
    else:
        _spec_code(problem, steps, target)


def _spec_code(problem: Problem, steps: object, target: Target) -> bytes:
    from tilewise.kernels.mlir.tuning_spec.compiled import spec_code

    return spec_code(problem, Configuration.from_json(steps), target)
