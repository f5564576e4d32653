"""Find the first stored schedule whose script proves on an op of a module."""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from tilewise.kernels.errors import KernelsError, ProofError, ScheduleError
from tilewise.kernels.mlir.frontend.graph import LoneOp
from tilewise.kernels.mlir.frontend.read import USUAL_LIMITS, ReadLimits
from tilewise.kernels.mlir.op_scripts.normal_form import schedulable
from tilewise.kernels.mlir.op_scripts.prove import prove_lone, with_op
from tilewise.kernels.mlir.proof.proof import ScriptProof
from tilewise.kernels.nest import nest_of
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule, chosen
from tilewise.kernels.steps import Place, visited_alone
from tilewise.kernels.system.typed_json import from_json

MOST_PROOFS = 8
"""Schedules to try before giving up."""
SECONDS, LIMITS = 30.0, ReadLimits(20.0, 4 << 30)  # of `script_of_op`


@dataclass(frozen=True)
class ProvenOp:
    """The proven script of an op."""

    problem: str
    place: str
    schedule: Schedule
    proof: ScriptProof

    def to_json(self, script: str) -> dict[str, Any]:
        """Return the data of `script`, which may have the op in front of it."""
        return {
            "problem": self.problem,
            "place": self.place,
            "flavor": "cpu",
            "schedule": {"hash": self.schedule.hash, "steps": self.schedule.to_json()},
            "proof": {
                "max_error": self.proof.max_error,
                "tolerance": self.proof.tolerance,
                "gflops": self.proof.gflops,
                "mlir": self.proof.mlir,
            },
            "script": script,
        }


def problems_of(lone: LoneOp) -> tuple[Problem, ...]:
    """Return the problems whose schedules may fit an op: with its surroundings, and alone.

    Constant weights, bias, relu and padding do not change loops, so schedules of the first come
    first, unless its loops differ, as for another layout; then `fitting` reduces them.

    Raises:
        UnsupportedError: the op has no scripts.
    """
    problem, around = schedulable(lone), parse_problem(lone.within.problem)
    if around.op != problem.op:
        return (problem,)
    order = (around, problem) if _has_loops(around, problem) else (problem, around)
    return tuple(dict.fromkeys(order))


def fitting(lone: LoneOp, problem: Problem, schedule: Schedule) -> Schedule:
    """Return a schedule for an op: unchanged, or its register tile if the loops differ.

    Loops that are visited one step at a time, such as groups, are added around it. Where pixels are
    fused, which no script has, a small tile of packed channels takes its place.
    """
    own = schedulable(lone)
    places = [step.place for step in schedule.steps]
    if Place.ALGORITHM in places and schedule.algorithm is None:  # pixels are fused
        small = {"lead": True, "pack_b": True, "register": (4, 32, "cols")}
        return Schedule(tuple(chosen(own, small).steps))
    if _has_loops(problem, own):
        return schedule
    tile = (step for step in schedule.steps if step.place is Place.REGISTER)
    return Schedule((*visited_alone(nest_of(own)), *tile))


def _has_loops(one: Problem, other: Problem) -> bool:
    """Return whether schedules of two problems have the same loops."""
    first, second = nest_of(one), nest_of(other)
    return [first.dim(d) for d in first.scheduled] == [second.dim(d) for d in second.scheduled]


def first_proven(
    lone: LoneOp,
    schedules: Iterable[Schedule],
    *,
    seconds: float = inf,
    limits: ReadLimits = USUAL_LIMITS,
) -> ProvenOp:
    """Return the first schedule whose script proves; raise ProofError with the last failure."""
    why, until = "no schedule was given", time.monotonic() + seconds
    for count, schedule in enumerate(schedules):
        if count == MOST_PROOFS or time.monotonic() >= until:
            break
        try:
            proof = prove_lone(lone, schedule, limits=limits)
        except KernelsError as error:
            why = str(error)
            continue
        if proof.ok:
            return ProvenOp(schedulable(lone).canonical, lone.found.where, schedule, proof)
        why = f"{proof.failure}: {proof.message}"
    raise ProofError(f"{lone.found.where}: no script proved; the last one: {why}")


def script_of_op(request: dict[str, Any]) -> dict[str, Any]:
    """Return the proven script of an op as JSON.

    `request` has the op (`LoneOp`) and the steps of schedules, fastest first. The answer has the
    script, its data, and `with_payload`, the script with the op's function; or `reason`.
    """
    lone = from_json(LoneOp, request["op"])
    try:
        found = first_proven(lone, readable(request["schedules"]), seconds=SECONDS, limits=LIMITS)
    except ProofError as error:
        return {"reason": " ".join(str(error).split())}
    script = found.proof.script
    return {**found.to_json(script), "with_payload": with_op(lone, script)}


def readable(found: Iterable[Any]) -> Iterator[Schedule]:
    """Yield schedules, without those that have steps of another version."""
    for steps in found:
        with suppress(ScheduleError):
            yield Schedule.from_json(steps)
