"""Which buffers the caller provides, and which lie on the stack."""

import pytest
from iree.compiler import ir

from tilewise.kernels.mlir.lowering.apply import Diagnostics
from tilewise.kernels.mlir.lowering.to_llvm import lower

BUFFERS = """
func.func @kernel(%from: memref<4x16xf32>, %to: memref<4x8xf32>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
  %nothing = arith.constant 0.0 : f32
  %whole = vector.transfer_read %from[%zero, %zero], %nothing {in_bounds = [true, true]}
      : memref<4x16xf32>, vector<4x16xf32>
  %part = vector.transfer_read %from[%zero, %zero], %nothing {in_bounds = [true, true]}
      : memref<4x16xf32>, vector<4x8xf32>
  scf.for %i = %zero to %four step %one {
    %b = memref.alloc() : memref<4x16xf32>
    FIRST
    %seen = vector.transfer_read %b[%zero, %zero], %nothing {in_bounds = [true, true]}
        : memref<4x16xf32>, vector<4x8xf32>
    vector.transfer_write %seen, %to[%zero, %zero] {in_bounds = [true, true]}
        : vector<4x8xf32>, memref<4x8xf32>
  }
  return
}
"""
FILLS = """vector.transfer_write %whole, %b[%zero, %zero] {in_bounds = [true, true]}
        : vector<4x16xf32>, memref<4x16xf32>"""
FILLS_HALF = """vector.transfer_write %part, %b[%zero, %zero] {in_bounds = [true, true]}
        : vector<4x8xf32>, memref<4x16xf32>"""
FILLS_SOME = """%mask = vector.constant_mask [4, 3] : vector<4x16xi1>
    vector.transfer_write %whole, %b[%zero, %zero], %mask {in_bounds = [true, true]}
        : vector<4x16xf32>, memref<4x16xf32>"""
FILLS_IN_A_LOOP = f"""scf.for %j = %zero to %i step %one {{
      {FILLS}
    }}"""
READS = "%r = memref.load %b[%zero, %zero] : memref<4x16xf32>"


@pytest.mark.parametrize(
    ("first", "is_on_stack"),
    [
        (FILLS, True),
        (FILLS_HALF, False),
        (FILLS_SOME, False),
        (FILLS_IN_A_LOOP, False),
        (f"{READS}\n    memref.store %r, %to[%zero, %zero] : memref<4x8xf32>\n    {FILLS}", False),
    ],
)
def test_a_buffer_that_a_vector_fills_first_is_on_the_stack(first: str, is_on_stack: bool) -> None:
    with ir.Context() as context, ir.Location.unknown():
        module = ir.Module.parse(BUFFERS.replace("FIRST", first))
        text, scratch = lower(module, Diagnostics(context))
    assert ("alloca" in text) == is_on_stack
    assert [buffer.shape for buffer in scratch] == ([] if is_on_stack else [(4, 16)])


RETURNED = """
func.func @kernel(%from: memref<4x16xf32>) -> memref<KIND> {
  %zero = arith.constant 0 : index
  %nothing = arith.constant 0.0 : f32
  %whole = vector.transfer_read %from[%zero, %zero], %nothing {in_bounds = [true, true]}
      : memref<4x16xf32>, vector<4x16xf32>
  %b = memref.alloc() : memref<4x16xf32>
  vector.transfer_write %whole, %b[%zero, %zero] {in_bounds = [true, true]}
      : vector<4x16xf32>, memref<4x16xf32>
  VIEW
  return %r : memref<KIND>
}
"""
FLAT = "%r = memref.collapse_shape %b [[0, 1]] : memref<4x16xf32> into memref<64xf32>"


@pytest.mark.parametrize(("kind", "view"), [("4x16xf32", ""), ("64xf32", FLAT)])
def test_a_buffer_that_is_returned_is_not_on_the_stack(kind: str, view: str) -> None:
    text = RETURNED.replace("KIND", kind).replace("VIEW", view)
    with ir.Context() as context, ir.Location.unknown():
        module = ir.Module.parse(text if view else text.replace("%r :", "%b :"))
        lowered, scratch = lower(module, Diagnostics(context))
    assert "alloca" not in lowered
    assert [buffer.shape for buffer in scratch] == [(4, 16)]
