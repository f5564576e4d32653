"""Packs and unpacks as loops, against NumPy, with tiles that divide nothing."""

import numpy as np
import pytest
from iree.compiler import ir

from tilewise.kernels.mlir.lowering.apply import Diagnostics, StageError
from tilewise.kernels.mlir.lowering.functions import compile_function, signature_of
from tilewise.kernels.mlir.lowering.linalg_ops import lower_packs
from tilewise.kernels.oracle.operands import Array

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
