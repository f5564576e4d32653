"""Prove an object: `python -m tilewise.kernels.native.objects.proof.child`.

It reads one JSON request and writes one JSON reply. If it dies, the parent
(`tilewise.kernels.native.objects.proof.prove`) reports a failure.
"""

import base64
from math import isfinite
from typing import Any

from tilewise.kernels.system.limited_child import reply_to_request, stage
from tilewise.kernels.system.typed_json import from_json, to_json


def main() -> None:
    """Serve one request."""
    reply_to_request(lambda request: to_json(prove_here(request)))


def prove_here(request: dict[str, Any]) -> Any:
    """Prove one object in this process."""
    stage("import")
    from tilewise.kernels.native.objects.interface import Interface
    from tilewise.kernels.native.objects.proof.calls import LoadedObject, time_against_kernel
    from tilewise.kernels.native.objects.proof.checks import ObjectError, ObjectTrial
    from tilewise.kernels.native.objects.proof.prove import ObjectProof
    from tilewise.kernels.problem import parse_problem
    from tilewise.kernels.schedule import Schedule
    from tilewise.kernels.target import resolve

    target = resolve(request["target"])
    stage("link")
    loaded = LoadedObject(
        from_json(Interface, request["interface"]), base64.b64decode(request["object"])
    )
    error, tolerance = 0.0, 0.0
    for at, (canonical, steps, size) in enumerate(request["cases"]):
        problem, schedule = parse_problem(canonical), Schedule.from_json(steps)
        stage(f"reference of {canonical}")
        sized = loaded.of_size(size)
        trial = ObjectTrial.of(problem, schedule, sized, request["seed"] + at)
        try:
            for check in trial.checks() if at == 0 else trial.results():
                stage(check.__name__.replace("_", " "))
                found = check()
                # The worst of the cases, by the share of the tolerance.
                if found and (at == 0 or found[0] * tolerance >= error * found[1]):
                    error, tolerance = found
        except ObjectError as failed:
            return ObjectProof(failure="wrong", message=str(failed))
    stage("time")
    timed = time_against_kernel(problem, schedule, target, sized, request["repeat_s"])
    return ObjectProof(
        max_error=error if isfinite(error) else None,
        tolerance=tolerance,
        gflops=problem.flops / timed.seconds / 1e9,
        ratio=timed.ratio,
    )


if __name__ == "__main__":
    main()
