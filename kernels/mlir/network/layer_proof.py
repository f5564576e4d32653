"""The scripts of a network's layers, each put to the proof on the layer's own function."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tilewise.kernels.mlir.frontend.read import Limits
from tilewise.kernels.mlir.network.compute import emit_layer
from tilewise.kernels.mlir.network.layer import Layer
from tilewise.kernels.mlir.network.pack import USUAL_LIMITS
from tilewise.kernels.mlir.network.tiles import Tile, tile_of
from tilewise.kernels.mlir.proof.proof import Proof, annotated
from tilewise.kernels.mlir.proof.prove import verify
from tilewise.kernels.mlir.transform.module import HEADER_END
from tilewise.kernels.target import Target


@dataclass(frozen=True)
class ProvenLayer:
    """A layer whose script was put to the proof.

    Attributes:
        layer: the layer.
        tile: in which it is computed.
        proof: what became of the script, which it has.
    """

    layer: Layer
    tile: Tile
    proof: Proof

    def to_json(self) -> dict[str, Any]:
        """What can be told without the texts."""
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
    layers: Iterable[Layer], target: Target, *, seed: int = 0, limits: Limits = USUAL_LIMITS
) -> Iterator[ProvenLayer]:
    """Emit and prove the script of each layer; a proof's script has its header filled in.

    Args:
        layers: of a packed network.
        target: whose registers the tiles fill.
        seed: of the inputs.
        limits: of each proof's child.

    Raises:
        LimitError: a limit cannot be one.
    """
    for layer in layers:
        tile = tile_of(layer.shape, target)
        script = _headed(emit_layer(layer, tile), layer, tile)
        proof = verify(script, payload=layer.payload, seed=seed, **vars(limits)).proof
        if proof.ok and proof.time_us:
            proof = replace(proof, gflops=layer.shape.flops / proof.time_us / 1e3)
        yield ProvenLayer(layer, tile, replace(proof, script=annotated(script, proof)))


def _headed(script: str, layer: Layer, tile: Tile) -> str:
    rows, columns = tile.rows * tile.lines, tile.blocks * layer.shape.columns
    lines = [
        f"layer:    loops of {' x '.join(map(str, layer.shape.extents))}, {layer.ends} ops behind",
        f"tile:     {rows} rows by {columns} columns",
        *(f"place:    {place}" for place in layer.where),
    ]
    return script.replace(HEADER_END, "".join(f"// {line}\n" for line in lines) + HEADER_END, 1)
