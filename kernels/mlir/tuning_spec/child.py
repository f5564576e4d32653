"""The process in which a spec's code is run: `python -m tilewise.kernels.mlir.tuning_spec.child`.

It reads one JSON request on standard input, writes one JSON reply on standard output, and may die
at any moment: the parent (`tilewise.kernels.mlir.tuning_spec.prove`) turns that into a failure.
"""

import statistics
from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from tilewise.kernels.mlir.proof.child.stages import serve
from tilewise.kernels.mlir.proof.proof import Found
from tilewise.kernels.system.limited_child import stage

SPEC = "spec"


def main() -> None:
    """Serve one request to run modules."""
    serve(run_here)


def run_here(request: dict[str, Any]) -> Found:
    """Run the spec's module, compare, and time it in turns with the others."""
    from tilewise.kernels.mlir.proof.child.timing import Turn, summarise
    from tilewise.kernels.oracle.operands import make_operands, poison
    from tilewise.kernels.oracle.reference import compare, reference
    from tilewise.kernels.problem import parse_problem

    problem = parse_problem(request["problem"])
    stage("reference")
    operands = make_operands(problem, request["seed"])
    expected = reference(problem, operands)
    stage("run")
    folder, threads = Path(request["folder"]), request["threads"]
    paths = {name: folder / f"{name}.vmfb" for name in request["modules"]}
    runs = {name: _bound(problem, operands, path, threads) for name, path in paths.items()}
    poison(operands["C"])
    runs[SPEC](1)
    error, tolerance = compare(problem, operands["C"], expected)
    found = Found(executed=True, max_error=error if isfinite(error) else None, tolerance=tolerance)
    if not error <= tolerance:
        off = f"the result is off by {error:g}, and {tolerance:g} is allowed"
        return replace(found, failure="wrong", message=off)
    stage("time")
    turns = {name: Turn(run, request["repeat_s"]) for name, run in runs.items()}
    while waiting := [turn for turn in turns.values() if not turn.is_over]:
        for turn in waiting:
            turn.sample()
    own = summarise(turns[SPEC].samples)
    speeds = [problem.flops / taken / 1e9 for taken in (own.median, own.high, own.low)]
    others = {n: statistics.median(turn.samples) for n, turn in turns.items() if n != SPEC}
    said = [_beside(name, taken, own.median, problem.flops) for name, taken in others.items()]
    found = replace(
        found,
        gflops=speeds[0],
        interval=(speeds[1], speeds[2]),
        time_us=own.median * 1e6,
        outline=tuple(said),
    )
    if min(others.values(), default=own.median) < own.median:
        return replace(found, failure="slower", message=_slower(said))
    return found


def _slower(said: list[str]) -> str:
    """Which mode is the fastest; of a gain below 1."""
    return f"IREE alone is faster: {min(said, key=lambda line: float(line.rpartition(' ')[2]))}"


def _beside(name: str, seconds: float, own_s: float, flops: int) -> str:
    """One mode's speed, and how many times faster the spec is."""
    return f"{flops / seconds / 1e9:.1f} GFLOP/s by IREE's {name}: gain {seconds / own_s:.2f}"


def _bound(problem: Any, operands: Any, path: Path, threads: int) -> Callable[[int], None]:
    from tilewise.kernels.mlir.iree.module_text import SCOPE, argument_names
    from tilewise.kernels.mlir.iree.runtime import LoadedModule, Parameters, open_device
    from tilewise.kernels.mlir.payload.function import ENTRY
    from tilewise.kernels.oracle.operands import operand_type

    weights = Parameters(SCOPE, {"B": operands["B"]}) if problem.has_constant_weights else None
    module = LoadedModule(path.read_bytes(), open_device(threads), weights)
    names = [*argument_names(problem), "C"]
    return module.bind(ENTRY, [(operands[name], operand_type(problem, name)) for name in names])


if __name__ == "__main__":
    main()
