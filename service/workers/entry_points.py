"""What a worker loads by name, for it loads compilers, which the service must not."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tilewise.kernels.mlir.tuning_spec.config import AnySchedule
from tilewise.kernels.problem import Problem
from tilewise.kernels.target import Target
from tilewise.search.helpers import Helpers, Leader
from tilewise.search.progress import OnPhase
from tilewise.search.records import TrialRecord, TuneRequest, TuneResult
from tilewise.search.store import TrialStore

if TYPE_CHECKING:
    from tilewise.kernels.mlir.proof.proof import ScriptProof

DIRECT = "tilewise.search.model.prior:direct_schedules"
EMITTER = "tilewise.kernels.mlir.cpu.script:emit_script"
TUNER = "tilewise.search.engine.tune:tune"
PROVER = "tilewise.service.workers.prover:prove"
HELPER = "tilewise.search.engine.distributed:run_worker"
PLANNER = "tilewise.service.workers.planning:make"


class Tuner(Protocol):
    """`tilewise.search.engine.tune.tune`."""

    def __call__(
        self,
        problem: Problem,
        target: Target,
        request: TuneRequest,
        store: TrialStore,
        *,
        on_trial: Callable[[TrialRecord, TrialRecord | None], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        before_finals: Callable[[list[TrialRecord], float | None], None] | None = None,
        on_phase: OnPhase | None = None,
        helpers: Helpers | None = None,
    ) -> TuneResult:
        """Search for the best schedule within a budget; `helpers` are given where there may be."""
        ...


class Helper(Protocol):
    """`tilewise.search.engine.distributed.run_worker`."""

    def __call__(
        self, problem: Problem, target: Target, request: TuneRequest, leader: Leader
    ) -> int:
        """Try candidates for another machine; how many."""
        ...


class Prover(Protocol):
    """`tilewise.service.workers.prover.prove`."""

    def __call__(
        self, problem: Problem, schedule: AnySchedule, *, seed: int, seconds: float, threads: int
    ) -> "ScriptProof":
        """Write the schedule's script, apply it, run it and time it, within so many seconds.

        `threads` are those of the target. Scripts of our own run on one whatever it says.
        """
        ...
