"""Pack a whole module, and prove its script and the scripts of its layers."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tilewise.kernels.errors import PlaceError, ProofError
from tilewise.kernels.mlir.frontend.read import USUAL_LIMITS, ReadLimits, ask_of_module
from tilewise.kernels.mlir.network.compute import LayerTile, emit_layer, tile_of
from tilewise.kernels.mlir.network.packing import Blocks
from tilewise.kernels.mlir.network.plan import Layer, PackPlan
from tilewise.kernels.mlir.proof.proof import ScriptProof, annotated, run_child
from tilewise.kernels.mlir.proof.prove import verify
from tilewise.kernels.mlir.transform.module import HEADER_END, mlir_version
from tilewise.kernels.system.typed_json import from_json
from tilewise.kernels.target import Target

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
    reply = ask_of_module(module, limits, wishes(blocks), PACK)
    if "refused" in reply:
        raise PlaceError(reply["refused"])
    if "failed" in reply:
        raise ProofError(f"packing the module: apply: {reply['failed']}")
    return from_json(PackPlan, reply["plan"])


def wishes(blocks: Blocks) -> dict[str, Any]:
    """Return blocks as JSON for a request."""
    of_ops = {str(i): [one.rows, one.columns, one.depth] for i, one in blocks.of_ops.items()}
    return {"channels": blocks.channels, "rows": blocks.rows, "of_ops": of_ops}


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
        "seed": 0,
    }


@dataclass(frozen=True)
class ProvenLayer:
    """A layer with the proof of its script."""

    layer: Layer
    tile: LayerTile
    proof: ScriptProof

    def to_json(self) -> dict[str, Any]:
        """Return everything but the texts."""
        return {
            "where": list(self.layer.where),
            "loops": list(self.layer.shape.extents),
            "rows": self.tile.rows * self.tile.lines,
            "columns": self.tile.blocks * self.layer.shape.columns,
            "ends": self.layer.ends,
            "ok": self.proof.ok,
            "failure": self.proof.failure,
            "time_us": self.proof.time_us,
            "gflops": self.proof.gflops,
            "max_error": self.proof.max_error,
            "tolerance": self.proof.tolerance,
        }


def prove_layers(
    layers: Iterable[Layer], target: Target, *, limits: ReadLimits = USUAL_LIMITS
) -> Iterator[ProvenLayer]:
    """Emit and prove the script of each layer; a proof's script has its header filled in."""
    for layer in layers:
        tile = tile_of(layer.shape, target)
        script = _headed(emit_layer(layer, tile), layer, tile)
        proof = verify(script, payload=layer.payload, **vars(limits)).proof
        if proof.ok and proof.time_us:
            proof = replace(proof, gflops=layer.shape.flops / proof.time_us / 1e3)
        yield ProvenLayer(layer, tile, replace(proof, script=annotated(script, proof)))


def _headed(script: str, layer: Layer, tile: LayerTile) -> str:
    rows, columns = tile.rows * tile.lines, tile.blocks * layer.shape.columns
    lines = [
        f"layer:    loops of {' x '.join(map(str, layer.shape.extents))}, {layer.ends} ops behind",
        f"tile:     {rows} rows by {columns} columns",
        *(f"place:    {place}" for place in layer.where),
    ]
    return script.replace(HEADER_END, "".join(f"// {line}\n" for line in lines) + HEADER_END, 1)
