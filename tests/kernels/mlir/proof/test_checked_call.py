"""A call that is checked: operands stay, scratch starts poisoned, no infinity in a proof."""

import json
from typing import Any

import numpy as np
import pytest
from iree.compiler import ir

from tilewise.kernels.mlir.lowering.apply import Diagnostics, StageError
from tilewise.kernels.mlir.lowering.functions import poisoned
from tilewise.kernels.mlir.lowering.jit import compile_ir
from tilewise.kernels.mlir.lowering.to_llvm import ScratchBuffer, lower
from tilewise.kernels.mlir.proof.child.stages import check_call
from tilewise.kernels.oracle.operands import POISON_BYTE
from tilewise.kernels.problem import parse_problem

PROBLEM = parse_problem("matmul:m=13,n=17,k=11,dtype=f32")
KERNEL = """
func.func @kernel(%a: memref<13x11xf32>, %b: memref<11x17xf32>, {bias}%c: memref<13x17xf32>)
    -> memref<13x17xf32> {{
  %at = arith.constant 5 : index
  %zero = arith.constant 0.0 : f32
  {before}
  linalg.matmul ins(%a, %b : memref<13x11xf32>, memref<11x17xf32>) outs(%c : memref<13x17xf32>)
  {after}
  return %c : memref<13x17xf32>
}}"""
FILL = "linalg.fill ins(%zero : f32) outs(%c : memref<13x17xf32>)"
# Memory of this size comes from the system, which gives zeros.
LARGE = "memref<4096x8192xf32>"
FROM_SCRATCH = f"""
  %scratch = memref.alloc() : {LARGE}
  %part = memref.subview %scratch[7, 9] [13, 17] [1, 1]
      : {LARGE} to memref<13x17xf32, strided<[8192, 1], offset: 57353>>
  memref.copy %part, %c
      : memref<13x17xf32, strided<[8192, 1], offset: 57353>> to memref<13x17xf32>"""


def checked(before: str = FILL, after: str = "", bias: str = "") -> dict[str, Any]:
    """What is established of a kernel with these lines around its matmul."""
    with ir.Context() as context, ir.Location.unknown():
        module = ir.Module.parse(KERNEL.format(before=before, after=after, bias=bias))
        text, scratch = lower(module, Diagnostics(context))
    problem = parse_problem(f"{PROBLEM},bias") if bias else PROBLEM
    found = check_call(problem, compile_ir(text, "kernel"), scratch, 0)[1]
    json.dumps(found, allow_nan=False)
    return found


def test_a_right_kernel_is_right() -> None:
    found = checked()
    assert "failure" not in found and found["executed"]
    assert found["max_error"] <= found["tolerance"]


@pytest.mark.parametrize("name", ["a", "b"])
def test_an_operand_that_is_overwritten_is_seen(name: str) -> None:
    kind = {"a": "memref<13x11xf32>", "b": "memref<11x17xf32>"}[name]
    found = checked(after=f"memref.store %zero, %{name}[%at, %at] : {kind}")
    assert found["failure"] == "wrong"
    assert found["message"] == f"operand {name.upper()} was overwritten"


def test_a_bias_that_is_overwritten_is_seen() -> None:
    broadcast = "linalg.broadcast ins(%bias : memref<17xf32>) outs(%c : memref<13x17xf32>)"
    store = "memref.store %zero, %bias[%at] : memref<17xf32>"
    found = checked(f"{broadcast} dimensions = [0]", store, "%bias: memref<17xf32>, ")
    assert found["max_error"] <= found["tolerance"]
    assert (found["failure"], found["message"]) == ("wrong", "operand bias was overwritten")


def test_a_sum_that_starts_from_scratch_memory_is_seen() -> None:
    assert checked(before=FROM_SCRATCH)["failure"] == "wrong"


def test_a_result_that_is_not_written_is_seen() -> None:
    assert checked(before="")["failure"] == "wrong"


@pytest.mark.parametrize("bits", ["0x7F800000", "0xFFC00000"])
def test_a_result_that_is_no_number_is_wrong_by_no_finite_error(bits: str) -> None:
    found = checked(
        after=f"%bad = arith.constant {bits} : f32\n"
        "memref.store %bad, %c[%at, %at] : memref<13x17xf32>"
    )
    assert (found["failure"], found["max_error"]) == ("wrong", None)
    assert "no finite number" in found["message"]


@pytest.mark.parametrize("element", ["f32", "bf16", "i1", "i16", "i64", "index"])
def test_every_byte_of_scratch_is_poisoned(element: str) -> None:
    (buffer,) = poisoned((ScratchBuffer((3, 5), element),))
    assert buffer.shape == (3, 5)
    assert (buffer.view(np.uint8) == POISON_BYTE).all()


def test_scratch_of_a_type_that_is_not_known_is_refused() -> None:
    with pytest.raises(StageError, match="a buffer of f8E4M3FN cannot be provided"):
        poisoned((ScratchBuffer((3,), "f8E4M3FN"),))
