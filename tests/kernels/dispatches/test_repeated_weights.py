"""A matrix that is repeated for each batch: one product of all rows, found by IREE, and right."""

import numpy as np
import pytest

from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.extraction.extract import cut_module, patterns_of
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.oracle.operands import empty_aligned
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.target import Target

pytest.importorskip("iree.runtime", reason="IREE's runtime is absent")

PROBLEM = "matmul:m=20,n=16,k=8,dtype=f32,bias,weights=constant"
BATCHES = "matmul:batch=4,m=5,n=16,k=8,dtype=f32"


def values(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def dense(array: np.ndarray) -> str:
    return f"dense<{array.tolist()}> : tensor<{'x'.join(map(str, array.shape))}xf32>"


WEIGHTS, BIAS = values((16, 8), 1), values((16,), 2)
LINEAR = f"""
func.func @main(%x: !torch.vtensor<[4,5,8],f32>) -> !torch.vtensor<[4,5,16],f32>
    attributes {{torch.assume_strict_symbolic_shapes}} {{
  %w = torch.vtensor.literal({dense(WEIGHTS)}) : !torch.vtensor<[16,8],f32>
  %b = torch.vtensor.literal({dense(BIAS)}) : !torch.vtensor<[16],f32>
  %r = torch.aten.linear %x, %w, %b : !torch.vtensor<[4,5,8],f32>, !torch.vtensor<[16,8],f32>,
      !torch.vtensor<[16],f32> -> !torch.vtensor<[4,5,16],f32>
  return %r : !torch.vtensor<[4,5,16],f32>
}}
"""


def test_a_linear_layer_of_three_dims_is_one_product() -> None:
    (found,) = read_module(LINEAR.encode()).occurrences
    assert found.problem == PROBLEM
    assert found.fused == ("broadcast_b", "bias")
    assert (found.a.shape, found.b.shape, found.c.shape) == ((20, 8), (8, 16), (20, 16))
    assert found.is_plain


def test_iree_calls_its_kernel(host: Target) -> None:
    cuts = cut_module(LINEAR.encode())
    assert [(cut.problem, cut.reason) for cut in cuts] == [(PROBLEM, "")]
    schedule = Schedule((Pack("B"), Register(5, 16)))
    kernel = compiled(LibraryEntry(parse_problem(PROBLEM), schedule), host)
    done = compiled_with(LINEAR.encode(), text_of([kernel], host, {}, patterns_of(cuts)))
    assert len(done.kernels) == 1
    x = empty_aligned((4, 5, 8), np.float32)
    x[...] = values((4, 5, 8), 3)
    module = LoadedModule(done.code, open_device(1))
    (result,) = module.results("main", [(x, "FLOAT_32")])
    np.testing.assert_array_equal(result, x @ WEIGHTS.T + BIAS)


@pytest.mark.parametrize("repeated", ["a", "b"])
def test_what_others_read_too_or_moves_more_stays_batches(repeated: str) -> None:
    """A repeated A makes columns of the batches, and the result would have to be transposed."""
    small, shape = ("5x8", "4x5x8") if repeated == "a" else ("8x16", "4x8x16")
    other, wide = ("%y", "4x8x16") if repeated == "a" else ("%y", "4x5x8")
    first, second = ("%s", other) if repeated == "a" else (other, "%s")
    kinds = (shape, wide) if repeated == "a" else (wide, shape)
    module = f"""
func.func @main(%v: tensor<{small}xf32>, %y: tensor<{wide}xf32>)
    -> (tensor<4x5x16xf32>, tensor<{shape}xf32>) {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{shape}xf32>
  %s = linalg.broadcast ins(%v : tensor<{small}xf32>) outs(%e : tensor<{shape}xf32>)
      dimensions = [0]
  %o = tensor.empty() : tensor<4x5x16xf32>
  %z = linalg.fill ins(%zero : f32) outs(%o : tensor<4x5x16xf32>) -> tensor<4x5x16xf32>
  %r = linalg.batch_matmul
      ins({first}, {second} : tensor<{kinds[0]}xf32>, tensor<{kinds[1]}xf32>)
      outs(%z : tensor<4x5x16xf32>) -> tensor<4x5x16xf32>
  return %r, %s : tensor<4x5x16xf32>, tensor<{shape}xf32>
}}
"""
    assert read_module(module.encode()).occurrences[0].problem == BATCHES
    alone = module.replace(f", tensor<{shape}xf32>) {{", ") {").replace(
        f"return %r, %s : tensor<4x5x16xf32>, tensor<{shape}xf32>", "return %r : tensor<4x5x16xf32>"
    )
    problem = read_module(alone.encode()).occurrences[0].problem
    assert problem == (BATCHES if repeated == "a" else "matmul:m=20,n=16,k=8,dtype=f32")
