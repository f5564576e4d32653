"""Proving scripts: a killable child process applies, compiles, runs, checks and times."""

from dataclasses import replace

from tilewise.kernels.errors import ProofError
from tilewise.kernels.mlir.cpu.notes import notes
from tilewise.kernels.mlir.cpu.register_tile import vector_lanes
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.payload.form import form
from tilewise.kernels.mlir.proof.annotation import annotated
from tilewise.kernels.mlir.proof.proof import Proof
from tilewise.kernels.mlir.proof.run_child import run_child
from tilewise.kernels.mlir.transform.module import mlir_version, with_payload
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule, loop_nest

REPEAT_SECONDS = 0.3


def prove(
    problem: Problem,
    schedule: Schedule,
    *,
    seed: int = 0,
    seconds: float = 60.0,
    memory_bytes: int = 4 << 30,
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
    seconds: float = 60.0,
    memory_bytes: int = 4 << 30,
    lanes: int = 0,
) -> Proof:
    """Prove any script against the payload of `problem`.

    The innermost loops have to multiply vectors of at least `lanes` columns, if any are asked for.
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
    problem: Problem, script: str, *, seconds: float = 60.0, memory_bytes: int = 4 << 30
) -> str:
    """The module that `script` makes of the payload of `problem`, as text.

    Raises:
        LimitError: a limit is not above 0, or not finite.
        ProofError: it does not apply; the message is MLIR's.
    """
    reply = run_child(
        {
            "problem": problem.canonical,
            "module": with_payload(problem, script),
            "seconds": seconds,
            "memory_bytes": memory_bytes,
            "apply_only": True,
        }
    )
    if reply.failure:
        raise ProofError(f"{problem}: {reply.failure}: {reply.message}")
    return reply.transformed
