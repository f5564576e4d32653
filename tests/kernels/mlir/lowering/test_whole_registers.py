"""Vectors that leave lanes of a register free: moved at once, and nothing beside them."""

import numpy as np
import pytest

from tilewise.kernels.mlir.lowering.jit import RepeatedCall, compile_ir
from tilewise.kernels.mlir.lowering.llvm_text import in_whole_registers

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


@pytest.mark.parametrize(
    "line",
    [
        f"%r = call float @llvm.vector.reduce.fadd(float 0.0, <{LANES} x float> %s)",
        f"%r = shufflevector <{LANES} x float> %s, <{LANES} x float> poison, "
        "<12 x i32> zeroinitializer",
        f"%r = fpext <{LANES} x float> %s to <{LANES} x double>",
        f"%r = shufflevector <{LANES} x float> %s, <{LANES} x float> %v, <2 x i32> <i32 0, i32 1>",
    ],
)
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
