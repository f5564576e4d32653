"""Functions that a worker loads by name, because their modules import compilers."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewise.kernels.problem import Problem
from tilewise.kernels.target import Target
from tilewise.search.helpers import Leader
from tilewise.search.records import TuneRequest, TuneResult

if TYPE_CHECKING:
    from tilewise.kernels.mlir.proof.proof import ScriptProof

EMITTER = "tilewise.kernels.mlir.cpu.script:emit_script"
TUNER = "tilewise.search.engine.tune:tune"
PROVER = "tilewise.service.workers.prover:prove"
HELPER = "tilewise.search.engine.distributed:run_worker"
PLANNER = "tilewise.service.workers.planning:make"
SCRIPTED = "tilewise.search.transfer.scripted:scripted_schedules"


Tuner = Callable[..., TuneResult]
"""Searches for the best schedule within a budget, as `tilewise.search.engine.tune.tune`."""

Helper = Callable[[Problem, Target, TuneRequest, Leader], int]
"""Tries candidates for another machine; how many."""

Prover = Callable[..., "ScriptProof"]
"""Writes a script, applies, runs and times it, as `tilewise.service.workers.prover.prove`."""
