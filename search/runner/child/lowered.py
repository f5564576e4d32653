"""Make code of steps: our own, or IREE's with a tuning spec."""

from dataclasses import dataclass
from typing import Any

from tilewise.kernels.mlir.tuning_spec.config import Configuration
from tilewise.kernels.native import Executable, compile_ahead, lower
from tilewise.kernels.native.executable import KernelCall
from tilewise.kernels.oracle.operands import Array, Operands
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target


@dataclass(frozen=True)
class SpecCall:
    """IREE's code bound to operands; it allocates its own scratch."""

    run: Any
    scratch_bytes: dict[str, int]

    def __call__(self, repeat: int = 1) -> None:
        """Compute C repeatedly."""
        self.run(repeat)


@dataclass(frozen=True)
class SpecCode:
    """IREE's code of a problem with the sizes of a spec."""

    problem: Problem
    code: bytes
    threads: int

    @property
    def scratch_bytes(self) -> dict[str, int]:
        """Empty: IREE allocates its own."""
        return {}

    def packs_ahead(self, operand: str) -> bool:
        """Return False."""
        return False

    def bind(self, operands: Operands, scratch: dict[str, Array] | None = None) -> SpecCall:
        """Load the module anew, bound to operands."""
        from tilewise.search.peers.iree import bound

        made = bound(self.code, self.problem, operands, self.threads, "spec")
        return SpecCall(made.run, {})


Lowered = Executable | SpecCode
BoundCall = KernelCall | SpecCall


def lowered(problem: Problem, steps: object, target: Target) -> Lowered:
    """Return the code of a schedule, or of a configuration for IREE.

    Raises ScheduleError for steps that do not fit target or problem, LoweringError if compiling
    fails.
    """
    if target.kind == "cpu":
        return lower(problem, Schedule.from_json(steps), target)
    return SpecCode(problem, _spec_code(problem, steps, target), target.threads)


def lower_ahead(problem: Problem, steps: object, target: Target) -> None:
    """Compile what `lowered` will load; raise as it does."""
    if target.kind == "cpu":
        compile_ahead(problem, Schedule.from_json(steps), target)
    else:
        _spec_code(problem, steps, target)


def _spec_code(problem: Problem, steps: object, target: Target) -> bytes:
    from tilewise.kernels.mlir.tuning_spec.compiled import spec_code

    return spec_code(problem, Configuration.from_json(steps), target)
