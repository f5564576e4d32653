"""Prove scripts in a killable child process: apply, compile, run, compare, time.

A script is applied to a problem's payload, whose result the reference knows, or to any function of
static tensors or memrefs, which is then also lowered without the script for comparison.
"""

from dataclasses import dataclass, replace
from typing import Any

from tilewise.kernels.errors import ProofError
from tilewise.kernels.mlir.cpu.range_script import (
    emit_range_script,
    forms,
    proof_sizes,
    range_payload,
    widest,
)
from tilewise.kernels.mlir.cpu.register_tile import vector_lanes
from tilewise.kernels.mlir.cpu.script import emit_script, notes
from tilewise.kernels.mlir.payload.form import form
from tilewise.kernels.mlir.payload.function import payload as payload_of
from tilewise.kernels.mlir.proof.proof import ProofReply, ScriptProof, annotated, run_child
from tilewise.kernels.mlir.transform.module import mlir_version, with_function, with_payload
from tilewise.kernels.problem import Problem
from tilewise.kernels.quoting import duration
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Schedule, loop_nest

SECONDS, MEMORY_BYTES, RANGE_SECONDS = 60.0, 4 << 30, 600.0
"""Limits beyond which a child is killed."""
REPEAT_SECONDS = 0.3


def prove(
    problem: Problem,
    schedule: Schedule,
    *,
    seed: int = 0,
    seconds: float = SECONDS,
    memory_bytes: int = MEMORY_BYTES,
) -> ScriptProof:
    """Emit the script of a schedule and prove it; the proof's script has its header filled in.

    Raises:
        LimitError: a limit is invalid.
        UnsupportedError: no script covers a step of the schedule.
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: its blocks cannot be made static.
    """
    script = emit_script(problem, schedule)
    proof = prove_script(
        problem,
        script,
        seed=seed,
        seconds=seconds,
        memory_bytes=memory_bytes,
        lanes=vector_lanes(form(loop_nest(problem, schedule))),
    )
    return replace(proof, script=annotated(script, proof))


def prove_script(
    problem: Problem,
    script: str,
    *,
    seed: int = 0,
    seconds: float = SECONDS,
    memory_bytes: int = MEMORY_BYTES,
    lanes: int = 0,
) -> ScriptProof:
    """Prove any script against the payload of `problem`.

    The innermost loops have to multiply vectors of at least `lanes` columns, if not 0. Any failure,
    hang or crash of the script becomes part of the `ScriptProof`.
    """
    request = {
        "problem": problem.canonical,
        "module": with_payload(problem, script),
        "seed": seed,
        "seconds": seconds,
        "memory_bytes": memory_bytes,
        "repeat_s": REPEAT_SECONDS,
        "lanes": lanes,
    }
    reply = run_child(request)
    return ScriptProof.of(reply, mlir=mlir_version(), script=script, notes=notes(problem))


def prove_range(
    whole: RangeSchedule,
    *,
    seed: int = 0,
    seconds: float = RANGE_SECONDS,
    memory_bytes: int = MEMORY_BYTES,
) -> ScriptProof:
    """Emit the script of a range and prove it at sizes of each variant, as `prove` does.

    Raise as `emit_range_script`.
    """
    problems, script = whole.problems, emit_range_script(whole)
    request = {
        "range": problems.canonical,
        "problem": widest(whole).canonical,
        "sizes": proof_sizes(whole),
        "module": with_function(range_payload(whole), script),
        "seed": seed,
        "seconds": seconds,
        "memory_bytes": memory_bytes,
        "repeat_s": REPEAT_SECONDS,
        "lanes": min(vector_lanes(shape) for shape in forms(whole)),
    }
    reply = run_child(request)
    proof = ScriptProof.of(reply, mlir=mlir_version(), script=script)
    lines = [
        f"{f'{one.size}:':9} {one.gflops:.1f} GFLOP/s, {duration(one.time_us)}, "
        f"error {one.max_error:.3g}, allowed {one.tolerance:.3g}"
        for one in reply.sizes
    ]
    return replace(proof, script=annotated(script, proof, found=lines if proof.ok else ()))


def transform(
    problem: Problem, script: str, *, seconds: float = SECONDS, memory_bytes: int = MEMORY_BYTES
) -> str:
    """Return the module that `script` makes of the payload; raise ProofError with MLIR's text."""
    request = {
        "problem": problem.canonical,
        "module": with_payload(problem, script),
        "seconds": seconds,
        "memory_bytes": memory_bytes,
        "apply_only": True,
    }
    reply = run_child(request)
    if reply.failure:
        raise ProofError(f"{problem}: {reply.failure}: {reply.message}")
    return reply.transformed


@dataclass(frozen=True)
class Verdict:
    """The outcome of a script.

    `proof` has `gflops` for a problem's payload alone. In `found`, `transformed` is empty if the
    script did not apply, and `inputs` if a problem's reference decided.
    """

    proof: ScriptProof
    found: ProofReply

    def to_json(self) -> dict[str, Any]:
        """Return the proof without the script, and everything else that was found."""
        outcome = self.proof.to_json()
        del outcome["script"]
        return outcome | {
            "structure": list(self.found.outline),
            "unscripted_us": self.found.unscripted_us,
            "inputs": self.found.inputs,
            "warnings": list(self.found.warnings),
        }


def verify(
    script: str,
    *,
    problem: Problem | None = None,
    payload: str | None = None,
    seed: int = 0,
    seconds: float = SECONDS,
    memory_bytes: int = MEMORY_BYTES,
) -> Verdict:
    """Prove any script on any payload, which runs as native code with this user's rights.

    The payload is that of `problem`, or `payload`, a module with one function, or a function in the
    script's own module. Raise UnsupportedError if the problem has no payload.
    """
    request = {
        "script": script,
        "payload": payload if problem is None else payload_of(problem),
        "problem": problem.canonical if problem else None,
        "seed": seed,
        "seconds": seconds,
        "memory_bytes": memory_bytes,
        "repeat_s": REPEAT_SECONDS,
    }
    reply = run_child(request)
    return Verdict(ScriptProof.of(reply, mlir=mlir_version(), script=script), reply)
