"""What a payload is compared with: the same bits in another order of loops, and perturbed runs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from iree.compiler import ir

from tests.kernels.mlir.payloads import gelu, layer_norm, matmul, softmax
from tilewise.kernels.mlir.lowering.apply import Diagnostics
from tilewise.kernels.mlir.lowering.functions import Function, compile_function, signature_of
from tilewise.kernels.mlir.lowering.linalg_ops import put_parallel_innermost
from tilewise.kernels.mlir.proof.child.inputs import make_inputs
from tilewise.kernels.mlir.proof.child.instrument import perturb, seeds
from tilewise.kernels.oracle.operands import Array

ALL = [matmul, gelu, softmax, layer_norm]


def compiled(text: str, *changes: Callable[[Any], None]) -> Function:
    with ir.Context() as context, ir.Location.unknown():
        module = ir.Module.parse(text)
        return compile_function(module, signature_of(module), Diagnostics(context), *changes)


def result(function: Function, kind: str = "uniform", *more: Array) -> Array:
    """What the function computes; the last argument, where it returns nothing."""
    inputs = make_inputs(kind, function.signature.arguments, 0)
    bound = function.bind(inputs, *more)
    bound.call()
    return bound.results()[1 if function.signature.results == () else 0].array


@pytest.mark.full
@pytest.mark.parametrize("payload", ALL)
@pytest.mark.parametrize("kind", ["uniform", "wide"])
def test_another_order_of_loops_gives_the_same_bits(payload: Any, kind: str) -> None:
    plain, reordered = compiled(payload()), compiled(payload(), put_parallel_innermost)
    expected = result(plain, kind)
    assert np.array_equal(expected, result(reordered, kind), equal_nan=True)
    assert np.ptp(expected) > 0


@pytest.mark.full
@pytest.mark.parametrize("payload", ALL)
def test_a_perturbed_run_is_off_by_a_few_roundings(payload: Any) -> None:
    expected = result(compiled(payload()))
    perturbed = compiled(payload(), perturb)
    one, other = (result(perturbed, "uniform", seed) for seed in seeds(2))
    assert not np.array_equal(one, other)
    for moved in (one, other):
        off = np.abs(moved - expected).max() / np.abs(expected).max()
        assert 2.0**-24 < off < 2.0**-24 * 200


def test_errors_go_up_and_down_alike() -> None:
    """Else those of a long sum would not cancel, and would allow too much."""
    text = matmul(m=40, n=50, k=1)
    expected, perturbed = result(compiled(text)), compiled(text, perturb)
    signs = [np.sign(result(perturbed, "uniform", seed) - expected) for seed in seeds(4)]
    for sign in signs:
        assert abs(sign.mean()) < 0.15
        assert (sign != 0).mean() > 0.6


def test_what_does_not_round_is_not_perturbed() -> None:
    text = """
func.func @f(%a: memref<61xf32>, %b: memref<61xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%a : memref<61xf32>) outs(%b : memref<61xf32>) {
  ^bb0(%x: f32, %z: f32):
    %n = arith.negf %x : f32
    %r = arith.maximumf %n, %zero : f32
    linalg.yield %r : f32
  }
  return
}"""
    assert np.array_equal(
        result(compiled(text)), result(compiled(text, perturb), "uniform", *seeds(1))
    )


@pytest.mark.parametrize(("element", "bits"), [("f64", 53), ("f32", 24), ("f16", 11)])
def test_errors_are_of_the_type_that_is_computed_in(element: str, bits: int) -> None:
    text = f"""
func.func @f(%a: memref<61x{element}>, %b: memref<61x{element}>) {{
  linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]}} ins(%a : memref<61x{element}>)
      outs(%b : memref<61x{element}>) {{
  ^bb0(%x: {element}, %z: {element}):
    %r = arith.addf %x, %x : {element}
    linalg.yield %r : {element}
  }}
  return
}}"""
    expected = result(compiled(text)).astype(np.float64)
    moved = result(compiled(text, perturb), "uniform", *seeds(1)).astype(np.float64)
    share = np.abs(moved / expected - 1)[expected != 0] * 2.0 ** (bits - 1)
    assert (share > 0).all() and share.max() < 4.5 and share.max() >= 2
