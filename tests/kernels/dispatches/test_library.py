"""What a library leaves alone, in which order it looks, and what IREE makes of its calls."""

import re

import pytest

from tests.kernels.dispatches.matching import (
    TARGET,
    found_in,
    library_of,
    module_of,
    name_of,
    preprocessed,
    stand_in,
)
from tilewise.kernels.dispatches.library import text_of

PLAIN = "matmul:m=9,n=33,k=19,dtype=f32"
RELU, BIAS = f"{PLAIN},epilogue=relu", f"{PLAIN},bias"
BOTH = f"{PLAIN},bias,epilogue=relu"
MAP = "affine_map<(d0, d1) -> (d0, d1)>"
TWO_USERS = f"""
func.func @two(%a: tensor<9x19xf32>, %b: tensor<19x33xf32>) -> (tensor<9x33xf32>, tensor<9x33xf32>)
{{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<9x33xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<9x33xf32>) -> tensor<9x33xf32>
  %product = linalg.matmul ins(%a, %b : tensor<9x19xf32>, tensor<19x33xf32>)
    outs(%init : tensor<9x33xf32>) -> tensor<9x33xf32>
  %relu = linalg.generic {{indexing_maps = [{MAP}, {MAP}],
    iterator_types = ["parallel", "parallel"]}} ins(%product : tensor<9x33xf32>)
    outs(%empty : tensor<9x33xf32>) {{
  ^bb0(%x: f32, %o: f32):
    %y = arith.maximumf %x, %zero : f32
    linalg.yield %y : f32
  }} -> tensor<9x33xf32>
  return %relu, %product : tensor<9x33xf32>, tensor<9x33xf32>
}}
"""
DYNAMIC = """
func.func @dynamic(%a: tensor<?x19xf32>, %b: tensor<19x33xf32>, %n: index) -> tensor<?x33xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty(%n) : tensor<?x33xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x33xf32>) -> tensor<?x33xf32>
  %product = linalg.matmul ins(%a, %b : tensor<?x19xf32>, tensor<19x33xf32>)
    outs(%init : tensor<?x33xf32>) -> tensor<?x33xf32>
  return %product : tensor<?x33xf32>
}
"""


def test_fused_ops_are_taken_whole_and_others_one_by_one() -> None:
    found = found_in(module_of(PLAIN, RELU, BIAS, BOTH), library_of(PLAIN, RELU, BIAS, BOTH))
    assert found == {f"f{at}": [name_of(text)] for at, text in enumerate((PLAIN, RELU, BIAS, BOTH))}
    assert found_in(module_of(RELU, BOTH), library_of(PLAIN)) == {
        "f0": [name_of(PLAIN)],
        "f1": [name_of(PLAIN)],
    }


def test_a_value_with_a_second_user_is_computed_once() -> None:
    assert found_in(TWO_USERS, library_of(PLAIN, RELU)) == {"two": [name_of(PLAIN)]}
    assert found_in(TWO_USERS, library_of(RELU)) == {}


def test_near_misses_are_left_alone() -> None:
    image = "conv2d:n=1,h=9,w=9,ci=6,co=10,kh=1,kw=1,dtype=f32"
    module = module_of("matmul:m=9,n=33,k=19,dtype=i32", f"{image},stride=2", BIAS) + DYNAMIC
    library = library_of(PLAIN.replace("n=33", "n=32"), image, RELU, f"{PLAIN},transpose_b")
    assert found_in(module, library) == {}
    # h=9 with stride 2 and h=5 without give the same result's shape, and other operands
    strided = "conv2d:n=1,h=5,w=5,ci=6,co=10,kh=3,kw=3,dtype=f32"
    assert found_in(module_of(f"{strided},dilation=2"), library_of(f"{strided},stride=3")) == {}


def test_only_weights_that_are_constants_are_packed_ahead() -> None:
    constant = f"{PLAIN},weights=constant"
    assert found_in(module_of(PLAIN, constant), library_of(constant)) == {"f1": [name_of(constant)]}
    assert found_in(module_of(PLAIN, constant), library_of(constant, PLAIN)) == {
        "f0": [name_of(PLAIN)],
        "f1": [name_of(constant)],
    }
    assert found_in(module_of(constant), library_of(PLAIN)) == {"f0": [name_of(PLAIN)]}


@pytest.mark.parametrize("packed_bytes", [64, 1 << 25])
def test_iree_packs_constant_weights_where_a_module_is_loaded(packed_bytes: int) -> None:
    """Also where packed weights are larger by more than IREE moves by itself."""
    constant = f"{PLAIN},weights=constant"
    library = text_of([stand_in(constant, packed_bytes=packed_bytes)], TARGET)
    text = preprocessed(module_of(constant), library, phase="flow")
    before, _, function = text.partition("util.func public @f0")
    assert f"@{name_of(constant)}_executable::@prepare" in before.partition("util.initializer")[2]
    assert "@run" in function
    assert "@prepare" not in function


def test_parts_are_workgroups() -> None:
    text = preprocessed(module_of(PLAIN), text_of([stand_in(PLAIN, parts=3)], TARGET))
    call = re.search(rf"call @{name_of(PLAIN)}_part\(.*\) : \((.*)\) -> i64", text)
    assert call is not None
    assert call[1].endswith("i64")
    assert "hal.interface.workgroup.id[0]" in text


def test_the_head_says_what_is_there_and_what_is_not() -> None:
    library = text_of([stand_in(PLAIN)], TARGET, ["Left out: another"])
    head = [line for line in library.splitlines() if line.startswith("//")]
    assert "// Left out: another" in head
    assert any(PLAIN in line for line in head)
    assert any(TARGET.canonical in line for line in head)
