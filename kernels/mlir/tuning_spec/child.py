"""The process that runs a spec's code: `python -m tilewise.kernels.mlir.tuning_spec.child`."""

import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewise.kernels.mlir.proof.child.stages import compared, serve, speed
from tilewise.kernels.mlir.proof.proof import ProofReply
from tilewise.kernels.system.limited_child import stage

SPEC = "spec"


def run_here(request: dict[str, Any]) -> ProofReply:
    """Run the spec's module, compare the result, and time it in turns with IREE's own modes."""
    from tilewise.kernels.mlir.proof.child.timing import sample_in_turns, summarise
    from tilewise.kernels.oracle.operands import make_operands, poison
    from tilewise.kernels.oracle.reference import reference
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
    found = ProofReply(**compared(problem, operands["C"], expected))
    if found.failure:
        return found
    stage("time")
    sampled = sample_in_turns(list(runs.values()), request["repeat_s"])
    samples = dict(zip(runs, sampled, strict=True))
    own = summarise(samples.pop(SPEC))
    others = {name: statistics.median(times) for name, times in samples.items()}
    lines = tuple(
        f"{problem.flops / seconds / 1e9:.1f} GFLOP/s by IREE's {name}: "
        f"gain {seconds / own.median:.2f}"
        for name, seconds in others.items()
    )
    found = replace(found, **speed(problem, own), outline=lines)
    if min(others.values(), default=own.median) < own.median:
        fastest = min(lines, key=lambda line: float(line.rpartition(" ")[2]))
        return replace(found, failure="slower", message=f"IREE alone is faster: {fastest}")
    return found


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
    serve(run_here)
