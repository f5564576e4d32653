"""Which buffers the caller provides, and which lie on the stack."""

import numpy as np
import pytest
from iree.compiler import ir

from tests.kernels.mlir.proof.test_verify import PAYLOAD, script
from tilewise.kernels.mlir.lowering.apply import Diagnostics, StageError, apply_script, apply_to
from tilewise.kernels.mlir.lowering.jit import RepeatedCall, compile_ir
from tilewise.kernels.mlir.lowering.llvm_text import in_whole_registers
from tilewise.kernels.mlir.lowering.structure import check_structure
from tilewise.kernels.mlir.lowering.to_llvm import lower


def lowered(text: str) -> tuple[str, list[tuple[int, ...]]]:
    """LLVM IR, and the shapes of the buffers that its caller provides."""
    with ir.Context() as context, ir.Location.unknown():
        made, scratch = lower(ir.Module.parse(text), Diagnostics(context))
    return made, [buffer.shape for buffer in scratch]


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


@pytest.mark.parametrize(("first", "is_on_stack"), [
    (FILLS, True), (FILLS_HALF, False), (FILLS_SOME, False), (FILLS_IN_A_LOOP, False),
    (f"{READS}\n    memref.store %r, %to[%zero, %zero] : memref<4x8xf32>\n    {FILLS}", False),
])  # fmt: skip
def test_a_buffer_that_a_vector_fills_first_is_on_the_stack(first: str, is_on_stack: bool) -> None:
    text, shapes = lowered(BUFFERS.replace("FIRST", first))
    assert ("alloca" in text, shapes) == ((True, []) if is_on_stack else (False, [(4, 16)]))


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
    text, shapes = lowered(text if view else text.replace("%r :", "%b :"))
    assert "alloca" not in text and shapes == [(4, 16)]


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


LANES = 14
VECTOR = f"<{LANES} x float>"
READ, WRITTEN = (f"ptr, ptr {name}, i64, i64, i64" for name in ("%from", "%to"))
DOUBLED = f"""
define void @kernel({READ}, {WRITTEN}) {{
  %v = load {VECTOR}, ptr %from, align 4
  %s = fadd {VECTOR} %v, %v
  store {VECTOR} %s, ptr %to, align 4
  ret void
}}
"""


def test_lanes_beyond_a_vector_are_neither_read_nor_written() -> None:
    read = np.random.default_rng(0).random(LANES, dtype=np.float32)
    written = np.full(LANES + 2, np.nan, np.float32)
    RepeatedCall(compile_ir(DOUBLED, "kernel"), [read, written])(1)
    np.testing.assert_array_equal(written[:LANES], 2 * read)
    assert np.isnan(written[LANES:]).all()


def test_vectors_become_registers_with_masks() -> None:
    text = in_whole_registers(DOUBLED)
    assert f"<{LANES} x float>" not in text
    assert "fadd <16 x float>" in text and text.count("i1 false") == 4


@pytest.mark.parametrize("line", [
    f"%r = call float @llvm.vector.reduce.fadd(float 0.0, <{LANES} x float> %s)",
    f"%r = shufflevector <{LANES} x float> %s, <{LANES} x float> poison, "
    "<12 x i32> zeroinitializer",
    f"%r = fpext <{LANES} x float> %s to <{LANES} x double>",
    f"%r = shufflevector <{LANES} x float> %s, <{LANES} x float> %v, <2 x i32> <i32 0, i32 1>",
])  # fmt: skip
def test_what_else_is_done_to_a_vector_leaves_it_alone(line: str) -> None:
    text = DOUBLED.replace("  ret void", f"  {line}\n  ret void")
    assert in_whole_registers(text) == text


@pytest.mark.parametrize("lanes", [4, 8, 16, 17])
def test_vectors_that_fill_half_a_register_or_more_than_one_stay(lanes: int) -> None:
    text = DOUBLED.replace(f"<{LANES} x", f"<{lanes} x")
    assert in_whole_registers(text) == text


def test_the_indices_of_a_splat_stay_where_the_splat_does() -> None:
    splat = f"""
  %x = insertelement {VECTOR} poison, float 2.0, i64 0
  %y = shufflevector {VECTOR} %x, {VECTOR} poison, <{LANES} x i32> zeroinitializer
  %s = call {VECTOR} @llvm.fma.v{LANES}f32({VECTOR} %y, {VECTOR} %v, {VECTOR} %v)
"""
    sums = f"  %s = fadd {VECTOR} %v, %v\n"
    text = DOUBLED.replace(sums, splat)
    assert in_whole_registers(text) == text
