"""`--packs --layers DIR`: a proven script of each distinct layer."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise.cli.files import json_text, write_text
from tilewise.kernels.quoting import duration
from tilewise.kernels.target import detect

if TYPE_CHECKING:  # they load MLIR's child processes
    from tilewise.kernels.mlir.frontend.read import ReadLimits
    from tilewise.kernels.mlir.network.pack import ProvenLayer
    from tilewise.kernels.mlir.network.plan import Layer

MANIFEST = "layers.json"
Json = dict[str, Any]


def write_layers(layers: "Sequence[Layer]", folder: Path, limits: "ReadLimits") -> list[Json]:
    """Prove and write each layer's script; return what `--json` prints of them.

    A layer whose proof fails has no file.
    """
    from tilewise.kernels.mlir.network.pack import prove_layers
    from tilewise.kernels.mlir.transform.module import with_function

    rows = []
    for number, proven in enumerate(prove_layers(layers, detect(), limits=limits), 1):
        name = f"layer_{number:02}.mlir" if proven.proof.ok else None
        if name:
            text = with_function(proven.layer.payload, proven.proof.script)
            write_text(str(folder / name), text)
        rows.append({"file": name, **proven.to_json()})
        sys.stderr.write(_line(name, proven))
    write_text(str(folder / MANIFEST), json_text({"layers": rows}))
    return rows


def _line(name: str | None, proven: "ProvenLayer") -> str:
    proof, count = proven.proof, len(proven.layer.where)
    if name is None:
        why = proof.message.partition("\n")[0]
        return f"no file for {proven.layer.where[0]}: {proof.failure}: {why}\n"
    return (
        f"{name}  {count} x {duration(proof.time_us)}, {proof.gflops:.0f} GFLOP/s, "
        f"error {proof.max_error:.3g}, allowed {proof.tolerance:.3g}\n"
    )
