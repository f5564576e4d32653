"""Select the prover of a schedule's script: for transform scripts or IREE tuning specs.

Both load MLIR, so they are loaded when they are needed.
"""

from typing import TYPE_CHECKING

from tilewise.kernels.mlir.tuning_spec.config import AnySchedule, Configuration
from tilewise.kernels.problem import Problem

if TYPE_CHECKING:
    from tilewise.kernels.mlir.proof.proof import ScriptProof


def prove(
    problem: Problem, schedule: AnySchedule, *, seed: int, seconds: float, threads: int
) -> "ScriptProof":
    """Write the schedule's script and prove it; raises what the prover does.

    A spec is proven on the threads of its target, since IREE runs it on them. The loops of our own
    scripts are for one thread.
    """
    if isinstance(schedule, Configuration):
        from tilewise.kernels.mlir.tuning_spec.prove import prove as prove_spec

        return prove_spec(problem, schedule, threads=threads, seed=seed, seconds=seconds)
    from tilewise.kernels.mlir.proof.prove import prove as prove_script

    return prove_script(problem, schedule, seed=seed, seconds=seconds)
