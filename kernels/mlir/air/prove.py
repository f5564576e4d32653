"""Air scripts, chosen by the model and proven before anyone gets them."""

from dataclasses import dataclass, replace

from tilewise.kernels.errors import ProofError
from tilewise.kernels.mlir.air.choice import AIE, Memories, choose, describe
from tilewise.kernels.mlir.air.schedule import KStreaming, Result, require_streamed
from tilewise.kernels.mlir.air.script import air_module, emit_air
from tilewise.kernels.mlir.proof.proof import ScriptProof, run_child
from tilewise.kernels.mlir.transform.module import mlir_version
from tilewise.kernels.problem import Matmul, Problem

CHILD = "tilewise.kernels.mlir.air.child"
LARGEST_RUN = 4 * 10**9
"""Operations that are executed as scalars, in about a second."""


@dataclass(frozen=True)
class AirScript:
    """A K-streaming script, what it was made from, and its proof."""

    problem: Matmul
    schedule: KStreaming
    text: str
    proof: ScriptProof

    @property
    def module(self) -> str:
        """The script with its payload, ready for `iree-opt --transform-interpreter`."""
        return air_module(self.problem, self.text)


def script_for(
    problem: Problem, memories: Memories = AIE, result: Result = "l3", seconds: float = 120.0
) -> AirScript:
    """Choose a schedule for `memories`, emit its script, and prove it.

    Raises:
        UnsupportedError: no air script covers the problem; names the key.
        ScheduleError: nothing fits the memories.
        ProofError: the script did not prove.
    """
    made = attempt(problem, memories, result, seconds)
    if not made.proof.ok:
        reason = f"{made.proof.failure}: {made.proof.message}"
        raise ProofError(f"{problem}: the air script failed: {reason}")
    return made


def attempt(
    problem: Problem, memories: Memories = AIE, result: Result = "l3", seconds: float = 120.0
) -> AirScript:
    """As `script_for`, but return a script that did not prove with the failed proof."""
    matmul = require_streamed(problem)
    schedule = choose(matmul, memories, result)
    text = emit_air(matmul, schedule)
    proof = prove_air(matmul, schedule, text, seconds=seconds)
    if proof.ok:
        notes = (*describe(matmul, schedule, memories), _proven(matmul, schedule, proof))
        text = emit_air(matmul, schedule, notes)
    return AirScript(matmul, schedule, text, replace(proof, script=text))


def prove_air(
    problem: Problem,
    schedule: KStreaming,
    script: str,
    *,
    seed: int = 0,
    seconds: float = 120.0,
    memory_bytes: int = 4 << 30,
) -> ScriptProof:
    """Apply a script to the payload of `problem`, then inspect and execute the result.

    A failure becomes part of the `ScriptProof`. Speed is not measured: a processor's says nothing.
    """
    matmul = require_streamed(problem)
    runs = runnable(matmul, schedule)
    request = {
        "problem": matmul.canonical,
        "schedule": schedule.to_json(),
        "module": air_module(matmul, script),
        "runs": runs.canonical,
        "runs_module": air_module(runs, script),
        "seed": seed,
        "seconds": seconds,
        "memory_bytes": memory_bytes,
    }
    return ScriptProof.of(run_child(request, CHILD), mlir=mlir_version(), script=script)


def runnable(problem: Matmul, schedule: KStreaming) -> Matmul:
    """Return a problem of two blocks and chunks per dim, on which a large problem's script runs.

    The script contains no sizes of the problem. The whole problem's IR is inspected as well.
    """
    if problem.flops <= LARGEST_RUN:
        return problem

    def two(extent: int, part: int) -> int:
        """Return the extent of two parts, the second short if the last of `extent` is."""
        return min(extent, 2 * part - (extent % part > 0))

    return replace(
        problem,
        m=two(problem.m, schedule.block_m),
        n=two(problem.n, schedule.block_n),
        k=two(problem.k, schedule.outer_k),
    )


def _proven(problem: Matmul, schedule: KStreaming, proof: ScriptProof) -> str:
    runs = runnable(problem, schedule)
    on = "" if runs == problem else f" on {runs.canonical}"
    exact = "exact" if proof.tolerance == 0 else f"error {proof.max_error:.3g}"
    return f"proven:   structure inspected; executed on a processor{on}, {exact}"
