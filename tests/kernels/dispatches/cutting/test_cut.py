"""Patterns of a module's own ops: found again, right when they run, refused where none can be."""

import numpy as np
import pytest

from kernels.dispatches.compilation import compiled_with
from kernels.dispatches.cutting.cut import cut_module, patterns_of
from kernels.dispatches.entry import Entry, compiled
from kernels.dispatches.library import text_of
from kernels.errors import CompilerError
from kernels.mlir.iree.runtime import LoadedModule, open_device
from kernels.oracle.operands import empty_aligned
from kernels.problem import parse_problem
from kernels.schedule import Register, Schedule
from kernels.target import Target
from tests.kernels.dispatches.matching import TARGET, found_in, module_of, name_of, stand_in
from tests.kernels.dispatches.patterns.test_spellings import BOTH, LINALG, SPELLED

DENSE = "matmul:m=6,n=32,k=8,dtype=f32,bias,epilogue=relu"
HIGHER = """
#plane = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#last = affine_map<(d0, d1, d2) -> (d2)>
func.func @kernel(%image: tensor<2x3x8xf32>, %weights: tensor<8x32xf32>, %bias: tensor<32xf32>,
                  %out: tensor<2x3x32xf32> {iree.abi.output = 0 : index}) -> tensor<2x3x32xf32> {
  %zero = arith.constant 0.0 : f32
  %flat = tensor.collapse_shape %image [[0, 1], [2]] : tensor<2x3x8xf32> into tensor<6x8xf32>
  %empty = tensor.empty() : tensor<6x32xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<6x32xf32>) -> tensor<6x32xf32>
  %product = linalg.matmul ins(%flat, %weights : tensor<6x8xf32>, tensor<8x32xf32>)
    outs(%init : tensor<6x32xf32>) -> tensor<6x32xf32>
  %wide = tensor.expand_shape %product [[0, 1], [2]] output_shape [2, 3, 32]
    : tensor<6x32xf32> into tensor<2x3x32xf32>
  %target = tensor.empty() : tensor<2x3x32xf32>
  %sum = linalg.generic {indexing_maps = [#last, #plane, #plane],
    iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%bias, %wide : tensor<32xf32>, tensor<2x3x32xf32>) outs(%target : tensor<2x3x32xf32>) {
  ^bb0(%b: f32, %p: f32, %o: f32):
    %s = arith.addf %b, %p : f32
    %r = arith.maximumf %s, %zero : f32
    linalg.yield %r : f32
  } -> tensor<2x3x32xf32>
  return %sum : tensor<2x3x32xf32>
}
"""


def test_every_known_spelling_is_cut_and_found_again() -> None:
    module = module_of(*LINALG)
    cuts = cut_module(module.encode())
    kernels = [stand_in(cut.problem) for cut in cuts]
    own = patterns_of(cuts)
    found = found_in(module, text_of(kernels, TARGET, (), own))
    assert found == {f"f{at}": [name_of(cut.problem)] for at, cut in enumerate(cuts)}
    assert not [cut.reason for cut in cuts if cut.reason]


@pytest.mark.parametrize("dialect", ["torch", "stablehlo"])
def test_modules_of_frameworks_are_replaced_to_the_last_op(dialect: str) -> None:
    module = (SPELLED / f"{dialect}.mlir").read_text()
    cuts = cut_module(module.encode())
    library = text_of([stand_in(cut.problem) for cut in cuts], TARGET, (), patterns_of(cuts))
    found = found_in(module, library)
    assert sorted(name for names in found.values() for name in names) == sorted(
        name_of(cut.problem) for cut in cuts
    )
    assert len(cuts) >= len(BOTH) // 3


def test_an_op_in_a_form_that_nobody_has_foreseen_is_replaced_and_right(host: Target) -> None:
    """Three dims, the bias as the first input, and relu in one op with it."""
    pytest.importorskip("iree.runtime", reason="the extra `peers` installs iree-base-runtime")
    (cut,) = cut_module(HIGHER.encode())
    assert cut.problem == DENSE
    problem = parse_problem(DENSE)
    kernel = compiled(Entry(problem, Schedule((Register(2, host.lanes("f32")),))), host)
    assert compiled_with(HIGHER, text_of([kernel], host)).kernels == ()
    made = compiled_with(HIGHER, text_of([kernel], host, (), patterns_of([cut])))
    assert made.kernels == (kernel.name,)
    rng = np.random.default_rng(3)
    arrays = []
    for shape in ((2, 3, 8), (8, 32), (32,), (2, 3, 32)):
        arrays.append(empty_aligned(shape, np.float32))
        arrays[-1][...] = rng.uniform(-1, 1, shape)
    image, weights, bias, out = arrays
    LoadedModule(made.code, open_device(1)).bind("kernel", [(one, "f32") for one in arrays])(1)
    np.testing.assert_allclose(out, np.maximum(image @ weights + bias, 0), atol=1e-5)


def test_what_lies_in_another_order_has_no_pattern_and_a_reason() -> None:
    turned = """
      func.func @f(%a: tensor<4x6x8xf32>, %b: tensor<8x32xf32>, %c: tensor<6x4x32xf32>)
          -> tensor<6x4x32xf32> {
        %r = linalg.generic {indexing_maps = [affine_map<(h, i, j, k) -> (h, i, k)>,
          affine_map<(h, i, j, k) -> (k, j)>, affine_map<(h, i, j, k) -> (i, h, j)>],
          iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
          ins(%a, %b : tensor<4x6x8xf32>, tensor<8x32xf32>) outs(%c : tensor<6x4x32xf32>) {
        ^bb0(%x: f32, %y: f32, %z: f32):
          %p = arith.mulf %x, %y : f32
          %s = arith.addf %z, %p : f32
          linalg.yield %s : f32
        } -> tensor<6x4x32xf32>
        return %r : tensor<6x4x32xf32>
      }"""
    (cut,) = cut_module(turned.encode())
    assert cut.pattern is None
    assert "another order" in cut.reason


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(CompilerError, match="does not compile"):
        cut_module(b"func.func @f() { nonsense }")
