"""The process in which a user's op is scripted, compiled and run: `python -m
tilewise.kernels.mlir.normalised.child`.

It may die at any moment, as `tilewise.kernels.mlir.proof.child.prove` may.
"""

from typing import Any

from tilewise.kernels.mlir.frontend.graph import Occurrence
from tilewise.kernels.mlir.normalised.passing import passing_of
from tilewise.kernels.mlir.proof.child.stages import Finding, establish, run_and_time, serve
from tilewise.kernels.mlir.proof.proof import Found
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.typed_json import from_json


def prove_here(request: dict[str, Any]) -> Found:
    """Prove the script of an op in this process: what could be established."""
    found = from_json(Occurrence, request["found"])
    problem = parse_problem(found.problem)
    a, b, c = (tuple(shape) for shape in request["shapes"])

    def steps(finding: Finding, diagnostics: Any) -> None:
        from tilewise.kernels.mlir.lowering.apply import apply_to
        from tilewise.kernels.mlir.lowering.structure import check_structure
        from tilewise.kernels.mlir.lowering.to_llvm import lower

        module = finding.apply(lambda: apply_to(request["payload"], request["script"], diagnostics))
        if request["apply_only"]:
            finding.note(transformed=str(module))
            return
        vectorised = check_structure(module, request["columns"], request["lanes"])
        finding.note(vectorised=vectorised)
        compiled, scratch = finding.compile(lambda: lower(module, diagnostics))
        passing = passing_of(found, (a, b, c))
        finding.note(**run_and_time(problem, compiled, scratch, request, passing))

    return establish(steps)


if __name__ == "__main__":
    serve(prove_here)
