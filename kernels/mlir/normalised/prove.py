"""Proving the script of a user's op, on the op as its author wrote it."""

from dataclasses import dataclass, replace
from typing import Any

from tilewise.kernels.errors import ProofError
from tilewise.kernels.mlir.cpu.register_tile import vector_lanes
from tilewise.kernels.mlir.frontend.graph import LoneOp
from tilewise.kernels.mlir.normalised.normal_form import (
    NormalForm,
    is_of_problem,
    normal_form,
    schedulable,
)
from tilewise.kernels.mlir.normalised.script import emit_normalised
from tilewise.kernels.mlir.payload.function import payload
from tilewise.kernels.mlir.proof.proof import Found, Proof, annotated, run_child
from tilewise.kernels.mlir.proof.prove import REPEAT_SECONDS, prove
from tilewise.kernels.mlir.transform.module import mlir_version, with_function
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.typed_json import to_json

CHILD = "tilewise.kernels.mlir.normalised.child"


@dataclass(frozen=True)
class Limits:
    """Of one proof.

    Attributes:
        seconds: the child is killed after this long.
        memory_bytes: the child is killed beyond this much memory.
    """

    seconds: float = 60.0
    memory_bytes: int = 4 << 30


def prove_lone(
    lone: LoneOp, schedule: Schedule, *, seed: int = 0, limits: Limits = Limits()
) -> Proof:
    """Emit the script of an op and prove it; the proof's script has its header filled in.

    Whatever the script does becomes a `Proof` with that failure.

    Args:
        lone: the op; the script is applied to its payload, and the result compared with the
            reference of the problem, on operands that lie as the op's do. A convolution with few
            channels in a group is proven in the problem's payload, where another op stores what
            it gives.
        schedule: of the problem that the op is by itself.
        seed: of the random operands.
        limits: of the child.

    Raises:
        LimitError: a limit is not above 0, or not finite.
        UnsupportedError: no script can give the op a form that schedules speak of.
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: it can, but not to this op.
    """
    if is_of_problem(lone):
        return prove(
            schedulable(lone),
            schedule,
            seed=seed,
            seconds=limits.seconds,
            memory_bytes=limits.memory_bytes,
        )
    normal = normal_form(lone, schedule)
    script = emit_normalised(normal, schedule)
    found = _asked(lone, normal, script, limits, seed=seed, apply_only=False)
    proof = Proof.of(found, mlir=mlir_version(), script=script)
    return replace(proof, script=annotated(script, proof))


def with_op(lone: LoneOp, script: str) -> str:
    """A script's module with the op's function in front of it, for `--transform-interpreter`."""
    function = payload(schedulable(lone)) if is_of_problem(lone) else lone.payload
    return with_function(function, script)


def transform_lone(lone: LoneOp, schedule: Schedule, limits: Limits = Limits()) -> str:
    """The module that an op's script makes of its payload; errors as of `prove_lone`.

    Raises:
        ProofError: it does not apply; the message is MLIR's.
    """
    normal = normal_form(lone, schedule)
    script = emit_normalised(normal, schedule)
    found = _asked(lone, normal, script, limits, seed=0, apply_only=True)
    if found.failure:
        raise ProofError(f"{lone.found.where}: {found.failure}: {found.message}")
    return found.transformed


def _asked(
    lone: LoneOp,
    normal: NormalForm,
    script: str,
    limits: Limits,
    **more: Any,
) -> Found:
    form, nest = normal.form, normal.form.nest
    lanes = vector_lanes(form) if set(form.reductions) & set(form.dims) else 0
    request = {
        "payload": lone.payload,
        "script": script,
        "found": to_json(lone.found),
        "shapes": [lone.nest.a.shape, lone.nest.b.shape, lone.nest.c.shape],
        "seconds": limits.seconds,
        "memory_bytes": limits.memory_bytes,
        "repeat_s": REPEAT_SECONDS,
        "columns": lanes or nest.dim(nest.col).extent,
        "lanes": lanes,
        **more,
    }
    return run_child(request, CHILD)
