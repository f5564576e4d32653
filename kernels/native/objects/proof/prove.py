"""Prove an object in a killable child process that links, runs, compares and times it."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tilewise.kernels.errors import ProofError
from tilewise.kernels.native.objects.make import KernelObject
from tilewise.kernels.problem import Problem, Size
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.steps import StepJson
from tilewise.kernels.system.limited_child import run_limited
from tilewise.kernels.system.typed_json import from_json, to_json
from tilewise.kernels.target.model import Target

CHILD = "tilewise.kernels.native.objects.proof.child"
REPEAT_SECONDS = 0.3
DRAWN = 3


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
    cases = [(problem.canonical, schedule.to_json(), ())]
    return _proven(cases, target, made, seed, seconds, memory_bytes)


def prove_range_object(
    schedule: RangeSchedule,
    target: Target,
    made: KernelObject,
    *,
    seed: int = 0,
    seconds: float = 900.0,
    memory_bytes: int = 8 << 30,
) -> ObjectProof:
    """Prove the object of a range at sizes of each variant, as `prove_object` proves one problem.

    The sizes are the first and the last that a variant serves, and `DRAWN` drawn ones. The speed is
    that of the largest.
    """
    draw, sizes = Random(seed), set[Size]()
    for variant in range(len(schedule.variants)):
        served = schedule.sizes_of(variant)
        sizes |= {served[0], served[-1], *draw.sample(served, min(DRAWN, len(served)))}
    cases = [
        (schedule.problems.at(size).canonical, schedule.at(size).to_json(), size)
        for size in sorted(sizes)
    ]
    return _proven(cases, target, made, seed, seconds, memory_bytes)


def _proven(
    cases: Sequence[tuple[str, list[StepJson], Size]],
    target: Target,
    made: KernelObject,
    seed: int,
    seconds: float,
    memory_bytes: int,
) -> ObjectProof:
    """Prove an object for problems with their schedules and sizes."""
    request = {
        "cases": cases,
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
    return _required(problem.canonical, prove_object(problem, schedule, target, made))


def require_range_proven(
    schedule: RangeSchedule, target: Target, made: KernelObject
) -> ObjectProof:
    """Return the proof of the object of a range; raise ProofError if it failed."""
    proof = prove_range_object(schedule, target, made)
    return _required(schedule.problems.canonical, proof)


def _required(problem: str, proof: ObjectProof) -> ObjectProof:
    if not proof.ok:
        raise ProofError(f"{problem}: the object was not proven: {proof.failure}: {proof.message}")
    return proof
