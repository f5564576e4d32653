"""A small network of each family: packed by one script, counted, and run beside itself."""

from dataclasses import replace

import pytest

from tests.cases import some
from tests.kernels.mlir.frontend.test_dialects import in_torch
from tests.kernels.mlir.network import networks
from tests.kernels.mlir.network.networks import pack, prove
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


@pytest.mark.parametrize("family", some(FAMILIES, all_of=2))
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


LOOP = """
  %lo = arith.constant 0 : index
  %one = arith.constant 1 : index
  %three = arith.constant 3 : index
  %m = scf.for %i = %lo to %three step %one iter_args(%c = %p) -> tensor<8x24xf32> {
    %n = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>],
        iterator_types = ["parallel", "parallel"]} outs(%c : tensor<8x24xf32>) {
    ^bb0(%o: f32):
      %s = arith.addf %o, %o : f32
      linalg.yield %s : f32
    } -> tensor<8x24xf32>
    scf.yield %n : tensor<8x24xf32>
  }"""
MIRROR = """
  %m = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]} outs(%e : tensor<8x24xf32>) {
  ^bb0(%o: f32):
    %a = linalg.index 0 : index
    %b = linalg.index 1 : index
    %last = arith.constant 23 : index
    %at = arith.subi %last, %b : index
    %s = tensor.extract %p[%a, %at] : tensor<8x24xf32>
    linalg.yield %s : f32
  } -> tensor<8x24xf32>"""
INDICES = MIRROR.replace("arith.subi %last, %b :", "arith.index_cast %id : i64 to").replace(
    "%last = arith.constant 23 : index", """%i = arith.constant dense_resource<i> : tensor<24xi64>
    %id = tensor.extract %i[%b] : tensor<24xi64>""")  # fmt: skip
MEAN = """
  %r = linalg.reduce ins(%p : tensor<8x24xf32>) outs(%line : tensor<8xf32>) dimensions = [1]
    (%in: f32, %out: f32) {
      %s = arith.addf %in, %out : f32
      linalg.yield %s : f32
    }
  %m = linalg.broadcast ins(%r : tensor<8xf32>) outs(%e : tensor<8x24xf32>) dimensions = [1]"""
HALVES = """
  %s1 = tensor.extract_slice %p[0, 0] [8, 9] [1, 1] : tensor<8x24xf32> to tensor<8x9xf32>
  %s2 = tensor.extract_slice %p[0, 9] [8, 15] [1, 1] : tensor<8x24xf32> to tensor<8x15xf32>
  %m = tensor.concat dim(1) %s2, %s1 : (tensor<8x15xf32>, tensor<8x9xf32>) -> tensor<8x24xf32>"""
OPEN = """
  %lo = arith.constant 0 : index
  %d = tensor.cast %p : tensor<8x24xf32> to tensor<?x24xf32>
  %size = tensor.dim %d, %lo : tensor<?x24xf32>
  %ed = tensor.empty(%size) : tensor<?x24xf32>
  %fd = linalg.fill ins(%zero : f32) outs(%ed : tensor<?x24xf32>) -> tensor<?x24xf32>
  %n = linalg.matmul ins(%d, %square : tensor<?x24xf32>, tensor<24x24xf32>)
    outs(%fd : tensor<?x24xf32>) -> tensor<?x24xf32>
  %m = tensor.cast %n : tensor<?x24xf32> to tensor<8x24xf32>"""


def between(what: str) -> bytes:
    """Something between two products that may be packed: from `%p` to `%m`."""
    return f"""func.func @main(%x: tensor<8x16xf32>, %w0: tensor<16x24xf32>, %w1: tensor<24x20xf32>,
    %square: tensor<24x24xf32>, %line: tensor<8xf32>) -> tensor<8x20xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x24xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x24xf32>) -> tensor<8x24xf32>
  %p = linalg.matmul ins(%x, %w0 : tensor<8x16xf32>, tensor<16x24xf32>)
    outs(%f : tensor<8x24xf32>) -> tensor<8x24xf32>{what}
  %e1 = tensor.empty() : tensor<8x20xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<8x20xf32>) -> tensor<8x20xf32>
  %q = linalg.matmul ins(%m, %w1 : tensor<8x24xf32>, tensor<24x20xf32>)
    outs(%f1 : tensor<8x20xf32>) -> tensor<8x20xf32>
  return %q : tensor<8x20xf32>
}}
""".encode()


@pytest.mark.parametrize(("what", "left", "counts"), some([
    (LOOP, ["scf.for", "scf.yield"], (2, 2)), (MIRROR, [], (2, 2)), (HALVES, [], (2, 2)),
    (MEAN, [], (1, 2)),
], of=3))  # fmt: skip
def test_a_network_around_it_computes_the_same(what, left, counts) -> None:
    plan = pack(between(what), Blocks(16))
    assert len(plan.packed) == 2 and [one.op for one in plan.left] == left
    found = plan.counts
    assert (found["packs"], found["unpacks"]) == counts
    assert found["weights"] == 2, "what a body reads from outside is no weight"
    proof = prove(plan)
    assert proof.failure is None and proof.executed, proof.message


def product(before: str, given: str, a: str, b: str, c: str) -> str:
    """A product of `%x` and `%w`, of which lines before it make what is not given."""
    zero = f"arith.constant {'0.0 : f32' if 'f32' in c else '0 : i32'}"
    return f"""func.func @main({given}) -> {c} {{
  {before}
  %zero = {zero}
  %e = tensor.empty() : {c}
  %f = linalg.fill ins(%zero : {zero[-3:]}) outs(%e : {c}) -> {c}
  %p = linalg.matmul ins(%x, %w : {a}, {b}) outs(%f : {c}) -> {c}
  return %p : {c}
}}"""


A = "tensor<8x16xf32>"
GATHERED = product(f"""%o = tensor.empty() : {A}
  %x = linalg.generic {{indexing_maps = [affine_map<(a, b) -> (a)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]}} ins(%ids : tensor<8xi64>) outs(%o : {A}) {{
  ^bb0(%id: i64, %out: f32):
    %at = arith.index_cast %id : i64 to index
    %column = linalg.index 1 : index
    %value = tensor.extract %table[%at, %column] : tensor<5x16xf32>
    linalg.yield %value : f32
  }} -> {A}""", "%ids: tensor<8xi64>, %table: tensor<5x16xf32>, %w: tensor<16x24xf32>", A,
  "tensor<16x24xf32>", "tensor<8x24xf32>")  # fmt: skip
WEIGHTS = f'%w = arith.constant dense<"0x{bytes(range(128)).hex() * 32}"> : tensor<64x64xi8>'
SMALL = ("tensor<16x64xi8>", "tensor<64x64xi8>", "tensor<16x64xi32>")
BYTES = product(WEIGHTS, "%x: tensor<16x64xi8>", *SMALL)


@pytest.mark.parametrize("module", [GATHERED, BYTES, between(INDICES).decode()],
                         ids=["indices", "weights of bytes", "constant indices"])  # fmt: skip
def test_integers_are_proven_without_a_crash(module: str) -> None:
    proof = prove_packs(pack_module(module.encode()))
    assert proof.failure is None and proof.executed, proof.message


def test_a_product_of_open_shape_is_told_and_those_around_it_are_packed() -> None:
    plan = pack(between(OPEN), Blocks(16))
    assert [one.reason for one in plan.left] == ["has dynamic shapes; give --dim NAME=SIZE"]
    assert len(plan.packed) == 2
    assert prove(plan).executed


def test_a_function_of_two_results_is_refused_before_it_is_packed() -> None:
    text = between("\n  %m = tensor.cast %p : tensor<8x24xf32> to tensor<8x24xf32>").replace(
        b"-> tensor<8x20xf32> {", b"-> (tensor<8x20xf32>, tensor<8x24xf32>) {"
    )
    text = text.replace(b"return %q : tensor<8x20xf32>",
                        b"return %q, %p : tensor<8x20xf32>, tensor<8x24xf32>")  # fmt: skip
    with pytest.raises(ModuleError, match="a function that returns one tensor, not 2"):
        pack_module(text, Blocks(16))
