"""Prove scripts in a killable child process: apply, compile, run, compare, time.

A script is applied to the payload of a problem, whose result the reference knows, or to any
function of static tensors or memrefs. Then the same function lowered without the script is the
reference.
"""

from dataclasses import dataclass, replace
from typing import Any

from tilewise.kernels.errors import ProofError
from tilewise.kernels.mlir.cpu.register_tile import vector_lanes
from tilewise.kernels.mlir.cpu.script import emit_script, notes
from tilewise.kernels.mlir.payload.form import form
from tilewise.kernels.mlir.payload.function import payload as payload_of
from tilewise.kernels.mlir.proof.proof import Found, Proof, annotated, run_child
from tilewise.kernels.mlir.transform.module import mlir_version, with_payload
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule, loop_nest

SECONDS, MEMORY_BYTES = 60.0, 4 << 30
"""Limits beyond which a child is killed."""
REPEAT_SECONDS = 0.3


def prove(
    problem: Problem,
    schedule: Schedule,
    *,
    seed: int = 0,
    seconds: float = SECONDS,
    memory_bytes: int = MEMORY_BYTES,
) -> Proof:
    """Emit the script of a schedule and prove it; the proof's script has its header filled in.

    Args:
        problem: what is computed.
        schedule: how; it must be legal for the problem.
        seed: of the random operands.
        seconds: the child is killed after this long.
        memory_bytes: the child is killed beyond this much memory.

    Raises:
        LimitError: a limit is not above 0, or not finite.
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
) -> Proof:
    """Prove any script against the payload of `problem`; the limits are those of `prove`.

    The innermost loops have to multiply vectors of at least `lanes` columns, if not 0.
    Whatever the script does (fail, hang, exhaust memory, crash the compiler or the
    process, print without end, compute something else) becomes a `Proof` with that failure.

    Raises:
        LimitError: a limit is not above 0, or not finite.
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
    return Proof.of(reply, mlir=mlir_version(), script=script, notes=notes(problem))


def transform(
    problem: Problem, script: str, *, seconds: float = SECONDS, memory_bytes: int = MEMORY_BYTES
) -> str:
    """Return the module that `script` makes of the payload of `problem`, as text.

    Raises:
        LimitError: a limit is not above 0, or not finite.
        ProofError: it does not apply; the message is MLIR's.
    """
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
    """What became of a script.

    Attributes:
        proof: the stages that it passed, as for a script that is served; `gflops` is known
            for a problem's payload alone.
        found: what else was found; `transformed` is empty where the script did not apply, and
            `inputs` where a problem's reference decided.
    """

    proof: Proof
    found: Found

    def to_json(self) -> dict[str, Any]:
        """Return the proof without the script, and what else was found."""
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
    """Prove any script on any payload; the limits are those of `prove`.

    A payload is native code in the end: it runs in a child process, with this user's rights.

    Args:
        script: a module with `@__transform_main`; with neither a problem nor a payload it
            also holds the function that it transforms.
        problem: whose payload is transformed.
        payload: a module with one function.
        seed: of the random operands.
        seconds: the child is killed after this long.
        memory_bytes: the child is killed beyond this much memory.

    Raises:
        LimitError: a limit is not above 0, or not finite.
        UnsupportedError: the problem has no payload.
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
    return Verdict(Proof.of(reply, mlir=mlir_version(), script=script), reply)
