"""Proving an object: a killable child process links it, runs it as C does, compares and times."""

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
    """What was established of an object, in C's terms.

    Attributes:
        max_error: the largest deviation from the reference, between guard pages.
        tolerance: what is allowed there.
        gflops: the speed of one call, all parts one after the other.
        ratio: speed over that of our own call in alternating runs; None where that has threads.
        failure: timeout, memory, crash, or wrong; empty where all held.
        message: what it failed of.
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
    """Prove that an object computes its problem, and touches nothing but what it is given.

    Args:
        problem: what it computes.
        schedule: how.
        target: this machine.
        made: the object.
        seed: of the random operands.
        seconds: the child is killed after this long.
        memory_bytes: the child is killed beyond this much memory.

    Raises:
        LimitError: a limit is not above 0, or not finite.
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
    """The proof of an object that may be served.

    Raises:
        ProofError: it failed.
    """
    proof = prove_object(problem, schedule, target, made)
    if not proof.ok:
        raise ProofError(f"{problem}: the object was not proven: {proof.failure}: {proof.message}")
    return proof
