"""The process in which a script is applied, compiled and run: `python -m
tilewise.kernels.mlir.proof.child.prove`.

It reads one JSON request on standard input, writes one JSON reply on standard output,
and may die at any moment: the parent (`tilewise.kernels.mlir.proof.prove`) turns that into a
failure. Stages are announced on standard error, so that the parent can say which one hung.
"""

from typing import Any

from tilewise.kernels.mlir.proof.child.check import run_and_time
from tilewise.kernels.mlir.proof.child.stages import Finding, establish, serve
from tilewise.kernels.mlir.proof.found import Found


def main() -> None:
    """Serve one request to prove a script."""
    serve(prove_here)


def prove_here(request: dict[str, Any]) -> Found:
    """Prove one script in this process: what could be established."""
    from tilewise.kernels.problem import parse_problem

    problem = parse_problem(request["problem"])

    def steps(finding: Finding, diagnostics: Any) -> None:
        from tilewise.kernels.mlir.lowering.apply import apply_script
        from tilewise.kernels.mlir.lowering.structure import check_structure
        from tilewise.kernels.mlir.lowering.to_llvm import lower
        from tilewise.kernels.nest import nest_of

        module = finding.apply(lambda: apply_script(request["module"], diagnostics))
        if request.get("apply_only"):
            finding.note(transformed=str(module))
            return
        nest = nest_of(problem)
        lanes = request.get("lanes", 0)
        is_vectorised = check_structure(module, lanes or nest.dim(nest.col).extent, lanes)
        finding.note(vectorised=is_vectorised)
        compiled, scratch = finding.compile(lambda: lower(module, diagnostics))
        finding.note(**run_and_time(problem, compiled, scratch, request))

    return establish(steps)


if __name__ == "__main__":
    main()
