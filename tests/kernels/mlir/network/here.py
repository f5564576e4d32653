"""Packing and proving in this process, as their children do."""

import json
import tempfile
from pathlib import Path

from tilewise.kernels.mlir.network.pack import run_request, wishes
from tilewise.kernels.mlir.network.packing import Blocks
from tilewise.kernels.mlir.network.plan import PackPlan
from tilewise.kernels.mlir.proof.proof import ProofReply
from tilewise.kernels.system.typed_json import from_json


def pack(module: bytes, blocks: Blocks | None = None) -> PackPlan:
    """What `pack_module` gives."""
    from tilewise.kernels.mlir.network.child.pack import answer

    with tempfile.NamedTemporaryFile(suffix=".mlir") as file:
        Path(file.name).write_bytes(module)
        reply = answer({"path": file.name, **wishes(blocks or Blocks())})
    return from_json(PackPlan, json.loads(json.dumps(reply["plan"])))


def prove(plan: PackPlan) -> ProofReply:
    """What the child of `prove_packs` finds."""
    from tilewise.kernels.mlir.network.child.prove import prove_here

    return prove_here(run_request(plan))
