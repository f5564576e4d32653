"""From the dialects that frameworks write to linalg on tensors, by the pipelines of IREE."""

from typing import Any

from iree.compiler import ir
from iree.compiler.passmanager import PassManager

ONNX = "onnx"
PIPELINES = {
    ONNX: "torch-onnx-to-torch-backend-pipeline",
    "torch": "torch-to-iree",
    "torch_c": "torch-to-iree",
    "stablehlo": "iree-stablehlo-input-transformation-pipeline",
    "chlo": "iree-stablehlo-input-transformation-pipeline",
    "vhlo": "iree-stablehlo-input-transformation-pipeline",
    "tosa": "iree-tosa-input-transformation-pipeline",
}
"""The pipeline that lowers each dialect, in the order in which they run; ONNX becomes torch."""


def to_linalg(module: Any) -> None:
    """Lower a module in place.

    Raises:
        MLIRError: a pipeline refused it.
    """
    for pipeline in pipelines_of(module):
        PassManager.parse(f"builtin.module({pipeline})").run(module.operation)


def pipelines_of(module: Any) -> list[str]:
    """The pipelines that a module needs, each once, in the order of `PIPELINES`."""
    found: set[str] = set()

    def look(op: Any) -> Any:
        found.add(op.name.partition(".")[0])
        if op.name == "torch.operator" and op.attributes["name"].value.startswith("onnx."):
            found.add(ONNX)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look, ir.WalkOrder.PRE_ORDER)
    return list(dict.fromkeys(PIPELINES[name] for name in PIPELINES if name in found))
