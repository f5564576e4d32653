"""The process in which a packed network is run: `python -m kernels.mlir.network.child.prove`.

It may die at any moment, as `kernels.mlir.proof.child.prove` may.
"""

from typing import Any

import numpy as np

from kernels.mlir.network.child.inputs import KINDS, network_inputs
from kernels.mlir.proof.child.any_payload import compare_runs, payload_alone
from kernels.mlir.proof.child.stages import Finding, establish, serve
from kernels.mlir.proof.found import Found
from kernels.system.limited_child import stage


def prove_here(request: dict[str, Any]) -> Found:
    """Run a network with and without its script in this process: what could be established."""

    def steps(finding: Finding, diagnostics: Any) -> None:
        from kernels.mlir.lowering.apply import StageError, apply_to
        from kernels.mlir.lowering.functions import compile_function
        from kernels.mlir.lowering.interchange import put_parallel_innermost
        from kernels.mlir.lowering.signature import signature_of
        from kernels.mlir.proof.child.perturb import perturb

        payload, script = request["payload"], request["script"]
        signature = signature_of(payload_alone(payload))
        module = finding.apply(lambda: apply_to(payload, script, diagnostics))
        begin = stage("lower")
        # What packs leave is linalg: the order of its loops is the lowering's to choose.
        scripted = compile_function(module, signature, diagnostics, put_parallel_innermost)
        reference, perturbed = (
            compile_function(payload_alone(payload), signature, diagnostics, *changes)
            for changes in ([put_parallel_innermost], [put_parallel_innermost, perturb])
        )
        finding.note(compile_s=stage("run") - begin)
        compared = []
        for kind in KINDS:
            inputs = network_inputs(kind, signature.arguments, request["depths"], request["seed"])
            compared.append(compare_runs(kind, inputs, scripted, reference, perturbed))
        worst = max(compared, key=lambda one: one.difference.share)
        if not any(np.isfinite(one.difference.expected) for one in compared):
            raise StageError("wrong", "no kind of inputs gives finite results to compare")
        finding.note(executed=True, **worst.fields())

    return establish(steps)


if __name__ == "__main__":
    serve(prove_here)
