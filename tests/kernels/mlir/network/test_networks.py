"""A small network of each family: packed by one script, counted, and run beside itself."""

from dataclasses import replace

import pytest

from tests.kernels.mlir.frontend.dialects import in_torch
from tests.kernels.mlir.network import networks
from tests.kernels.mlir.network.here import pack, prove
from tilewise.kernels.errors import ModuleError
from tilewise.kernels.mlir.network.pack import pack_module, prove_packs
from tilewise.kernels.mlir.network.packing import Blocks, OpBlocks

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

IN_TORCH = in_torch("1,16,7,9", "32,16,3,3", "1,32,7,9", 1, flag="false").encode()
FAMILIES = {
    "residual, nhwc": (networks.residual(), (0, 1, 1)),
    "residual, nchw": (networks.residual("torch"), (0, 1, 1)),
    "perceptron": (networks.perceptron(), (1, 1, 2)),
    "separable": (networks.separable(), (1, 1, 0)),
    "mixer": (networks.mixer(), (9, 11, 11)),
    "on torch": (IN_TORCH, (1, 1, 0)),
}


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES)
def test_a_network_computes_what_it_did(family: str) -> None:
    module, counts = FAMILIES[family]
    plan = pack(module)
    found = plan.counts
    assert (found["packs"], found["unpacks"], found["reshapes"]) == counts
    assert not plan.left
    proof = prove(plan)
    assert proof.failure is None, proof.message
    assert proof.executed and proof.max_error is not None


@pytest.mark.full
def test_processes_pack_and_prove() -> None:
    plan = pack_module(networks.products())
    assert plan == replace(pack(networks.products()), apply_s=plan.apply_s)
    proof = prove_packs(plan)
    assert proof.ok, proof.message
    assert "// error: " in proof.script and "// left: " in proof.script


@pytest.mark.full
def test_only_transposes_of_heads_move_in_an_encoder() -> None:
    plan = pack(networks.encoder())
    assert [one.op for one in plan.left] == ["linalg.batch_matmul"] * 2
    assert all("every run computes" in one.reason for one in plan.left)
    moves = [one for one in plan.remaining if not (one.of_weights or one.is_reshape)]
    heads = {"tensor<16x2x1x16xf32> to tensor<2x16x16xf32>"} | {
        "tensor<2x16x16xf32> to tensor<16x2x1x16xf32>"
    }
    assert len(moves) == 4 and {one.types for one in moves} == heads
    assert prove(plan).executed


def test_blocks_of_rows_move_the_input_and_the_result_alone() -> None:
    found = pack(networks.perceptron(), Blocks(rows=8)).counts
    assert (found["packs"], found["unpacks"], found["reshapes"]) == (1, 1, 0)


@pytest.mark.parametrize("first", [OpBlocks(0, 16, 16), OpBlocks(2, 12, 8), OpBlocks(8, 0, 0)])
def test_panels_of_different_widths_do_not_meet(first: OpBlocks) -> None:
    module = networks.products(8, (16, 48, 20))
    same = pack(module, Blocks(16, 0)).counts
    other = pack(module, Blocks(16, 0, {1: first, 2: OpBlocks(0, 4, 24)})).counts
    assert same["packs"] + same["unpacks"] == 2
    assert other["packs"] + other["unpacks"] > 2


def test_a_script_is_of_one_module() -> None:
    two, three = (pack(networks.products(sizes=sizes)) for sizes in ((8, 8, 8), (8, 8, 8, 8)))
    proof = prove(replace(two, payload=three.payload, depths=three.depths))
    assert proof.failure == "apply"


def test_a_script_that_changes_numbers_is_wrong() -> None:
    plan = pack(networks.products())
    change = """    %zero = transform.structured.match ops{["arith.constant"]} in %func
        : (!transform.any_op) -> !transform.any_op
    %one = transform.param.constant 1.0 : f32 -> !transform.any_param
    transform.annotate %zero "value" = %one : !transform.any_op, !transform.any_param
    transform.yield
"""
    changed = plan.script.replace("    transform.yield\n", change, 1)
    assert changed != plan.script
    proof = prove(replace(plan, script=changed))
    assert proof.failure == "wrong" and "allowed" in proof.message


def test_a_batch_that_torch_leaves_open_stays_plain_and_is_told() -> None:
    plan = pack(IN_TORCH.replace(b"[1,", b"[?,"))
    assert not plan.packed and plan.script.count("has dynamic shapes") == len(plan.left) == 1


def test_an_argument_that_is_multiplied_in_batches_is_no_weight() -> None:
    a, b, c = "tensor<2x8x16xf32>", "tensor<2x16x8xf32>", "tensor<2x8x8xf32>"
    module = f"""func.func @main(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
      %r = linalg.batch_matmul ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}
      return %r : {c}
    }}"""
    assert not pack(module.encode()).packed
    found = pack(module.encode(), Blocks(of_ops={1: OpBlocks(0, 8, 16)})).counts
    assert (found["packs"], found["unpacks"], found["weights"]) == (3, 1, 0)


def test_an_op_is_left_whole_where_that_is_wished_for() -> None:
    plan = pack(networks.products(8, (16, 32, 16)), Blocks(16, 0, {1: OpBlocks()}))
    assert [one.number for one in plan.packed] == [2]
    assert [(one.number, one.reason) for one in plan.left] == [(1, "stays whole, as is wished for")]


def test_several_functions_are_refused() -> None:
    one = networks.products().decode()
    with pytest.raises(ModuleError, match=r"one func\.func"):
        pack_module((one + one.replace("@main", "@other")).encode())
