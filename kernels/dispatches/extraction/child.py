"""The process that extracts patterns: `python -m tilewise.kernels.dispatches.extraction.child`."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tilewise.kernels.mlir.frontend.dims import DimRange
from tilewise.kernels.system.limited_child import reply_to_request, stage
from tilewise.kernels.system.typed_json import from_json


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the ops of the module at `path` that are problems, or should have been, as cuts."""
    stage("loading MLIR")
    from iree.compiler import ir

    from tilewise.kernels.mlir.dialects import without_definitions

    without_definitions()
    from tilewise.kernels.dispatches.extraction.dynamic import DynamicTensors
    from tilewise.kernels.dispatches.extraction.trace import cut_out
    from tilewise.kernels.mlir.frontend.child.candidates import candidates

    stage("parsing")
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(Path(request["path"]).read_text())
        stage("extraction")
        dim = from_json(DimRange, request["dim"]) if request["dim"] else None
        dynamic = DynamicTensors(module, dim)
        dynamic.set_sample(-1)
        cuts = (
            replace(cut_out(one, dynamic), narrow=one.narrow.problem if one.narrow else "")
            for one in candidates(module)
        )
        return {"cuts": [asdict(cut) for cut in cuts]}


if __name__ == "__main__":
    reply_to_request(answer)
