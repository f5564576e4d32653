"""Print the module of a stored result: `python -m tilewise.kernels.native.export`."""

import json
import sys
from typing import Any

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.native.export.description import Tuned
from tilewise.kernels.native.export.module import export
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import resolve


def export_result(found: dict[str, Any]) -> str:
    """Return the module of a stored result, as `tilewise show --json` prints it.

    Raises TargetError for another machine, KernelsError if this toolchain lacks something.
    """
    problem, schedule = parse_problem(found["problem"]), Schedule.from_json(found["best"]["steps"])
    return export(problem, schedule, resolve(found["target"]), Tuned.of(found))


def main() -> None:
    """Print the module of the result on stdin; a refusal is one line on stderr."""
    try:
        text = export_result(json.load(sys.stdin))
    except KernelsError as error:
        sys.exit(" ".join(str(error).split()))
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
