"""The process that applies, inspects and executes an air script.

`python -m tilewise.kernels.mlir.air.child` answers one request. It executes the script's own IR
with its memory spaces; only packs and unpacks become loops, and parallel loops run sequentially.
"""

from typing import Any

from tilewise.kernels.mlir.air.schedule import KStreaming, require_streamed
from tilewise.kernels.mlir.proof.child.stages import Finding, check_call, establish, serve
from tilewise.kernels.mlir.proof.proof import ProofReply
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.limited_child import stage


def prove_here(request: dict[str, Any]) -> ProofReply:
    """Prove one script in this process."""
    problem, runs = (require_streamed(parse_problem(request[name])) for name in ("problem", "runs"))
    schedule = KStreaming.from_json(request["schedule"])

    def steps(finding: Finding, diagnostics: Any) -> None:
        from tilewise.kernels.mlir.air.inspection import check_wishes, places
        from tilewise.kernels.mlir.lowering.apply import apply_script
        from tilewise.kernels.mlir.lowering.linalg_ops import lower_packs
        from tilewise.kernels.mlir.lowering.to_llvm import lower

        def lowered() -> Any:
            lower_packs(module)
            return lower(module, diagnostics)

        module = finding.apply(lambda: apply_script(request["module"], diagnostics))
        stage("inspect")
        check_wishes(places(module), problem, schedule)
        if runs != problem:
            stage("apply to what is run")
            module = apply_script(request["runs_module"], diagnostics)
            check_wishes(places(module), runs, schedule)
        compiled, scratch = finding.compile(lowered, effort=1)
        finding.note(**check_call(runs, compiled, scratch, request["seed"])[1])

    return establish(steps)


if __name__ == "__main__":
    serve(prove_here)
