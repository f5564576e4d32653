"""Any script on any payload: what holds, what does not, and what is said of either."""

import textwrap

import pytest

from kernels.mlir import emit_script, verify
from kernels.mlir.script import with_payload
from kernels.problem import parse_problem
from tests.kernels.mlir.build import PACKED, schedule

PAYLOAD = """
func.func @product(%a: tensor<16x24xf32>, %b: tensor<24x40xf32>, %c: tensor<16x40xf32>)
    -> tensor<16x40xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<16x24xf32>, tensor<24x40xf32>)
      outs(%c : tensor<16x40xf32>) -> tensor<16x40xf32>
  return %0 : tensor<16x40xf32>
}
"""
IN_PLACE = """
func.func @square(%x: memref<8x8xi32>, %y: memref<8x8xi32>) {
  linalg.matmul ins(%x, %x : memref<8x8xi32>, memref<8x8xi32>) outs(%y : memref<8x8xi32>)
  return
}
"""
MATMUL = parse_problem("matmul:m=16,n=40,k=24,dtype=f32")


def script(*lines: str) -> str:
    """A module whose main sequence has `%op`, the only linalg op, and these lines."""
    body = [
        "%op = transform.structured.match interface{LinalgOp} in %root"
        " : (!transform.any_op) -> !transform.any_op",
        *lines,
        "transform.yield",
    ]
    main = "transform.named_sequence @__transform_main(%root: !transform.any_op) {"
    text = "\n".join([main, *(f"  {line}" for line in body), "}"])
    head = "module attributes {transform.with_named_sequence} {\n"
    return f"{head}{textwrap.indent(text, '  ')}\n}}\n"


def tiled(sizes: str, loops: int) -> str:
    handles = ", ".join(["!transform.any_op"] * (1 + loops))
    return script(
        f"%t, %l:{loops} = transform.structured.tile_using_for %op tile_sizes {sizes}"
        f" : (!transform.any_op) -> ({handles})"
    )


def test_somebody_elses_script_on_a_payload() -> None:
    verdict = verify(tiled("[2, 0, 4]", 2), payload=PAYLOAD)
    assert verdict.proof.ok, verdict.proof.message
    assert verdict.outline == (
        "func @product",
        "  for 8 trips, step 2",
        "    for 6 trips, step 4",
        "      linalg.matmul on tensor<2x40xf32>",
    )
    assert verdict.unscripted_us is not None and verdict.proof.time_us is not None
    assert verdict.proof.gflops is None, "of an unknown payload no operations are counted"


def test_a_payload_that_writes_to_its_arguments() -> None:
    verdict = verify(tiled("[3]", 1), payload=IN_PLACE)
    assert verdict.proof.ok, verdict.proof.message
    assert "  for 3 trips, step 3" in verdict.outline


def test_a_script_that_holds_its_payload() -> None:
    text = tiled("[8, 8]", 2).replace("{\n", "{\n" + PAYLOAD, 1)
    assert verify(text).proof.ok


def test_a_script_on_the_payload_of_a_problem_is_compared_with_the_reference() -> None:
    verdict = verify(emit_script(MATMUL, schedule(*PACKED)), problem=MATMUL)
    assert verdict.proof.ok, verdict.proof.message
    assert verdict.proof.gflops is not None and verdict.proof.vectorised
    assert any("vector.fma vector<16xf32>" in line for line in verdict.outline)
    assert any("memref.alloc memref<" in line for line in verdict.outline)
    assert verdict.unscripted_us is None
    tiled_alone = verify(tiled("[2, 0, 4]", 2), problem=parse_problem(f"{MATMUL},init=accumulate"))
    assert tiled_alone.proof.ok and not tiled_alone.proof.vectorised


WRONG = [
    (tiled("[2, 2, 2, 2]", 2), "apply", "line 4: %t, %l:2 = transform.structured.tile_using_for"),
    (script("transform.structured.nonsense %op"), "apply", "line 4: "),
    ("module {}", "apply", "no transform.named_sequence @__transform_main"),
    ("this is not MLIR", "apply", ""),
]


@pytest.mark.parametrize(("text", "failure", "says"), WRONG)
def test_diagnostics_come_back_with_their_line(text: str, failure: str, says: str) -> None:
    verdict = verify(text, payload=PAYLOAD)
    assert not verdict.proof.ok and not verdict.proof.applied
    assert verdict.proof.failure == failure
    assert says in verdict.proof.message


def test_a_script_that_changes_what_is_computed_is_wrong() -> None:
    swapped = with_payload(MATMUL, emit_script(MATMUL, schedule(*PACKED))).replace(
        "outs(%init", "outs(%C"
    )
    verdict = verify(swapped)
    assert verdict.proof.ok, "both sides add to C: the payload is what the script is held to"
    erased = script("transform.structured.replace %op : (!transform.any_op)"
                    " -> !transform.any_op {", "  builtin.module {", "    func.func private @f()",
                    "  }", "}")  # fmt: skip
    assert not verify(erased, payload=PAYLOAD).proof.ok


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (PAYLOAD.replace("tensor<16x24xf32>", "tensor<?x24xf32>"), "tensor<?x24xf32>"),
        (PAYLOAD + IN_PLACE, "2 functions; give one"),
        ("func.func @f(%x: f32) -> f32 { return %x : f32 }", "has f32 in its signature"),
        ("nonsense", "payload: "),
    ],
)
def test_a_payload_that_cannot_be_run_is_refused_with_the_reason(payload: str, says: str) -> None:
    verdict = verify(tiled("[2]", 1), payload=payload)
    assert not verdict.proof.ok
    assert says in verdict.proof.message
