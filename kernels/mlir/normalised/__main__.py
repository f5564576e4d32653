"""Print the proven script of an op: `python -m tilewise.kernels.mlir.normalised` reads stdin.

Input is a JSON object with the op (`LoneOp`) and the steps of schedules, fastest first. Output is
one with the script, its data, and `with_payload`, the script with the op's function; or `reason`.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tilewise.kernels.errors import ProofError, ScheduleError
from tilewise.kernels.mlir.frontend.graph import LoneOp
from tilewise.kernels.mlir.frontend.read import ReadLimits
from tilewise.kernels.mlir.normalised.choice import first_proven
from tilewise.kernels.mlir.normalised.prove import with_op
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.children import private_output
from tilewise.kernels.system.typed_json import from_json

SECONDS, LIMITS = 30.0, ReadLimits(20.0, 4 << 30)


def main() -> None:
    """Answer one request."""
    asked = json.load(sys.stdin)
    out = private_output()
    lone = from_json(LoneOp, asked["op"])
    schedules = _readable(asked["schedules"])
    try:
        found = first_proven(lone, schedules, seconds=SECONDS, limits=LIMITS)
        script = found.proof.script
        answer = {**found.to_json(script), "with_payload": with_op(lone, script)}
    except ProofError as error:
        answer = {"reason": " ".join(str(error).split())}
    with out:
        out.write(json.dumps(answer).encode())


def _readable(found: list[Any]) -> Iterator[Schedule]:
    """Yield schedules, without those that have steps of another version."""
    for steps in found:
        with suppress(ScheduleError):
            yield Schedule.from_json(steps)


if __name__ == "__main__":
    main()
