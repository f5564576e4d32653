"""A module as something to run: its weights as they are written, and what its other ops do."""

import numpy as np
import pytest

from examples.models import MODELS
from examples.models.graph import Array, Graph
from examples.models.spellings import spelled
from tests.kernels.mlir.payloads import function, generic
from tilewise.kernels.errors import ModuleError
from tilewise.kernels.mlir.frontend.program import ModuleProgram, Pad, PoolWindow, Sum
from tilewise.kernels.mlir.frontend.read import read_program

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

SPLAT = "dense<2.5> : tensor<4xf32>"
SHORT = "dense<[1.0, 2.0, 3.0, -4.0]> : tensor<4xf32>"
LONG = f'dense<"0x{np.arange(4, dtype=np.float32).tobytes().hex()}"> : tensor<4xf32>'
NARROW = "dense<[[1.0, 2.5, -3.0, 0x7F80], [0.0, 1.0, 4.0, 6.0]]> : tensor<2x4xbf16>"
RESOURCE = "dense_resource<w> : tensor<2x4xbf16>"
BITS = [[0x3F80, 0x4020, 0xC040, 0x7F80], [0, 0x3F80, 0x4080, 0x40C0]]


def module(weights: str, bias: str, entry: str) -> bytes:
    """x @ weights + bias, and one resource."""
    return f"""
func.func @main(%x: tensor<3x2xbf16>) -> tensor<3x4xf32> {{
  %w = arith.constant {weights}
  %b = arith.constant {bias}
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<3x4xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<3x4xf32>) -> tensor<3x4xf32>
  %c = linalg.matmul ins(%x, %w : tensor<3x2xbf16>, tensor<2x4xbf16>)
                     outs(%init : tensor<3x4xf32>) -> tensor<3x4xf32>
  %wide = linalg.broadcast ins(%b : tensor<4xf32>) outs(%empty : tensor<3x4xf32>) dimensions = [0]
  %s = arith.addf %c, %wide : tensor<3x4xf32>
  return %s : tensor<3x4xf32>
}}
{{-# dialect_resources: {{ builtin: {{ other: "0x0400000000000000", w: "0x{entry}" }} }} #-}}
""".encode()


def resource(values: bytes) -> str:
    return (bytes([4, 0, 0, 0]) + values).hex().upper()


HELD = resource(np.array(BITS, np.uint16).tobytes())


@pytest.mark.parametrize(("weights", "bias", "expected"), [
    (NARROW, SPLAT, [2.5] * 4), (RESOURCE, SHORT, [1, 2, 3, -4]), (RESOURCE, LONG, [0, 1, 2, 3]),
])  # fmt: skip
def test_weights_are_what_the_module_holds(weights: str, bias: str, expected: list[float]) -> None:
    program = read_program(module(weights, bias, HELD))
    assert program.outline.arguments == (0,) and program.weights[0, "B"].tolist() == BITS
    assert program.weights[0, "bias"].tolist() == expected


def test_a_resource_of_another_size_is_refused() -> None:
    for entry in (HELD[:-4], HELD + "0000"):
        with pytest.raises(ModuleError, match=r"a weight of 1[48] bytes that should have 16"):
            read_program(module(RESOURCE, SHORT, entry))


@pytest.fixture(scope="module", params=["linalg", "torch", "stablehlo"])
def spelling(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def program_of(graph: Graph, spelling: str) -> ModuleProgram:
    return read_program(spelled(graph, spelling).encode())


def as_spelled(layer_weights: Array, shape: tuple[int, ...], spelling: str) -> Array:
    """A filter or a matrix as a spelling has it; depthwise filters have an axis of one."""
    turned = layer_weights.transpose(3, 2, 0, 1) if layer_weights.ndim == 4 else layer_weights.T
    return (turned if spelling == "torch" else layer_weights).reshape(shape)


def test_all_spellings_hold_the_same_weights(spelling: str) -> None:
    graph = MODELS["mobilenet_v2"](True)
    program = program_of(graph, spelling)
    layers = [layer for layer in graph.layers if layer.weights]
    nodes = [i for i, node in enumerate(program.outline.graph.nodes) if node.found is not None]
    for node, layer in zip(nodes, layers, strict=True):
        filters, bias = (graph.weights[name] for name in layer.weights)
        held = program.weights[node, "B"]
        assert np.array_equal(held, as_spelled(filters, held.shape, spelling))
        assert np.array_equal(program.weights[node, "bias"], bias)


def test_what_other_ops_do() -> None:
    outline = program_of(MODELS["resnet50"](True), "torch").outline
    told = [action for action in outline.actions if any(vars(action).values())]
    pad, window, sums, mean = told
    assert pad.pad == Pad((0, 0, 1, 1), (0, 0, 1, 1), float("-inf"))
    assert window.window == PoolWindow("max", (1, 1, 3, 3), (1, 1, 2, 2), (1, 1, 1, 1))
    assert mean.loops is not None and mean.loops.body[1].number == 16.0
    assert [one.name for one in mean.loops.body] == ["read", "number", "divide"]
    assert sums.sum == Sum((2, 3)) and [one.shape for one in outline.results] == [(1, 24)]


def test_elementwise_ops_and_reductions_are_loops(spelling: str) -> None:
    program = program_of(MODELS["bert"](True), spelling)
    loops = [one.loops for one in program.outline.actions if one.loops is not None]
    assert not any(one.refused for one in program.outline.actions)
    done = {one.name for loop in loops for one in loop.body} | {loop.combine for loop in loops}
    assert {"add", "multiply", "divide", "exp", "rsqrt", "sum", "max"} <= done
    assert "erf" not in done
    problems = [one.found.problem for one in program.outline.graph.nodes if one.found is not None]
    assert any("epilogue=gelu" in problem for problem in problems)
    heads = next(loop for loop in loops if loop.is_copy)
    assert (heads.extents, heads.accesses[0].steps) == ((2, 16, 16), (16, 32, 1))
    norms = [values for (_, role), values in program.weights.items() if role.startswith("operand")]
    assert [values.size for values in norms] == [32] * 8  # nothing is repeated


OPS = """
func.func @main(%x: tensor<3x5xf32>, %y: tensor<3x5xf64>) -> (tensor<3x5xf32>, tensor<3xf32>,
                                              tensor<3x5xf64>, tensor<3x5xf32>, tensor<3xf32>) {
  %log = math.log %x : tensor<3x5xf32>
  %one = arith.constant 1.0 : f32
  %empty = tensor.empty() : tensor<3xf32>
  %init = linalg.fill ins(%one : f32) outs(%empty : tensor<3xf32>) -> tensor<3xf32>
  %b = linalg.reduce ins(%x : tensor<3x5xf32>) outs(%init : tensor<3xf32>) dimensions = [1]
    (%in: f32, %out: f32) {
      %s = arith.addf %in, %out : f32
      linalg.yield %s : f32
    }
  %c = arith.negf %y : tensor<3x5xf64>
  %odd = tensor.empty() : tensor<3x5xf32>ROUNDED
  %low = arith.constant 0xFF800000 : f32
  %lows = linalg.fill ins(%low : f32) outs(%empty : tensor<3xf32>) -> tensor<3xf32>
  %e = linalg.reduce ins(%x : tensor<3x5xf32>) outs(%lows : tensor<3xf32>) dimensions = [1]
    (%in: f32, %out: f32) {
      %far = arith.subf %in, %out : f32
      %t = arith.maximumf %far, %out : f32
      linalg.yield %t : f32
    }
  return %log, %b, %c, %d, %e
      : tensor<3x5xf32>, tensor<3xf32>, tensor<3x5xf64>, tensor<3x5xf32>, tensor<3xf32>
}
"""
ROUNDED = generic("d", (3, 5), ["%x[d0, d1]"], "%odd[d0, d1]",
                  "%h = arith.truncf %a : f32 to f16\n%r = arith.extf %h : f16 to f32")  # fmt: skip


def test_what_is_not_run_here_says_why() -> None:
    outline = read_program(OPS.replace("ROUNDED", ROUNDED).encode()).outline
    assert [one.refused for one in outline.actions] == [
        "has math.log, which native networks do not support",
        "starts its sum from 1.0",
        "computes in f64; native networks compute in f32 and cast bf16",
        "computes in f16; native networks compute in f32 and cast bf16",
        "reads its intermediate result in the max",
    ]


COMPUTED = """
func.func @main(%x: tensor<4x2xf32>, %c: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %seven = arith.constant 7.0 : f32
  %p = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %ones = arith.constant dense<0x3F800000> : tensor<2x3xi32>
  %shape = arith.constant dense<[3, 2]> : tensor<2xi64>
  %q = tensor.reshape %p(%shape) : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<3x2xf32>
  %s = tensor.extract_slice %q[0, 1] [2, 1] [2, 1] : tensor<3x2xf32> to tensor<2x1xf32>
  %w = MADE
  %y = linalg.matmul ins(%x, %w : tensor<4x2xf32>, tensor<2x3xf32>)
    outs(%c : tensor<4x3xf32>) -> tensor<4x3xf32>
  return %y : tensor<4x3xf32>
}
"""
PADDED = """tensor.pad %s low[0, 1] high[0, 1] {
  ^bb0(%i: index, %j: index):
    tensor.yield %seven : f32
  } : tensor<2x1xf32> to tensor<2x3xf32>"""


@pytest.mark.parametrize(("made", "expected"), [
    ("arith.addf %p, %p : tensor<2x3xf32>", [[2, 4, 6], [8, 10, 12]]),
    ("math.powf %p, %p : tensor<2x3xf32>", [[1, 4, 27], [256, 3125, 46656]]),
    ("tensor.bitcast %ones : tensor<2x3xi32> to tensor<2x3xf32>", [[1, 1, 1], [1, 1, 1]]),
    (PADDED, [[7, 2, 7], [7, 6, 7]]),
])  # fmt: skip
def test_a_weight_may_be_computed_of_constants(made: str, expected: list[list[float]]) -> None:
    program = read_program(COMPUTED.replace("MADE", made).encode())
    (node,) = program.outline.graph.nodes
    assert node.found is not None and node.found.problem.endswith(",weights=constant")
    assert program.weights[0, "B"].tolist() == expected


def spread(shape: str, read: str) -> bytes:
    """A product of three axes, and a sum with a tensor that is read at two of them or one."""
    kind = "tensor<5x4x6xf32>"
    product = generic("y", (5, 4, 6, 7), ["%x[d0, d3]", "%w[d3, d1, d2]"], "%init[d0, d1, d2]",
                      "%s = arith.mulf %a, %b : f32\n%r = arith.addf %o, %s : f32", 1)  # fmt: skip
    added = generic("u", (5, 4, 6), ["%y[d0, d1, d2]", f"%v[{read}]"], "%empty[d0, d1, d2]",
                    "%r = arith.addf %a, %b : f32")  # fmt: skip
    arguments = f"%x: tensor<5x7xf32>, %w: tensor<7x4x6xf32>, %v: tensor<{shape}xf32>"
    body = f"""
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : {kind}
  %init = linalg.fill ins(%zero : f32) outs(%empty : {kind}) -> {kind}{product}{added}"""
    return function(arguments, body, "%u", kind, "main").encode()


@pytest.mark.parametrize(("shape", "read", "is_bias"), [
    ("4x6", "d1, d2", True), ("6x4", "d2, d1", False), ("4", "d1", False), ("1x6", "0, d2", False),
])  # fmt: skip
def test_a_bias_has_an_element_for_each_column_in_their_order(shape, read, is_bias) -> None:
    graph = read_program(spread(shape, read)).outline.graph
    found = graph.nodes[0].found
    assert found is not None
    assert ("bias" in found.fused) == is_bias
    assert len(graph.nodes) == (1 if is_bias else 2)
