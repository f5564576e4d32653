"""Pack a whole module, and prove its script."""

from dataclasses import asdict, replace
from typing import Any

from tilewise.kernels.errors import PlaceError, ProofError
from tilewise.kernels.mlir.frontend.read import USUAL_LIMITS, ReadLimits, ask_of_module
from tilewise.kernels.mlir.network.packing import Blocks
from tilewise.kernels.mlir.network.plan import PackPlan
from tilewise.kernels.mlir.proof.proof import ScriptProof, annotated, run_child
from tilewise.kernels.mlir.transform.module import mlir_version
from tilewise.kernels.system.typed_json import from_json

USUAL_BLOCKS = Blocks()
PACK, PROVE = (f"tilewise.kernels.mlir.network.child.{name}" for name in ("pack", "prove"))


def pack_module(
    module: bytes, blocks: Blocks = USUAL_BLOCKS, limits: ReadLimits = USUAL_LIMITS
) -> PackPlan:
    """Return the applied script that packs the ops of a module and cancels adjacent packs.

    Raises:
        ModuleError: the module cannot be lowered to one function, or takes too long.
        PlaceError: requested blocks do not fit their op, or there is no such op.
        ProofError: the script does not apply; the message is MLIR's.
        CompilerAbsentError: MLIR is not installed.
    """
    reply = ask_of_module(module, limits, asdict(blocks), PACK)
    if "refused" in reply:
        raise PlaceError(reply["refused"])
    if "failed" in reply:
        raise ProofError(f"packing the module: apply: {reply['failed']}")
    return from_json(PackPlan, reply["plan"])


def prove_packs(plan: PackPlan, *, limits: ReadLimits = USUAL_LIMITS) -> ScriptProof:
    """Run a packed module and the original on random inputs and weights.

    The tolerance of floats follows from perturbing each rounding of the module, as for any payload.
    The proof's script has its header filled in.
    """
    request = {**run_request(plan), **vars(limits)}
    proof = ScriptProof.of(run_child(request, PROVE), mlir=mlir_version(), script=plan.script)
    return replace(proof, script=annotated(plan.script, proof))


def run_request(plan: PackPlan) -> dict[str, Any]:
    """Return a plan's request to the proving child."""
    return {
        "payload": plan.payload,
        "script": plan.script,
        "depths": list(plan.depths),
        "work": plan.work,
    }
