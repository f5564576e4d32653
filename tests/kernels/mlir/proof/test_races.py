"""Parallel loops whose iterations depend on each other, and those whose iterations do not."""

import pytest

from tests.kernels.mlir.proof.test_verify import IN_PLACE, PAYLOAD, passed_through, script
from tilewise.kernels.mlir.proof.child.prove import verify_here
from tilewise.kernels.mlir.proof.proof import ProofReply

CONV = """
func.func @f(%x: tensor<1x6x7x3xf32>, %w: tensor<3x2x3x5xf32>, %c: tensor<1x4x6x5xf32>)
    -> tensor<1x4x6x5xf32> {
  %r = linalg.conv_2d_nhwc_hwcf ins(%x, %w : tensor<1x6x7x3xf32>, tensor<3x2x3x5xf32>)
      outs(%c : tensor<1x4x6x5xf32>) -> tensor<1x4x6x5xf32>
  return %r : tensor<1x4x6x5xf32>
}"""
POOL = """
func.func @f(%x: tensor<1x6x7x3xf32>, %w: tensor<3x2xf32>, %c: tensor<1x4x6x3xf32>)
    -> tensor<1x4x6x3xf32> {
  %r = linalg.pooling_nhwc_max ins(%x, %w : tensor<1x6x7x3xf32>, tensor<3x2xf32>)
      outs(%c : tensor<1x4x6x3xf32>) -> tensor<1x4x6x3xf32>
  return %r : tensor<1x4x6x3xf32>
}"""
ANY = "!transform.any_op"


def forall(*tiles: str, op: str = "%op") -> str:
    """A script of loops in loops, each by `tile_using_forall` with sizes and options."""
    lines, name = [], op
    for number, sizes in enumerate(tiles):
        lines.append(
            f"%t{number}, %l{number} = transform.structured.tile_using_forall {name} tile_sizes"
            f" {sizes} : ({ANY}) -> ({ANY}, {ANY})"
        )
        name = f"%t{number}"
    return script(*lines)


def found(text: str, payload: str) -> ProofReply:
    request = {"payload": payload, "script": text, "problem": None, "seed": 0, "repeat_s": 0.001}
    return verify_here(request)


SHIFT = """
func.func @f(%x: memref<16xf32>) {
  %i0 = arith.constant 0 : index
  %i1 = arith.constant 1 : index
  %n = arith.constant 15 : index
  scf.LOOP
    %j = arith.addi %i, %i1 : index
    %v = memref.load %x[%j] : memref<16xf32>
    memref.store %v, %x[%i] : memref<16xf32>
  }
  return
}"""
OUTER = "parallel (%i) = (%i0) to (%n) step (%i1) {"


@pytest.mark.parametrize(("text", "payload"), [
    (forall("[0, 0, 8]"), PAYLOAD), (forall("[4, 0, 8]"), PAYLOAD),
    (forall("[0, 0, 8] (mapping = [#gpu.thread<x>])"), PAYLOAD),
    (forall("[8, 8]", "[0, 0, 5]"), PAYLOAD), (forall("[0, 0, 8]", "[4, 8]"), PAYLOAD),
    (forall("[0, 0, 0, 0, 1]"), CONV), (forall("[0, 0, 0, 0, 0, 0, 2]"), CONV),
    (forall("[0, 0, 0, 0, 1]"), POOL), (script(), SHIFT.replace("LOOP", OUTER)),
])  # fmt: skip
def test_iterations_that_depend_on_each_other_are_a_race(text: str, payload: str) -> None:
    verdict = found(text, payload)
    assert verdict.failure == "race" and not verdict.executed, verdict.message
    assert "iterations of scf." in verdict.message and "depend on each other" in verdict.message


@pytest.mark.full
@pytest.mark.parametrize(("text", "payload"), [
    (forall("[4, 8]"), PAYLOAD),
    (forall("[5, 7]", "[2, 0, 3]".replace(", 3", "")), PAYLOAD),
    (forall("[4, 8] (mapping = [#gpu.block<y>, #gpu.block<x>])"), PAYLOAD),
    (forall("[0, 1, 2]"), CONV),
    (forall("[0, 1, 2]"), POOL),
    (passed_through("convert-linalg-to-parallel-loops"), IN_PLACE),
    (script(), SHIFT.replace("LOOP", "for %i = %i0 to %n step %i1 {")),
    (
        script(
            "%f, %p, %c, %l = transform.structured.tile_reduction_using_forall %op by"
            f" num_threads = [0, 0, 4] : ({ANY}) -> ({ANY}, {ANY}, {ANY}, {ANY})"
        ),
        PAYLOAD,
    ),
])  # fmt: skip
def test_iterations_that_are_apart_are_right(text: str, payload: str) -> None:
    verdict = found(text, payload)
    assert verdict.failure is None, verdict.message


@pytest.mark.full
def test_every_kind_of_access_is_watched() -> None:
    """Vectors, masks and views: each iteration has a line of its own, or the same one."""
    text = """
func.func @f(%a: memref<8x16xf32>, %b: memref<8x16xf32>) {
  %z = arith.constant 0 : index
  %three = arith.constant 3 : index
  %n = arith.constant dense<[0, 1, 2, 3, 4, 5, 6, 7]> : vector<8xi32>
  %k = arith.constant 0.0 : f32
  %m = vector.constant_mask [5] : vector<8xi1>
  %w = arith.constant dense<1.0> : vector<8xf32>
  scf.forall (%i) in (8) {
    %s = memref.subview %a[LINE, 0] [1, 16] [1, 1]
        : memref<8x16xf32> to memref<16xf32, strided<[1], offset: ?>>
    BODY
  }
  return
}"""
    view = "memref<16xf32, strided<[1], offset: ?>>"
    bodies = [
        f"vector.store %w, %s[%z] : {view}, vector<8xf32>",
        f"vector.maskedstore %s[%z], %m, %w : {view}, vector<8xi1>, vector<8xf32>",
        f"vector.transfer_write %w, %s[%z], %m {{in_bounds = [true]}} : vector<8xf32>, {view}",
        f"memref.store %k, %s[%z] : {view}",
        f"linalg.fill ins(%k : f32) outs(%s : {view})",
    ]
    own = "memref.store %k, %a[%i, %z] : memref<8x16xf32>"
    reads = [
        f"%v = vector.load %s[%z] : {view}, vector<8xf32>",
        f"%v = vector.maskedload %s[%z], %m, %w : {view}, vector<8xi1>, vector<8xf32>"
        " into vector<8xf32>",
        f"%v = vector.transfer_read %s[%z], %k {{in_bounds = [true]}} : {view}, vector<8xf32>",
        "%v = vector.transfer_read %s[%z], %k {in_bounds = [true, true], permutation_map ="
        f" affine_map<(i) -> (0, i)>}} : {view}, vector<4x8xf32>\n"
        "%q = vector.extract %v[0] : vector<8xf32> from vector<4x8xf32>",
        f"%v = vector.gather %s[%z] [%n], %m, %w : {view}, vector<8xi32>, vector<8xi1>,"
        " vector<8xf32> into vector<8xf32>",
        f"%e = memref.load %s[%z] : {view}\n%v = vector.broadcast %e : f32 to vector<8xf32>",
    ]
    keep = "vector.store {}, %b[%i, %z] : memref<8x16xf32>, vector<8xf32>"
    reads = [f"{own}\n{one}\n{keep.format('%q' if '%q' in one else '%v')}" for one in reads]
    for body in (*bodies, *reads):
        written = text.replace("BODY", body)
        for line, failure in (("%i", None), ("%three", "race")):
            assert found(script(), written.replace("LINE", line)).failure == failure, body


BRANCHES = """
func.func @f(%x: memref<8xf32>, %c: memref<8xf32>) {
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  %8 = arith.constant 8 : index
  %k = arith.constant 0.0 : f32
  OUTSIDE
  scf.parallel (%i) = (%0) to (%8) step (%1) {
    INSIDE
    %v = memref.load %x[%i] : memref<8xf32>
    memref.store %v, %t[%i] : memref<8xf32>
    %w = memref.load %t[%i] : memref<8xf32>
    memref.store %w, %c[%i] : memref<8xf32>
  }
  return
}"""
CHOSEN = """%p = memref.load %x[%0] : memref<8xf32>
  %y = arith.cmpf ogt, %p, %k : f32
  %t = scf.if %y -> memref<8xf32> {
    %a = memref.alloc() : memref<8xf32>
    scf.yield %a : memref<8xf32>
  } else {
    %b = memref.alloc() : memref<8xf32>
    scf.yield %b : memref<8xf32>
  }"""
ARGUMENT = CHOSEN.replace("    %b = memref.alloc() : memref<8xf32>\n", "").replace("%b", "%x")


def test_a_buffer_of_either_branch_is_followed_where_each_iteration_has_its_own() -> None:
    inside = BRANCHES.replace("OUTSIDE", "").replace("INSIDE", CHOSEN)
    assert found(script(), inside).failure is None
    for text in (
        BRANCHES.replace("INSIDE", "").replace("OUTSIDE", CHOSEN),
        BRANCHES.replace("OUTSIDE", "").replace("INSIDE", ARGUMENT),
    ):
        refused = found(script(), text)
        assert refused.failure == "lower", refused.message
        assert "cannot follow a buffer of a parallel loop" in refused.message
