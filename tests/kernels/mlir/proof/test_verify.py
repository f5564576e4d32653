"""Any script on any payload: what holds, what does not, and what is said of either."""

import json
import textwrap
from collections.abc import Callable

import pytest
from iree.compiler import ir

from tests.cases import some
from tests.kernels.mlir.build import PACKED, schedule
from tests.kernels.mlir.payloads import softmax
from tests.kernels.mlir.proof.test_any_payload import compared
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.proof.prove import verify
from tilewise.kernels.mlir.transform.module import with_payload
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.limited_child import run_limited

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
    assert verdict.found.outline == (
        "func @product",
        "  for 8 trips, step 2",
        "    for 6 trips, step 4",
        "      linalg.matmul on tensor<2x40xf32>",
    )
    assert verdict.found.unscripted_us is not None and verdict.proof.time_us is not None
    assert verdict.proof.gflops is None, "of an unknown payload no operations are counted"


def test_a_payload_that_writes_to_its_arguments() -> None:
    verdict = verify(tiled("[3]", 1), payload=IN_PLACE)
    assert verdict.proof.ok, verdict.proof.message
    assert "  for 3 trips, step 3" in verdict.found.outline


@pytest.mark.full
def test_a_script_on_the_payload_of_a_problem_is_compared_with_the_reference() -> None:
    verdict = verify(emit_script(MATMUL, schedule(*PACKED)), problem=MATMUL)
    assert verdict.proof.ok, verdict.proof.message
    assert verdict.proof.gflops is not None and verdict.proof.vectorised
    assert any("vector.fma vector<16xf32>" in line for line in verdict.found.outline)
    assert any("memref.alloc memref<" in line for line in verdict.found.outline)
    assert verdict.found.unscripted_us is None
    tiled_alone = verify(tiled("[2, 0, 4]", 2), problem=parse_problem(f"{MATMUL},init=accumulate"))
    assert tiled_alone.proof.ok and not tiled_alone.proof.vectorised


NO_NAN = script(
    '%max = transform.structured.match ops{["arith.maximumf"]} in %root'
    " : (!transform.any_op) -> !transform.any_op",
    "%flags = transform.param.constant #arith.fastmath<nnan> -> !transform.any_param",
    'transform.annotate %max "fastmath" = %flags : !transform.any_op, !transform.any_param',
)


@pytest.mark.full
def test_a_script_that_is_wrong_on_special_values_is_found_on_a_problem() -> None:
    problem = parse_problem(f"{MATMUL},epilogue=relu")
    verdict = verify(NO_NAN, problem=problem)
    assert verdict.proof.failure == "wrong"
    assert "the payload's own is nan" in verdict.proof.message
    assert verdict.found.inputs in ("infinite", "nan")
    assert verify(script(), problem=problem).proof.ok


WRONG = [
    (tiled("[2, 2, 2, 2]", 2), "apply", "line 4: %t, %l:2 = transform.structured.tile_using_for"),
    (script("transform.structured.nonsense %op"), "apply", "line 4: "),
    ("module {}", "apply", "no transform.named_sequence @__transform_main"),
    ("this is not MLIR", "apply", ""),
]


@pytest.mark.full
@pytest.mark.parametrize(("text", "failure", "says"), WRONG)
def test_diagnostics_come_back_with_their_line(text: str, failure: str, says: str) -> None:
    verdict = verify(text, payload=PAYLOAD)
    assert not verdict.proof.ok and not verdict.proof.applied
    assert verdict.proof.failure == failure
    assert says in verdict.proof.message


@pytest.mark.full
def test_a_script_is_held_to_the_payload_that_it_holds() -> None:
    adds = with_payload(MATMUL, emit_script(MATMUL, schedule(*PACKED))).replace(
        "outs(%init", "outs(%C"
    )
    assert verify(adds).proof.ok


def passed_through(name: str, options: str = "{}") -> str:
    """A script that runs a pass on the function."""
    return script(
        '%f = transform.structured.match ops{["func.func"]} in %root'
        " : (!transform.any_op) -> !transform.any_op",
        f'%g = transform.apply_registered_pass "{name}" with options = {options} to %f'
        " : (!transform.any_op) -> !transform.any_op",
    )


def demoted(to: str) -> str:
    return passed_through(
        "iree-global-opt-demote-contraction-inputs", f'{{"type" = "{to}", "operation" = "all"}}'
    )


def with_maps(a: str, b: str) -> str:
    """A script that has the matmul read its operands through other maps."""
    maps = ", ".join(f"affine_map<(m, n, k) -> {dims}>" for dims in (a, b, "(m, n)"))
    return script(
        f"%maps = transform.param.constant [{maps}] -> !transform.any_param",
        "%wrong = transform.structured.generalize %op : (!transform.any_op) -> !transform.any_op",
        'transform.annotate %wrong "indexing_maps" = %maps'
        " : !transform.any_op, !transform.any_param",
    )


SQUARE = PAYLOAD.replace("16x24", "19x19").replace("24x40", "19x19").replace("16x40", "19x19")
WHOLE = SQUARE.replace("f32", "i32")


@pytest.mark.full
@pytest.mark.parametrize(("text", "payload"), [
    (demoted("f16"), PAYLOAD), (demoted("f16"), PAYLOAD.replace("24", "1543")),
    (with_maps("(k, m)", "(k, n)"), SQUARE), (with_maps("(m, k)", "(n, k)"), SQUARE),
    (with_maps("(k, m)", "(k, n)"), WHOLE),
])  # fmt: skip
def test_a_script_that_changes_what_is_computed_is_wrong(text: str, payload: str) -> None:
    proof = verify(text, payload=payload).proof
    assert proof.applied and proof.executed and not proof.ok
    assert proof.failure == "wrong", proof.message
    assert "the payload's own is" in proof.message
    json.dumps(proof.to_json(), allow_nan=False)


def test_a_script_that_changes_the_signature_is_refused() -> None:
    proof = verify(
        passed_through("iree-input-conversion-demote-f32-to-f16").replace(
            '["func.func"]', '["builtin.module"]'
        ),
        payload=PAYLOAD,
    ).proof
    assert proof.failure == "verify"
    assert "f16[16, 40] from @product of f32[16, 24]" in proof.message


def test_a_sum_that_is_split_and_vectorised_is_right() -> None:
    text = script(
        "%f, %p, %c, %l = transform.structured.tile_reduction_using_for %op by tile_sizes"
        " = [0, 0, 4] : (!transform.any_op) -> (!transform.any_op, !transform.any_op,"
        " !transform.any_op, !transform.any_op)"
    )
    verdict = verify(text, payload=PAYLOAD.replace("24", "29"))
    assert verdict.proof.ok, verdict.proof.message
    assert verdict.proof.max_error, "the sums are in another order"


NOTHING = script()


def test_a_script_that_changes_nothing_leaves_the_payload_and_is_timed_beside_it() -> None:
    verdict = verify(NOTHING, payload=PAYLOAD)
    with ir.Context():
        assert verdict.found.transformed == str(ir.Module.parse(PAYLOAD))
    assert verdict.proof.max_error == 0
    for taken in (verdict.found.unscripted_us, verdict.proof.time_us):
        assert taken is not None and taken > 0


VECTORIZE = "transform.structured.vectorize {} : !transform.any_op"
UNDER_MASKS = script(
    "%t, %l:3 = transform.structured.tile_using_for %op tile_sizes [4, 16, 5] : (!transform.any_op)"
    " -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)",
    VECTORIZE.format("%t vector_sizes [4, 16, 8]"),
)
SMALL = PAYLOAD.replace("24x40", "6x40").replace("16x24", "16x6")
SUM = """
func.func @sum(%a: tensor<6x20xf32>, %b: tensor<6x20xf32>) -> tensor<6x20xf32> {
  %0 = linalg.elementwise <add> ins(%a, %a : tensor<6x20xf32>, tensor<6x20xf32>)
    outs(%b : tensor<6x20xf32>) -> tensor<6x20xf32>
  return %0 : tensor<6x20xf32>
}
"""


def test_a_masked_operation_on_bf16_is_refused() -> None:
    verdict = verify(UNDER_MASKS, payload=PAYLOAD.replace("f32", "bf16"))
    assert verdict.proof.failure == "lower"
    assert "cannot compute in bf16 under a mask" in verdict.proof.message


@pytest.mark.full
@pytest.mark.parametrize(("payload", "says"), [
    (PAYLOAD.replace("tensor<16x24xf32>", "tensor<?x24xf32>"), "tensor<?x24xf32>"),
    (PAYLOAD + IN_PLACE, "2 functions; give one"),
    ("func.func @f(%x: f32) -> f32 { return %x : f32 }", "has f32 in its signature"),
    ("func.func @f() { return }", "takes and returns nothing to compare"),
    ("nonsense", "payload: "),
])  # fmt: skip
def test_a_payload_that_cannot_be_run_is_refused_with_the_reason(payload: str, says: str) -> None:
    verdict = verify(NOTHING, payload=payload)
    assert not verdict.proof.ok
    assert says in verdict.proof.message


SUM_OVER_K = script(
    "%t, %l = transform.structured.tile_using_forall %op tile_sizes [0, 0, 8]"
    " : (!transform.any_op) -> (!transform.any_op, !transform.any_op)"
)


@pytest.mark.parametrize(
    "subject", [{"payload": PAYLOAD}, pytest.param({"problem": MATMUL}, marks=pytest.mark.full)]
)
def test_a_race_is_refused_with_the_compilers_warning(subject, monkeypatch) -> None:
    # of a real child, which prints the warning
    monkeypatch.setattr("tilewise.kernels.mlir.proof.proof.run_limited", run_limited)
    verdict = verify(SUM_OVER_K, **subject)
    assert verdict.proof.failure == "race" and not verdict.proof.ok
    assert any("tiling is not thread safe at axis #2" in one for one in verdict.found.warnings)
    assert verdict.to_json()["warnings"] == list(verdict.found.warnings)


CONVOLUTION = """
func.func @conv(%x: tensor<1x14x10x8xf32>, %w: tensor<5x3x3x8xf32>) -> tensor<1x12x8x5xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x12x8x5xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<1x12x8x5xf32>) -> tensor<1x12x8x5xf32>
  %r = linalg.conv_2d_nhwc_fhwc {dilations = dense<1> : tensor<2xi64>,
      strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x14x10x8xf32>, tensor<5x3x3x8xf32>)
      outs(%f : tensor<1x12x8x5xf32>) -> tensor<1x12x8x5xf32>
  return %r : tensor<1x12x8x5xf32>
}"""


SOFTMAX = """
func.func @f(%a: tensor<7x131xf32>, %b: tensor<7x131xf32>) -> tensor<7x131xf32> {
  %0 = linalg.softmax dimension(1) ins(%a : tensor<7x131xf32>) outs(%b : tensor<7x131xf32>)
      -> tensor<7x131xf32>
  return %0 : tensor<7x131xf32>
}"""


@pytest.mark.parametrize(("text", "payload"), some([
    (script(VECTORIZE.format("%op")), SMALL),
    (script(VECTORIZE.format("%op")), SMALL.replace("f32", "bf16")),
    (script(VECTORIZE.format("%op")), SUM.replace("f32", "bf16")), (UNDER_MASKS, PAYLOAD),
    (UNDER_MASKS, PAYLOAD.replace("f32", "i32")),
    (tiled("[3, 0, 4]", 2), PAYLOAD.replace("f32", "bf16")),
    (NOTHING, CONVOLUTION.replace("f32", "bf16")),
    (NOTHING, softmax().replace("f32", "bf16").replace("0xFF800000", "0xFF80")), (NOTHING, SOFTMAX),
    (tiled("[8, 8]", 2).replace("{\n", "{\n" + PAYLOAD, 1), None),
    # passes and maps that change nothing
    (with_maps("(m, k)", "(k, n)"), SQUARE), (demoted("f16"), PAYLOAD.replace("f32", "f16")),
], all_of=2))  # fmt: skip
def test_a_right_script_holds(text: str, payload: str | None) -> None:
    verdict = verify(text, payload=payload)
    assert verdict.proof.ok, verdict.proof.message


def winograd(size: str) -> str:
    """A script of Winograd's transforms, down to loops and products."""
    match = 'transform.structured.match ops{["linalg.%s"]} in %%root : (!transform.any_op)'
    lines = [
        f"%c = {match % 'conv_2d_nhwc_fhwc'} -> !transform.any_op",
        f"%w = transform.structured.winograd_conv2d %c fmr({size})"
        " : (!transform.any_op) -> !transform.any_op",
    ]
    for part in ("input", "filter", "output"):
        lines += [
            f"%{part} = {match % f'winograd_{part}_transform'} -> !transform.any_op",
            f"%d{part} = transform.structured.decompose_winograd_op %{part}"
            " : (!transform.any_op) -> !transform.any_op",
        ]
    return script(*lines)


@pytest.mark.parametrize(("size", "payload"), some([
    ("F_2_3", CONVOLUTION), ("F_4_3", CONVOLUTION),
    # With seed 1 the transforms subtract an infinity from itself where the payload has one.
    ("F_2_3", CONVOLUTION.replace("8xf32>", "1xf32>")),
], all_of=2))  # fmt: skip
def test_winograd_holds_within_its_own_roundings(size: str, payload: str) -> None:
    for seed in range(3):
        verdict = verify(winograd(size), payload=payload, seed=seed)
        assert verdict.proof.ok, verdict.proof.message
        assert verdict.proof.max_error is not None and verdict.proof.tolerance


TWO_RESULTS = """
func.func @f(%a: tensor<5x7xf32>, %b: tensor<5x7xi32>) -> (tensor<5x7xf32>, tensor<5xf32>) {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5xf32>
  %s = linalg.fill ins(%z : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %r = linalg.reduce ins(%a : tensor<5x7xf32>) outs(%s : tensor<5xf32>) dimensions = [1]
      (%x: f32, %y: f32) { %t = arith.OPf %x, %y : f32
                           linalg.yield %t : f32 }
  return %a, %r : tensor<5x7xf32>, tensor<5xf32>
}"""


R = "tensor<16x40xf32>"
AND_ABSOLUTE = PAYLOAD.replace(f"    -> {R}", f"    -> ({R}, {R})").replace(
    f"return %0 : {R}",
    f"%1 = linalg.map {{ math.absf }} ins(%0 : {R}) outs(%c : {R})\n  return %0, %1 : {R}, {R}",
)
FUSED = script(
    "%t, %l:2 = transform.structured.fuse %op tile_sizes [4, 8]"
    " : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)"
).replace("interface{LinalgOp}", 'ops{["linalg.map"]}')


def test_every_result_is_compared() -> None:
    right, wrong = (TWO_RESULTS.replace("OPf", op) for op in ("addf", "mulf"))
    assert verify(NOTHING, payload=right).proof.ok and verify(FUSED, payload=AND_ABSOLUTE).proof.ok
    assert compared(right, wrong)["message"].startswith("result 1 is ")


HELPED = (
    PAYLOAD.replace("return %0", "%1 = call @copy(%0) : (R) -> R\n  return %1").replace(
        "R", "tensor<16x40xf32>"
    )
    + """
func.func private @unused(tensor<4xf32>) -> tensor<4xf32>
func.func private @copy(%a: tensor<16x40xf32>) -> tensor<16x40xf32> {
  %e = tensor.empty() : tensor<16x40xf32>
  %r = linalg.copy ins(%a : tensor<16x40xf32>) outs(%e : tensor<16x40xf32>) -> tensor<16x40xf32>
  return %r : tensor<16x40xf32>
}"""
)


@pytest.mark.full
def test_declarations_do_not_count_and_private_functions_are_part_of_their_caller() -> None:
    declared = PAYLOAD + "func.func private @other(tensor<4xf32>) -> tensor<4xf32>\n"
    assert verify(tiled("[2]", 1), payload=declared).proof.ok
    assert verify(NOTHING, payload=HELPED).proof.ok
    calls = HELPED.partition("func.func private @copy")[0]
    calls += "func.func private @copy(tensor<16x40xf32>) -> tensor<16x40xf32>\n"
    proof = verify(NOTHING, payload=calls).proof
    assert proof.failure == "lower" and "call @copy" in proof.message


DEPTHWISE = """
func.func @dw(%x: tensor<1x4x6x7xf32>, %w: tensor<3x3x7xf32>, %o: tensor<1x2x4x7xf32>)
    -> tensor<1x2x4x7xf32> {
  %r = linalg.depthwise_conv_2d_nhwc_hwc ins(%x, %w : tensor<1x4x6x7xf32>, tensor<3x3x7xf32>) outs(%o : tensor<1x2x4x7xf32>) -> tensor<1x2x4x7xf32>
  return %r : tensor<1x2x4x7xf32>
}"""  # noqa: E501


def test_an_error_at_an_op_of_the_payload_quotes_the_payload() -> None:
    text = script("transform.structured.vectorize %op vector_sizes [1, 4] : !transform.any_op")
    proof = verify(text, payload=DEPTHWISE).proof
    assert proof.failure == "apply"
    assert "line 4 of the payload: %r = linalg.depthwise_conv_2d_nhwc_hwc" in proof.message
    assert not any(line.startswith("line 4: ") for line in proof.message.splitlines())


@pytest.mark.full
def test_a_wrong_transform_is_wrong() -> None:
    made = verify(winograd("F_2_3"), payload=CONVOLUTION).found.transformed
    for right, wrong in (
        ("5.000000e-01", "5.005000e-01"),
        ("-1.000000e+00", "1.000000e+00"),
        ("constant 8 : index", "constant 7 : index"),
    ):
        assert right in made
        assert compared(CONVOLUTION, made.replace(right, wrong, 1)).get("failure") == "wrong", wrong


PROPOSAL = """
func.func @matmul(%arg0: tensor<16x1024xf32>, %arg1: tensor<1024x33xf32>,
                  %arg2: tensor<16x33xf32>) -> tensor<16x33xf32> {
  %0 = linalg.matmul ins(%arg0, %arg1 : tensor<16x1024xf32>, tensor<1024x33xf32>)
                     outs(%arg2 : tensor<16x33xf32>) -> tensor<16x33xf32>
  return %0 : tensor<16x33xf32>
}
"""


def test_the_proposals_tiling_has_its_loops_and_slices(golden: Callable[[str, str], None]) -> None:
    verdict = verify(tiled("[2, 3, 4]", 3), payload=PROPOSAL)
    assert verdict.proof.ok, verdict.proof.message
    assert verdict.found.outline == (
        "func @matmul", "  for 8 trips, step 2", "    for 11 trips, step 3",
        "      for 256 trips, step 4", "        linalg.matmul on tensor<2x3xf32>",
    )  # fmt: skip
    golden("linalg_on_tensors.mlir", verdict.found.transformed)
