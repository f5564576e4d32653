"""Run a packed network: `python -m tilewise.kernels.mlir.network.child.prove`.

Random inputs are scaled so that values neither grow nor vanish through many layers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewise.kernels.mlir.lowering.functions import Shaped, is_float
from tilewise.kernels.mlir.proof.child.any_payload import Functions, compare_runs, payload_alone
from tilewise.kernels.mlir.proof.child.inputs import in_type, uniform
from tilewise.kernels.mlir.proof.child.stages import Finding, establish, serve
from tilewise.kernels.mlir.proof.proof import ProofReply
from tilewise.kernels.oracle.operands import Array
from tilewise.kernels.system.limited_child import stage

Generator = np.random.Generator


def normal(random: Generator, kind: Shaped, depth: int) -> Array:
    """Return values of both signs; relu cuts off half of them."""
    return random.standard_normal(kind.shape) * (2 / depth if depth else 1) ** 0.5


def positive(random: Generator, kind: Shaped, depth: int) -> Array:
    """Return values above zero: nothing cancels, relu keeps all, and only padding is zero."""
    return random.uniform(0.5, 1.5, kind.shape) / max(depth, 1)


KINDS: dict[str, Callable[[Generator, Shaped, int], Array]] = {
    kind.__name__: kind for kind in (normal, positive)
}


def network_inputs(kind: str, arguments: Sequence[Shaped], depths: Sequence[int]) -> list[Array]:
    """Return random values of one of `KINDS` for every argument.

    Bytes and integers of weights are arbitrary; others are zeros and ones: they may be indices.
    """
    random = np.random.default_rng([0, *kind.encode()])

    def values(one: Shaped, depth: int) -> Array:
        if is_float(one.element):
            return KINDS[kind](random, one, depth)
        may_be_index = not depth and one.element != "i8"
        return random.integers(0, 2, one.shape) if may_be_index else uniform(random, one)

    return [in_type(values(*each), each[0]) for each in zip(arguments, depths, strict=True)]


LITTLE_WORK = 1 << 28
"""Steps of loops that run faster without vectors than LLVM needs to vectorise them."""


def prove_here(request: dict[str, Any]) -> ProofReply:
    """Run a network with and without its script in this process."""

    def steps(finding: Finding, diagnostics: Any) -> None:
        from tilewise.kernels.mlir.lowering.apply import StageError, apply_to
        from tilewise.kernels.mlir.lowering.functions import compile_function, signature_of
        from tilewise.kernels.mlir.lowering.linalg_ops import put_parallel_innermost
        from tilewise.kernels.mlir.proof.child.instrument import perturb

        payload, script = request["payload"], request["script"]
        signature = signature_of(payload_alone(payload))
        module = finding.apply(lambda: apply_to(payload, script, diagnostics))
        begin = stage("lower")
        effort = 3 if request["work"] > LITTLE_WORK else 2

        def compiled(module: Any, *changes: Any) -> Any:
            return compile_function(module, signature, diagnostics, *changes, effort=effort)

        # Packs leave linalg ops, whose loop order the lowering may choose.
        scripted = compiled(module, put_parallel_innermost)
        reference, perturbed = (
            compiled(payload_alone(payload), put_parallel_innermost, *changes)
            for changes in ([], [perturb])
        )
        functions = Functions(scripted, reference, perturbed)
        finding.note(compile_s=stage("run") - begin)
        compared = []
        for kind in KINDS:
            inputs = network_inputs(kind, signature.arguments, request["depths"])
            compared.append(compare_runs(kind, inputs, functions))
        worst = max(compared, key=lambda one: one.difference.share)
        if not any(np.isfinite(one.difference.expected) for one in compared):
            raise StageError("wrong", "no kind of inputs gives finite results to compare")
        finding.note(executed=True, **worst.fields())

    return establish(steps)


if __name__ == "__main__":
    serve(prove_here)
