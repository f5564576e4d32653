"""The object of a stored result, made and proven, as a document."""

import base64
from dataclasses import asdict
from typing import Any

from tilewise.kernels.native.export.description import Tuned
from tilewise.kernels.native.export.module import export_result
from tilewise.kernels.native.objects.make import KernelObject, make_object, make_range_object
from tilewise.kernels.native.objects.proof.prove import (
    ObjectProof,
    require_proven,
    require_range_proven,
)
from tilewise.kernels.native.objects.python_module import module_text
from tilewise.kernels.problem import Problem, ProblemRange, parse_problem, parse_range
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.toolchain import identity
from tilewise.kernels.target import Target, resolve


def proven_document(found: dict[str, Any]) -> dict[str, Any]:
    """Make and prove the object of a stored result or range, as `tilewise show --json` gives it.

    The speed of a range is that of its largest sample.

    Returns:
        The fields of `tilewise.client.ObjectFiles`. All but `proof` are the same each time; that
        has the times of this run.

    Raises:
        TargetError: it was tuned for another machine.
        ProofError: the object does not do what it should.
        KernelsError: as `make_object`, when another toolchain knew what this one does not.
    """
    if "variants" in found:
        schedules, target = _range_of(found)
        made = make_range_object(schedules, target)
        proof = require_range_proven(schedules, target, made)
        of = schedules.problems, schedules.hash, target
        return _document(*of, made, found["samples"][-1]["gflops"], proof)
    best = found["best"]
    problem, schedule = parse_problem(found["problem"]), Schedule.from_json(best["steps"])
    target = resolve(found["target"])
    made = make_object(problem, schedule, target, Tuned.of(found))
    proof = require_proven(problem, schedule, target, made)
    return _document(problem, schedule.hash, target, made, best["gflops"], proof)


def python_module(found: dict[str, Any]) -> str:
    """Return the Python module of a stored result or range, that of a range around a proven object.

    Raises as `export_result` and `proven_document`.
    """
    if "variants" not in found:
        return export_result(found)
    schedules, target = _range_of(found)
    made = make_range_object(schedules, target)
    require_range_proven(schedules, target, made)
    return module_text(schedules, target, made)


def _range_of(found: dict[str, Any]) -> tuple[RangeSchedule, Target]:
    problems, target = parse_range(found["problem"]), resolve(found["target"])
    steps = {"variants": [one["steps"] for one in found["variants"]], "spans": found["spans"]}
    return RangeSchedule.from_json(problems, steps), target


def _document(
    problem: Problem | ProblemRange,
    digest: str,
    target: Target,
    made: KernelObject,
    gflops: float,
    proof: ObjectProof,
) -> dict[str, Any]:
    found = asdict(proof)
    return {
        "problem": problem.canonical,
        "target": target.canonical,
        "schedule": digest,
        "symbol": made.interface.name,
        "alias": made.interface.alias,
        "features": list(made.features),
        "scratch_bytes": made.interface.scratch_bytes,
        "packed_bytes": made.interface.packed_bytes,
        "parts": made.interface.parts,
        "toolchain": identity(),
        "gflops": gflops,
        "header": made.header,
        "object": base64.b64encode(made.object).decode(),
        "bitcode": base64.b64encode(made.bitcode).decode(),
        "proof": {name: found[name] for name in ("max_error", "tolerance", "gflops", "ratio")},
    }


def lasting(found: dict[str, Any]) -> dict[str, Any]:
    """Return the document without what differs from run to run, for an entity tag to name."""
    document = proven_document(found)
    proof = {name: document["proof"][name] for name in ("max_error", "tolerance")}
    return {**document, "proof": proof}
