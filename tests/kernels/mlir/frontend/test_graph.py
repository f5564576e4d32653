"""The graph of a module: what reads what, what a contraction has taken in, what stays unknown."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from examples.models import MODELS
from examples.models.spellings import spelled
from tests.kernels.mlir.frontend.test_dialects import DIALECTS
from tilewise.kernels.mlir.frontend.graph import Graph, Node
from tilewise.kernels.mlir.frontend.read import read_graph, read_module, read_op

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

AROUND = """
func.func @main(%x: tensor<4x6xf32>, %b: tensor<8xf32>, %y: tensor<?x6xf32>)
    -> (tensor<2x2x8xf32>, tensor<?x8xf32>, tensor<4x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %w = arith.constant dense_resource<__elided__> : tensor<6x8xf32>
  %e = tensor.empty() : tensor<4x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %0 = linalg.matmul ins(%x, %w : tensor<4x6xf32>, tensor<6x8xf32>)
      outs(%f : tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%0, %b : tensor<4x8xf32>, tensor<8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %s = arith.addf %p, %q : f32
      linalg.yield %s : f32
  } -> tensor<4x8xf32>
  %2 = tensor.expand_shape %1 [[0, 1], [2]] output_shape [2, 2, 8]
      : tensor<4x8xf32> into tensor<2x2x8xf32>
  %one = arith.constant 0 : index
  %n = tensor.dim %y, %one : tensor<?x6xf32>
  %d = tensor.empty(%n) : tensor<?x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%d : tensor<?x8xf32>) -> tensor<?x8xf32>
  %3 = linalg.matmul ins(%y, %w : tensor<?x6xf32>, tensor<6x8xf32>)
      outs(%g : tensor<?x8xf32>) -> tensor<?x8xf32>
  %h = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%f : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = math.exp %p : f32
      linalg.yield %s : f32
  } -> tensor<4x8xf32>
  return %2, %3, %h : tensor<2x2x8xf32>, tensor<?x8xf32>, tensor<4x8xf32>
}
"""


@cache
def graph_of(name: str, spelling: str) -> Graph:
    return read_graph(spelled(MODELS[name](True), spelling).encode())


def contractions(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.kind == "contraction"]


@pytest.mark.parametrize("spelling", ["linalg", "torch", "stablehlo"])
def test_a_networks_convolutions_read_what_those_before_made(spelling: str) -> None:
    graph = graph_of("resnet50", spelling)
    found = contractions(graph)
    made = [node.makes[0].tensor for node in found]
    reads = [[use.tensor for use in node.reads] for node in found]
    pooled = reads[1][0]
    # The first block: its projection starts from the last of the three, and adds to it.
    assert reads[2:5] == [[made[1]], [made[2]], [pooled, made[3]]]
    assert [use.role for use in found[4].reads] == ["A", "C"]
    assert reads[8] == [made[4], made[7]]  # the second block's
    makers = {use.tensor: number for number, node in enumerate(graph.nodes) for use in node.makes}
    assert makers[pooled] not in map(graph.nodes.index, found)
    assert graph.readers_of(pooled) == tuple(graph.nodes.index(found[i]) for i in (1, 4))
    assert [t.is_given for t in graph.tensors].count(True) == 1
    (result,) = (i for i, tensor in enumerate(graph.tensors) if tensor.is_result)
    assert makers[result] == len(graph.nodes) - 1


@pytest.mark.parametrize("dialect", ["tosa", "onnx"])
def test_a_graph_skips_what_import_skips(dialect: str) -> None:
    module = DIALECTS[dialect][0].encode()
    graph, imported = read_graph(module), read_module(module)
    found = Counter(node.found for node in graph.nodes if node.found)
    assert found == Counter(imported.occurrences)
    assert Counter(graph.skipped) == Counter(imported.skipped)
    for node in contractions(graph):
        assert read_op(module, str(node.place)).within == node.found


def test_tensors_are_made_before_they_are_read() -> None:
    for name in ("resnet50", "bert"):
        graph = graph_of(name, "torch")
        seen = {i for i, tensor in enumerate(graph.tensors) if tensor.is_given}
        for node in graph.nodes:
            assert {use.tensor for use in node.reads} <= seen
            seen |= {use.tensor for use in node.makes}
        assert seen == set(range(len(graph.tensors)))


def test_what_is_around_a_contraction_is_inside_of_its_node() -> None:
    graph = read_graph(AROUND.encode())
    first, dim, refused = graph.nodes  # and no node of what is computed of constants alone
    assert first.found is not None and first.found.fused == ("bias",)
    assert [use.role for use in first.reads] == ["A", "bias"]
    view = graph.tensors[first.makes[0].tensor]  # the view of it is the same tensor
    assert (view.shape, view.is_result) == ((4, 8), True)
    assert dim.op == "tensor.dim" and "dynamic shapes" in refused.reason
    assert graph.tensors[refused.reads[0].tensor].shape == (None, 6)
    assert [one.op for one in graph.skipped] == ["linalg.matmul"]


def test_kinds() -> None:
    graph = graph_of("resnet50", "linalg")
    kinds = {node.op: node.kind for node in graph.nodes}
    assert (kinds["linalg.pooling_nhwc_max"], kinds["tensor.pad"]) == ("pool", "other")
    bert = graph_of("bert", "linalg")
    roles = {tuple(u.role for u in n.reads) for n in bert.nodes if n.kind == "elementwise"}
    assert roles == {("",), ("", "whole"), ("whole",)}  # a scale, a transpose
    assert {use.role for node in bert.nodes for use in node.reads} == {"", "whole", "A", "B", "add"}
    assert any(n.kind == "other" and n.op == "linalg.generic" for n in bert.nodes)  # row sums
    assert bert.layers == read_module(spelled(MODELS["bert"](True)).encode()).problems


def test_problems_of_another_accuracy_are_all_that_changes() -> None:
    text = spelled(MODELS["resnet50"](True)).encode()
    graph, imported, lone = graph_of("resnet50", "linalg"), read_module(text), read_op(text, "3")
    strict_graph, strict_imported = (one.with_accuracy("strict") for one in (graph, imported))
    wanted = [replace(one, problem=f"{one.problem},accuracy=strict") for one in graph.layers]
    assert wanted and list(strict_graph.layers) == list(strict_imported.problems) == wanted
    assert strict_graph.with_accuracy("standard") == graph
    assert strict_imported.with_accuracy("standard") == imported
    both = lone.with_accuracy("strict")
    assert both.found.problem == f"{lone.found.problem},accuracy=strict"
    assert both.within.problem == f"{lone.within.problem},accuracy=strict"
    assert both.with_accuracy("standard") == lone
