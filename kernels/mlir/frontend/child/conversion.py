"""From the dialects that frameworks write to linalg on tensors, by the pipelines of IREE."""

from typing import Any

from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from tilewise.kernels.mlir.frontend.child.operations import number_operations

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
_NOT_TAKEN_APART = ("aten.flatten.using_ints", "aten.unflatten.int", "aten.adaptive_avg_pool1d",
                    "aten.adaptive_avg_pool2d")  # fmt: skip
TORCH_ON_TENSORS = (
    "func.func(torch-reduce-op-variants,torch-decompose-complex-ops{legal-ops={"
    f"{','.join(_NOT_TAKEN_APART)}}}}},torch-scalarize-shapes),"
    "torch-backend-to-linalg-on-tensors-backend-pipeline"
)
"""As torch-mlir lowers to linalg: each `func.func` stays one, on tensors. `torch-to-iree` makes
functions of them that take IREE's buffers and fences."""


def to_linalg(module: Any, *, keeps_functions: bool = False) -> None:
    """Lower a module in place; places of its ops are the same after all pipelines.

    Args:
        module: of any dialect that `PIPELINES` has.
        keeps_functions: whether functions on torch's tensors become functions on tensors, not
            functions that IREE's runtime calls.

    Raises:
        MLIRError: a pipeline refused it.
    """
    pipelines = pipelines_of(module)
    if pipelines:
        number_operations(module)
    for pipeline in pipelines:
        is_torch = pipeline == PIPELINES["torch"]
        told = TORCH_ON_TENSORS if is_torch and keeps_functions else pipeline
        PassManager.parse(f"builtin.module({told})").run(module.operation)


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
