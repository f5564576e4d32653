"""Packing a module as a whole, and the proof that it computes what it did; in child processes."""

from dataclasses import replace
from typing import Any

from tilewise.kernels.errors import PlaceError, ProofError
from tilewise.kernels.mlir.frontend.read import Limits, ask_of_module
from tilewise.kernels.mlir.network.blocks import Blocks
from tilewise.kernels.mlir.network.plan import PackPlan
from tilewise.kernels.mlir.proof.proof import Proof, annotated, run_child
from tilewise.kernels.mlir.transform.module import mlir_version
from tilewise.kernels.system.typed_json import from_json

USUAL_BLOCKS, USUAL_LIMITS = Blocks(), Limits()
PACK, PROVE = (f"tilewise.kernels.mlir.network.child.{name}" for name in ("pack", "prove"))


def pack_module(
    module: bytes, blocks: Blocks = USUAL_BLOCKS, limits: Limits = USUAL_LIMITS
) -> PackPlan:
    """The script that packs the ops of a module and cancels packs along its edges, applied.

    Args:
        module: text or bytecode, of any dialect that `read_module` reads.
        blocks: how long the blocks are.
        limits: of the child.

    Raises:
        ModuleError: it is no MLIR that can be lowered to one function, or it takes too long.
        PlaceError: blocks that are wished for an op do not fit it, or there is no such op.
        ProofError: the script does not apply; the message is MLIR's.
        CompilerAbsentError: MLIR is not installed.
        LimitError: a limit cannot be one.
    """
    reply = ask_of_module(module, limits, wishes(blocks), PACK)
    if "refused" in reply:
        raise PlaceError(reply["refused"])
    if "failed" in reply:
        raise ProofError(f"packing the module: apply: {reply['failed']}")
    return from_json(PackPlan, reply["plan"])


def wishes(blocks: Blocks) -> dict[str, Any]:
    """Blocks as a request has them."""
    of_ops = {str(i): [one.rows, one.columns, one.depth] for i, one in blocks.of_ops.items()}
    return {"channels": blocks.channels, "rows": blocks.rows, "of_ops": of_ops}


def prove_packs(plan: PackPlan, *, seed: int = 0, limits: Limits = USUAL_LIMITS) -> Proof:
    """Run a packed module beside the module as it was, on random inputs and random weights.

    What a float may differ by follows from perturbing each rounding of the module, as for any
    payload. The proof's script has its header filled in.

    Raises:
        LimitError: a limit cannot be one.
    """
    request = {**run_request(plan, seed), **vars(limits)}
    proof = Proof.of(run_child(request, PROVE), mlir=mlir_version(), script=plan.script)
    return replace(proof, script=annotated(plan.script, proof))


def run_request(plan: PackPlan, seed: int = 0) -> dict[str, Any]:
    """What the child of a proof needs to know of a plan."""
    return {
        "payload": plan.payload,
        "script": plan.script,
        "depths": list(plan.depths),
        "work": plan.work,
        "seed": seed,
    }
