"""What the interpreter leaves is verified, and buffers that nobody can provide are refused."""

import pytest
from iree.compiler import ir

from tests.kernels.mlir.proof.test_verify import PAYLOAD, script
from tilewise.kernels.mlir.lowering.apply import Diagnostics, StageError, apply_script, apply_to
from tilewise.kernels.mlir.lowering.structure import check_structure
from tilewise.kernels.mlir.lowering.to_llvm import lower

# One map for three operands: nothing but the verifier looks.
BROKEN = script(
    "%maps = transform.param.constant [affine_map<(m, n, k) -> (m, k)>] -> !transform.any_param",
    "%wrong = transform.structured.generalize %op : (!transform.any_op) -> !transform.any_op",
    'transform.annotate %wrong "indexing_maps" = %maps : !transform.any_op, !transform.any_param',
)
DYNAMIC = """
func.func @f(%n: index, %a: memref<4xf32>) {
  %buffer = memref.{op}(%n) : memref<?xf32>
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%buffer : memref<?xf32>)
  %last = memref.load %buffer[%n] : memref<?xf32>
  memref.store %last, %a[%n] : memref<4xf32>
  return
}"""


def test_a_module_that_a_script_leaves_broken_is_not_gone_on_with() -> None:
    with ir.Context() as context, ir.Location.unknown():
        diagnostics = Diagnostics(context)
        with pytest.raises(StageError) as caught:
            apply_to(PAYLOAD, BROKEN, diagnostics)
        assert caught.value.failure == "verify"
        with pytest.raises(StageError) as caught:
            apply_script(BROKEN.replace("{\n", "{\n" + PAYLOAD, 1), diagnostics)
        assert caught.value.failure == "verify"
        assert "line " in str(caught.value) or "error" in str(caught.value)


@pytest.mark.parametrize("op", ["alloc", "alloca"])
def test_a_buffer_of_dynamic_size_is_refused(op: str) -> None:
    text = DYNAMIC.replace("{op}", op)
    with ir.Context() as context, ir.Location.unknown():
        with pytest.raises(StageError, match="dynamic size is left") as caught:
            check_structure(ir.Module.parse(text), columns=1)
        assert caught.value.failure == "structure"
        with pytest.raises(StageError, match="dynamic size is left") as caught:
            lower(ir.Module.parse(text), Diagnostics(context))
        assert caught.value.failure == "lower"
