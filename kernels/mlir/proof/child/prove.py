"""The process that applies, compiles and runs scripts: `python -m` of this module.

It announces each stage on standard error, so that the parent can say which one hung. The first
stage imports MLIR, within the limits of the request.
"""

from typing import Any

from tilewise.kernels.mlir.proof.child.stages import Finding, establish, run_and_time, serve
from tilewise.kernels.mlir.proof.proof import ProofReply
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.limited_child import stage

MOST_FLOPS = 1 << 25
"""Of problems that run on all kinds of inputs, 50 times in plain loops."""


def answer(request: dict[str, Any]) -> ProofReply:
    """Prove the script of a schedule (`module`), or any script on any payload (`script`)."""
    return verify_here(request) if "script" in request else prove_here(request)


def prove_here(request: dict[str, Any]) -> ProofReply:
    """Prove a script on the payload of a problem, whose vectors it has to multiply."""
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


def verify_here(request: dict[str, Any]) -> ProofReply:
    """Prove a script on the payload of a problem, or on one that is its own reference."""

    def steps(finding: Finding, diagnostics: Any) -> None:
        from iree.compiler import ir

        from tilewise.kernels.mlir.lowering.functions import bufferize
        from tilewise.kernels.mlir.lowering.linalg_ops import lower_packs
        from tilewise.kernels.mlir.lowering.to_llvm import lower
        from tilewise.kernels.mlir.proof.child import any_payload

        def lowered() -> Any:
            bufferize(module, diagnostics)
            lower_packs(module)
            return lower(module, diagnostics)

        module = finding.apply(lambda: any_payload.apply_request(request, diagnostics))
        finding.note(**any_payload.examine(module))
        any_payload.check_races(request, module, diagnostics)
        if request["problem"] is None:
            stage("lower")
            finding.note(**any_payload.run_payload(request, module, diagnostics))
            return

        def on_other_inputs() -> dict[str, Any]:
            if problem.flops > MOST_FLOPS:
                return {}
            transformed = ir.Module.parse(finding.found.transformed)
            out = any_payload.run_payload(request, transformed, diagnostics, is_timed=False)
            return out if "failure" in out else {}

        compiled, scratch = finding.compile(lowered)
        problem = parse_problem(request["problem"])
        finding.note(
            **run_and_time(problem, compiled, scratch, request, check_further=on_other_inputs)
        )

    return establish(steps)


if __name__ == "__main__":
    serve(answer)
