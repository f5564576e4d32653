"""A rounding of f32 sums is a part of the problem where the problem rounds the same way."""

import pytest

from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.problem import parse_problem

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

MODULE = """
func.func @main(%a: tensor<5x7x{dtype}>, %b: tensor<7x9x{dtype}>, %c: tensor<5x9xf32>,
    %bias: tensor<9xf32>) -> tensor<5x9x{last}> {{
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x9xf32>
  %n = tensor.empty() : tensor<5x9x{out}>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<5x9xf32>) -> tensor<5x9xf32>
  %p = linalg.matmul ins(%a, %b : tensor<5x7x{dtype}>, tensor<7x9x{dtype}>)
    outs(%{start} : tensor<5x9xf32>) -> tensor<5x9xf32>
  {body}
  return %r : tensor<5x9x{last}>
}}
"""
ROUNDED = """%r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>,
    affine_map<(i, j) -> (j)>,
    affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
    ins(%p, %bias : tensor<5x9xf32>, tensor<9xf32>) outs(%n : tensor<5x9x{out}>) {{
  ^bb0(%x: f32, %y: f32, %o: {out}):
    %s = arith.addf %x, %y : f32
    %m = arith.maximumf %s, %z : f32
    %t = arith.truncf %m : f32 to {out}
    linalg.yield %t : {out}
  }} -> tensor<5x9x{out}>"""
ON_TENSORS = "%r = arith.truncf %p : tensor<5x9xf32> to tensor<5x9x{out}>"
AND_AGAIN = ON_TENSORS.replace("%r", "%q") + ("\n  %r = arith.addf %q, %q : tensor<5x9x{out}>")
MATMUL = "matmul:m=5,n=9,k=7,dtype="


@pytest.mark.parametrize(
    ("dtype", "out", "start", "body", "problem"),
    [
        ("bf16", "bf16", "f", ROUNDED, "bf16,out=bf16,bias,epilogue=relu"),
        ("f16", "f16", "f", ON_TENSORS, "f16,out=f16"),
        ("f16", "bf16", "f", ON_TENSORS, "f16,out=bf16"),
        ("bf16", "bf16", "f", AND_AGAIN, "bf16,out=bf16"),
        ("f32", "bf16", "f", ON_TENSORS, "f32"),
        ("bf16", "f8E5M2", "f", ON_TENSORS, "bf16"),
        ("bf16", "bf16", "c", ON_TENSORS, "bf16,init=accumulate"),
    ],
)
def test_a_rounding_of_sums_is_read_as(
    dtype: str, out: str, start: str, body: str, problem: str
) -> None:
    names = {"dtype": dtype, "out": out, "last": out, "start": start}
    text = MODULE.format(body=body.format(**names), **names)
    (found,) = read_module(text.encode()).occurrences
    assert found.problem == parse_problem(MATMUL + problem).canonical
