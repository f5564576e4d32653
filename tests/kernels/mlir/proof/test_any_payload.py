"""Payloads of several kinds beside other ways to write them: what passes, and what does not."""

import json
from typing import Any

import pytest
from iree.compiler import ir

from tests.cases import some
from tests.kernels.mlir import payloads
from tests.kernels.mlir.payloads import gelu, layer_norm, matmul, pointwise, softmax
from tilewise.kernels.mlir.lowering.apply import Diagnostics
from tilewise.kernels.mlir.proof.child.any_payload import run_payload

KINDS = [matmul, gelu, softmax, layer_norm]


def compared(payload: str, other: str, seed: int = 0) -> dict[str, Any]:
    """What is said of `other` as what a script makes of `payload`."""
    request = {"payload": payload, "seed": seed, "repeat_s": 0.001}
    with ir.Context() as context, ir.Location.unknown():
        made = ir.Module.parse(other)
        out = run_payload(request, made, Diagnostics(context))
    json.dumps(out, allow_nan=False)
    return out


@pytest.mark.parametrize(("payload", "other"), [
    (matmul(), matmul(sums_in="tf32")),
    *some([
        *((kind(), kind(to)) for kind in KINDS for to in ("f16", "tf32", "bf16")),
        (matmul(k=16411), matmul("tf32", k=16411)),
    ], all_of=2),
])  # fmt: skip
def test_a_narrower_type_on_the_way_is_wrong(payload: str, other: str) -> None:
    out = compared(payload, other)
    assert out["failure"] == "wrong"
    assert "the payload's own is" in out["message"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_payload_itself_is_right(kind: Any) -> None:
    out = compared(kind(), kind())
    assert "failure" not in out, out["message"]
    assert out["executed"] and out["max_error"] == 0


@pytest.mark.parametrize(("payload", "other"), [
    (matmul(k=28), payloads.split_matmul(k=28, parts=4)),
    (matmul(m=1, n=1, k=4099), payloads.split_matmul(m=1, n=1, k=4099, parts=1)),
    (matmul(k=4096), payloads.split_matmul(k=4096, parts=64)), (softmax(), softmax(by="mulf")),
    (softmax(), softmax(low="-3.4e38")), (layer_norm(), layer_norm(root="sqrt")),
    (gelu(function_of="tanh"), gelu(function_of="tanh")),
])  # fmt: skip
@pytest.mark.parametrize("seed", some([0, 1], all_of=2))
def test_other_sums_and_other_quotients_are_right(payload: str, other: str, seed: int) -> None:
    out = compared(payload, other, seed)
    assert "failure" not in out, out["message"]
    assert out["max_error"] <= out["tolerance"] / 2, "a right script is not nearly wrong"


LOG = "%r = math.log %a : f32"
LOG_OF_NEGATED = "%n = arith.negf %a : f32\n%r = math.log %n : f32"
FINITE_LOG = (
    "%l = math.log %a : f32\n%k = arith.cmpf ord, %l, %l : f32\n"
    "%one = arith.constant 1.0 : f32\n%r = arith.select %k, %l, %one : f32"
)
TOO_LARGE = "%l = arith.constant 3.0e38 : f32\n%y = arith.mulf %a, %l : f32\n"
INFINITE = f"{TOO_LARGE}%r = arith.addf %y, %y : f32"
LARGEST = (
    f"{TOO_LARGE}%s = arith.addf %y, %y : f32\n%m = arith.constant 3.40282347e38 : f32\n"
    "%r = arith.minimumf %s, %m : f32"
)
OTHER_SIGN = f"{TOO_LARGE}%s = arith.addf %y, %y : f32\n%r = math.absf %s : f32"


@pytest.mark.parametrize("body", [LOG, INFINITE])
def test_a_payload_that_yields_nan_or_infinity_is_equal_to_itself(body: str) -> None:
    out = compared(pointwise(body), pointwise(body))
    assert "failure" not in out and out["max_error"] == 0


@pytest.mark.parametrize(("body", "other"), [
    (LOG, LOG_OF_NEGATED), (LOG, FINITE_LOG), (INFINITE, LARGEST), (INFINITE, OTHER_SIGN),
    (INFINITE, "%r = arith.addf %a, %a : f32"),
])  # fmt: skip
def test_moved_or_changed_nans_and_infinities_are_wrong(body: str, other: str) -> None:
    out = compared(pointwise(body), pointwise(other))
    assert out["failure"] == "wrong"


@pytest.mark.parametrize("element", ["i8", "i16", "i32", "i64"])
def test_integers_that_lose_their_last_bit_are_wrong(element: str) -> None:
    same, other = (
        pointwise(
            f"%c = arith.constant {mask} : {element}\n%r = arith.{op} %a, %c : {element}", element
        )
        for op, mask in (("xori", 0), ("andi", -2))
    )
    assert "failure" not in compared(same, same)
    out = compared(same, other)
    assert (out["failure"], out["max_error"], out["tolerance"]) == ("wrong", 1, 0)


COPIES = """
func.func @f(%a: tensor<5x7xf32>, %b: tensor<5x7xf32> {writable}) -> tensor<5x7xf32> {{
  %0 = linalg.copy ins(%a : tensor<5x7xf32>) outs(%b : tensor<5x7xf32>) -> tensor<5x7xf32>
  return %0 : tensor<5x7xf32>
}}"""
OVERWRITES = """
func.func @f(%a: memref<5x7xf32>, %b: memref<5x7xf32>) -> memref<5x7xf32> {
  linalg.copy ins(%a : memref<5x7xf32>) outs(%b : memref<5x7xf32>)
  return %b : memref<5x7xf32>
}"""


def test_only_arguments_that_are_writable_may_be_overwritten() -> None:
    out = compared(COPIES.format(writable="{bufferization.writable = false}"), OVERWRITES)
    assert out["failure"] == "wrong" and out["message"].startswith("argument 1 is off by")
    assert "failure" not in compared(COPIES.format(writable=""), OVERWRITES)
