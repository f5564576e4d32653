"""The process in which anybody's script is put to the proof: `python -m
tilewise.kernels.mlir.proof.child.verify`.

It may die at any moment, as `tilewise.kernels.mlir.proof.child.prove` may.
"""

from typing import Any

from tilewise.kernels.mlir.proof.child.check import run_and_time
from tilewise.kernels.mlir.proof.child.stages import Finding, establish, serve
from tilewise.kernels.mlir.proof.found import Found
from tilewise.kernels.system.limited_child import stage

MOST_FLOPS = 1 << 25
"""Of a problem that is run on all kinds of inputs: its payload in plain loops takes 50 runs."""


def verify_here(request: dict[str, Any]) -> Found:
    """Put any script to the proof: what could be established, and more."""

    def steps(finding: Finding, diagnostics: Any) -> None:
        from iree.compiler import ir

        from tilewise.kernels.mlir.lowering.functions import bufferize
        from tilewise.kernels.mlir.lowering.packs_to_loops import lower_packs
        from tilewise.kernels.mlir.lowering.to_llvm import lower
        from tilewise.kernels.mlir.proof.child import any_payload
        from tilewise.kernels.problem import parse_problem

        def lowered() -> Any:
            bufferize(module, diagnostics)
            lower_packs(module)
            return lower(module, diagnostics)

        module = finding.apply(lambda: any_payload.apply_request(request, diagnostics))
        finding.note(**any_payload.examine(module))
        any_payload.check_races(request, module, diagnostics, stage)
        if request["problem"] is None:
            stage("lower")
            finding.note(**any_payload.run_payload(request, module, diagnostics, stage))
            return

        def on_other_inputs() -> dict[str, Any]:
            if problem.flops > MOST_FLOPS:
                return {}
            transformed = ir.Module.parse(finding.found.transformed)
            out = any_payload.run_payload(request, transformed, diagnostics, stage, is_timed=False)
            return out if "failure" in out else {}

        compiled, scratch = finding.compile(lowered)
        problem = parse_problem(request["problem"])
        finding.note(
            **run_and_time(problem, compiled, scratch, request, check_further=on_other_inputs)
        )

    return establish(steps)


if __name__ == "__main__":
    serve(verify_here)
