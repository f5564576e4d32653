"""The process that applies, compiles and runs scripts: `python -m` of this module.

It announces each stage on standard error, so that the parent can say which one hung. The first
stage imports MLIR, within the limits of the request.
"""

from typing import Any

from tilewise.kernels.mlir.proof.child.stages import (
    Finding,
    Passing,
    establish,
    run_and_time,
    serve,
)
from tilewise.kernels.mlir.proof.proof import ProofReply, SizeProof
from tilewise.kernels.oracle.operands import Array
from tilewise.kernels.problem import parse_problem, parse_range, sizes_text
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
        from tilewise.kernels.mlir.lowering.functions import inline
        from tilewise.kernels.mlir.lowering.structure import check_structure
        from tilewise.kernels.mlir.lowering.to_llvm import lower
        from tilewise.kernels.nest import nest_of

        module = finding.apply(lambda: apply_script(request["module"], diagnostics))
        if request.get("apply_only"):
            finding.note(transformed=str(module))
            return
        inline(module, diagnostics)
        nest = nest_of(problem)
        lanes = request.get("lanes", 0)
        is_vectorised = check_structure(module, lanes or nest.dim(nest.col).extent, lanes)
        finding.note(vectorised=is_vectorised)
        compiled, scratch = finding.compile(lambda: lower(module, diagnostics))
        if "sizes" in request:
            run_sizes(finding, request, compiled, scratch)
        else:
            finding.note(**run_and_time(problem, compiled, scratch, request))

    return establish(steps)


def run_sizes(finding: Finding, request: dict[str, Any], compiled: Any, scratch: Any) -> None:
    """Check and time a function at the sizes of a range, up to the first failure."""
    problems = parse_range(request["range"])
    ranks = {name: len(s) for name, s in parse_problem(request["problem"]).operand_shapes.items()}
    for size in request["sizes"]:
        problem, text = problems.at(tuple(size)), sizes_text(problems.dims, size, size)

        def of_rank(name: str, array: Array) -> Array:
            return array.reshape((1,) * (ranks[name] - array.ndim) + array.shape)

        def as_stored(array: Array, shape: tuple[int, ...] = problem.operand_shapes["C"]) -> Array:
            return array.reshape(shape)

        passing = Passing(argument=of_rank, result=as_stored)
        out = run_and_time(problem, compiled, scratch, request, passing)
        finding.note(**out)
        if "failure" in out:
            finding.note(message=f"{text}: {out['message']}")
            return
        fields = ("max_error", "tolerance", "gflops", "time_us")
        found = SizeProof(text, *(out[name] for name in fields))
        finding.note(sizes=(*finding.found.sizes, found))


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
