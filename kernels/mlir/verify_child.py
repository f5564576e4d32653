"""The process in which anybody's script is put to the proof: `python -m kernels.mlir.verify_child`.

It may die at any moment, as `kernels.mlir.child` may.
"""

from typing import Any

from kernels.mlir.child import Finding, establish, run_and_time, serve, stage


def verify_here(request: dict[str, Any]) -> dict[str, Any]:
    """Put any script to the proof: the fields of `Proof` that could be established, and more."""

    def steps(finding: Finding, diagnostics: Any) -> None:
        from kernels.mlir import examine
        from kernels.mlir.functions import bufferize
        from kernels.mlir.lower import lower
        from kernels.mlir.packs import lower_packs
        from kernels.problem import parse_problem

        def lowered() -> Any:
            bufferize(module, diagnostics)
            lower_packs(module)
            return lower(module, diagnostics)

        module = finding.apply(lambda: examine.apply_request(request, diagnostics))
        finding.fields |= examine.examine(module)
        if request["problem"] is None:
            stage("lower")
            finding.fields |= examine.run_payload(request, module, diagnostics, stage)
            return
        compiled, scratch = finding.compile(lowered)
        problem = parse_problem(request["problem"])
        finding.fields |= run_and_time(problem, compiled, scratch, request)

    return establish(steps)


if __name__ == "__main__":
    serve(verify_here)
