"""Prove an object in a killable child process that links, runs, compares and times it."""

import base64
from dataclasses import dataclass

from tilewise.kernels.errors import ProofError
from tilewise.kernels.native.objects.make import KernelObject
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.limited_child import run_limited
from tilewise.kernels.system.typed_json import from_json, to_json
from tilewise.kernels.target.model import Target

CHILD = "tilewise.kernels.native.objects.proof.child"
REPEAT_SECONDS = 0.3


@dataclass(frozen=True)
class ObjectProof:
    """The proof of an object.

    Attributes:
        max_error: largest deviation from the reference, between guard pages.
        gflops: speed of one call, all parts one after another.
        ratio: speed over our own call in alternating runs; None if that has threads.
        failure: timeout, memory, crash, or wrong; empty if it holds.
    """

    max_error: float | None = None
    tolerance: float | None = None
    gflops: float | None = None
    ratio: float | None = None
    failure: str = ""
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether the object may be served."""
        return not self.failure and self.gflops is not None


def prove_object(
    problem: Problem,
    schedule: Schedule,
    target: Target,
    made: KernelObject,
    *,
    seed: int = 0,
    seconds: float = 120.0,
    memory_bytes: int = 8 << 30,
) -> ObjectProof:
    """Prove that an object computes its problem and accesses only its arguments.

    The child is killed after `seconds` or beyond `memory_bytes`. Raises LimitError for a limit that
    is not positive and finite.
    """
    request = {
        "problem": problem.canonical,
        "schedule": schedule.to_json(),
        "target": target.canonical,
        "interface": to_json(made.interface),
        "object": base64.b64encode(made.object).decode(),
        "seed": seed,
        "seconds": seconds,
        "memory_bytes": memory_bytes,
        "repeat_s": REPEAT_SECONDS,
    }
    ended = run_limited(request, CHILD)
    if ended.reply is None:
        return ObjectProof(failure=ended.failure, message=ended.message)
    return from_json(ObjectProof, ended.reply)


def require_proven(
    problem: Problem, schedule: Schedule, target: Target, made: KernelObject
) -> ObjectProof:
    """Return the proof of an object; raise ProofError if it failed."""
    proof = prove_object(problem, schedule, target, made)
    if not proof.ok:
        raise ProofError(f"{problem}: the object was not proven: {proof.failure}: {proof.message}")
    return proof
