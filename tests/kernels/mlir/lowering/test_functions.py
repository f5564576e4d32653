"""Functions of payloads: other orders of loops, perturbed runs, and packs as loops."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from iree.compiler import ir

from tests.kernels.mlir.payloads import gelu, layer_norm, matmul, pointwise, softmax
from tilewise.kernels.mlir.lowering.apply import Diagnostics, StageError
from tilewise.kernels.mlir.lowering.functions import Function, compile_function, signature_of
from tilewise.kernels.mlir.lowering.linalg_ops import lower_packs, put_parallel_innermost
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
    text = pointwise(
        "%zero = arith.constant 0.0 : f32\n%n = arith.negf %a : f32\n"
        "%r = arith.maximumf %n, %zero : f32"
    )
    assert np.array_equal(
        result(compiled(text)), result(compiled(text, perturb), "uniform", *seeds(1))
    )


@pytest.mark.parametrize(("element", "bits"), [("f64", 53), ("f32", 24), ("f16", 11)])
def test_errors_are_of_the_type_that_is_computed_in(element: str, bits: int) -> None:
    text = pointwise(f"%r = arith.addf %a, %a : {element}", element)
    expected = result(compiled(text)).astype(np.float64)
    moved = result(compiled(text, perturb), "uniform", *seeds(1)).astype(np.float64)
    share = np.abs(moved / expected - 1)[expected != 0] * 2.0 ** (bits - 1)
    assert (share > 0).all() and share.max() < 4.5 and share.max() >= 2


ROWS, COLUMNS, TALL, WIDE = 13, 7, 4, 3
PADDED = (-(-ROWS // TALL) * TALL, -(-COLUMNS // WIDE) * WIDE)
TILES = (PADDED[1] // WIDE, PADDED[0] // TALL, WIDE, TALL)
PLAIN_TYPE = f"memref<{ROWS}x{COLUMNS}xf32>"
PACKED_TYPE = f"memref<{'x'.join(map(str, TILES))}xf32>"
HOW = f"outer_dims_perm = [1, 0] inner_dims_pos = [1, 0] inner_tiles = [{WIDE}, {TALL}]"
PACK = f"""
func.func @pack(%x: {PLAIN_TYPE}, %y: {PACKED_TYPE}) {{
  %low = arith.constant 0xFF800000 : f32
  linalg.pack %x padding_value(%low : f32) {HOW} into %y : {PLAIN_TYPE} -> {PACKED_TYPE}
  return
}}"""
UNPACK = f"""
func.func @unpack(%x: {PACKED_TYPE}, %y: {PLAIN_TYPE}) {{
  linalg.unpack %x {HOW} into %y : {PACKED_TYPE} -> {PLAIN_TYPE}
  return
}}"""


def run(text: str, *arrays: Array) -> list[Array]:
    """What the function of `text` leaves in its arguments."""
    with ir.Context() as context, ir.Location.unknown():
        module = ir.Module.parse(text)
        function = compile_function(module, signature_of(module), Diagnostics(context))
    bound = function.bind(list(arrays))
    bound.call()
    return bound.arguments


def by_hand(plain: Array, padding: float) -> Array:
    padded = np.full(PADDED, padding, plain.dtype)
    padded[:ROWS, :COLUMNS] = plain
    tiles = padded.reshape(PADDED[0] // TALL, TALL, PADDED[1] // WIDE, WIDE)
    return tiles.transpose(2, 0, 3, 1)


@pytest.fixture
def plain() -> Array:
    return np.random.default_rng(0).random((ROWS, COLUMNS), np.float32)


def test_a_pack_fills_the_last_tiles_with_its_padding(plain: Array) -> None:
    before = np.full(TILES, np.nan, np.float32)
    left, packed = run(PACK, plain, before)
    np.testing.assert_array_equal(packed, by_hand(plain, -np.inf))
    np.testing.assert_array_equal(left, plain)


def test_an_unpack_drops_the_padding(plain: Array) -> None:
    before = np.full((ROWS, COLUMNS), np.nan, np.float32)
    assert np.array_equal(run(UNPACK, by_hand(plain, np.nan), before)[1], plain)


def test_a_tile_of_unknown_size_is_refused() -> None:
    text = """
func.func @pack(%x: memref<12xf32>, %y: memref<3x?xf32>) {
  %n = arith.constant 4 : index
  linalg.pack %x inner_dims_pos = [0] inner_tiles = [%n] into %y : memref<12xf32> -> memref<3x?xf32>
  return
}"""
    with ir.Context(), ir.Location.unknown(), pytest.raises(StageError, match="dynamic size"):
        lower_packs(ir.Module.parse(text))
