"""Packs around what nothing is known of: it stays, is told, and the network computes the same."""

import pytest

from tests.cases import some
from tests.kernels.mlir.network.here import pack, prove
from tilewise.kernels.errors import ModuleError
from tilewise.kernels.mlir.network.pack import pack_module
from tilewise.kernels.mlir.network.packing import Blocks

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

LOOP = """
  %lo = arith.constant 0 : index
  %one = arith.constant 1 : index
  %three = arith.constant 3 : index
  %m = scf.for %i = %lo to %three step %one iter_args(%c = %p) -> tensor<8x24xf32> {
    %n = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>],
        iterator_types = ["parallel", "parallel"]} outs(%c : tensor<8x24xf32>) {
    ^bb0(%o: f32):
      %s = arith.addf %o, %o : f32
      linalg.yield %s : f32
    } -> tensor<8x24xf32>
    scf.yield %n : tensor<8x24xf32>
  }"""
MIRROR = """
  %m = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]} outs(%e : tensor<8x24xf32>) {
  ^bb0(%o: f32):
    %a = linalg.index 0 : index
    %b = linalg.index 1 : index
    %last = arith.constant 23 : index
    %at = arith.subi %last, %b : index
    %s = tensor.extract %p[%a, %at] : tensor<8x24xf32>
    linalg.yield %s : f32
  } -> tensor<8x24xf32>"""
MEAN = """
  %r = linalg.reduce ins(%p : tensor<8x24xf32>) outs(%line : tensor<8xf32>) dimensions = [1]
    (%in: f32, %out: f32) {
      %s = arith.addf %in, %out : f32
      linalg.yield %s : f32
    }
  %m = linalg.broadcast ins(%r : tensor<8xf32>) outs(%e : tensor<8x24xf32>) dimensions = [1]"""
HALVES = """
  %s1 = tensor.extract_slice %p[0, 0] [8, 9] [1, 1] : tensor<8x24xf32> to tensor<8x9xf32>
  %s2 = tensor.extract_slice %p[0, 9] [8, 15] [1, 1] : tensor<8x24xf32> to tensor<8x15xf32>
  %m = tensor.concat dim(1) %s2, %s1 : (tensor<8x15xf32>, tensor<8x9xf32>) -> tensor<8x24xf32>"""
OPEN = """
  %lo = arith.constant 0 : index
  %d = tensor.cast %p : tensor<8x24xf32> to tensor<?x24xf32>
  %size = tensor.dim %d, %lo : tensor<?x24xf32>
  %ed = tensor.empty(%size) : tensor<?x24xf32>
  %fd = linalg.fill ins(%zero : f32) outs(%ed : tensor<?x24xf32>) -> tensor<?x24xf32>
  %n = linalg.matmul ins(%d, %square : tensor<?x24xf32>, tensor<24x24xf32>)
    outs(%fd : tensor<?x24xf32>) -> tensor<?x24xf32>
  %m = tensor.cast %n : tensor<?x24xf32> to tensor<8x24xf32>"""


def between(what: str) -> bytes:
    """Something between two products that may be packed: from `%p` to `%m`."""
    return f"""func.func @main(%x: tensor<8x16xf32>, %w0: tensor<16x24xf32>, %w1: tensor<24x20xf32>,
    %square: tensor<24x24xf32>, %line: tensor<8xf32>) -> tensor<8x20xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x24xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x24xf32>) -> tensor<8x24xf32>
  %p = linalg.matmul ins(%x, %w0 : tensor<8x16xf32>, tensor<16x24xf32>)
    outs(%f : tensor<8x24xf32>) -> tensor<8x24xf32>{what}
  %e1 = tensor.empty() : tensor<8x20xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<8x20xf32>) -> tensor<8x20xf32>
  %q = linalg.matmul ins(%m, %w1 : tensor<8x24xf32>, tensor<24x20xf32>)
    outs(%f1 : tensor<8x20xf32>) -> tensor<8x20xf32>
  return %q : tensor<8x20xf32>
}}
""".encode()


@pytest.mark.parametrize(
    ("what", "told", "counts"),
    some(
        [
            (LOOP, ["scf.for", "scf.yield"], (2, 2)),
            (MIRROR, [], (2, 2)),
            (HALVES, [], (2, 2)),
            (MEAN, [], (1, 2)),
        ],
        of=3,
    ),
)
def test_a_network_around_it_computes_the_same(
    what: str, told: list[str], counts: tuple[int, int]
) -> None:
    plan = pack(between(what), Blocks(16))
    assert len(plan.packed) == 2 and [one.op for one in plan.left] == told
    found = plan.counts
    assert (found["packs"], found["unpacks"]) == counts
    assert found["weights"] == 2, "what a body reads from outside is no weight"
    proof = prove(plan)
    assert proof.failure is None and proof.executed, proof.message


def test_a_product_of_open_shape_is_told_and_those_around_it_are_packed() -> None:
    plan = pack(between(OPEN), Blocks(16))
    assert [one.reason for one in plan.left] == ["has dynamic shapes; give --dim NAME=SIZE"]
    assert len(plan.packed) == 2
    assert prove(plan).executed


def test_a_function_of_two_results_is_refused_before_it_is_packed() -> None:
    text = between("\n  %m = tensor.cast %p : tensor<8x24xf32> to tensor<8x24xf32>").replace(
        b"-> tensor<8x20xf32> {", b"-> (tensor<8x20xf32>, tensor<8x24xf32>) {"
    )
    text = text.replace(b"return %q : tensor<8x20xf32>",
                        b"return %q, %p : tensor<8x20xf32>, tensor<8x24xf32>")  # fmt: skip
    with pytest.raises(ModuleError, match="a function that returns one tensor, not 2"):
        pack_module(text, Blocks(16))
