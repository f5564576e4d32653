"""ONNX models: read as modules are, whatever set of operators they are in, or refused."""

from typing import Any

import numpy as np
import pytest

from tests.kernels.mlir.frontend.running import results_of
from tilewise.kernels.errors import ModuleError
from tilewise.kernels.mlir.frontend.read import ReadLimits, as_module, read_module

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

RANDOM = np.random.default_rng(5)
FIRST = {"w": (16, 8, 3, 3), "s": (16,), "b": (16,), "m": (16,), "v": (16,), "g": (16, 10)}
"""Weights of a convolution with its batch norm, and of a layer behind them."""


@pytest.fixture(scope="module")
def onnx() -> Any:
    return pytest.importorskip("onnx", reason="onnx is not installed")


def model(onnx: Any, nodes: list[Any], weights: dict[str, Any], x: Any, y: Any, opset: int) -> Any:
    make = onnx.helper
    types = [make.make_tensor_value_info(name, 1, shape) for name, shape in (("x", x), ("y", y))]
    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = make.make_graph(nodes, "net", types[:1], types[1:], tensors)
    sets = [make.make_opsetid("", opset)]
    return make.make_model(graph, opset_imports=sets, ir_version=8)


def convolution(onnx: Any, opset: int) -> Any:
    node = onnx.helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("GlobalAveragePool", ["r"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("MatMul", ["f", "g"], ["y"]),
    ]
    weights = {name: RANDOM.random(shape).astype(np.float32) for name, shape in FIRST.items()}
    return model(onnx, nodes, weights, [1, 8, 10, 10], [1, 10], opset)


def layer(onnx: Any, weights: dict[str, Any]) -> Any:
    node = onnx.helper.make_node
    nodes = [node("Gemm", ["x", "w", "b"], ["h"], transB=1), node("Relu", ["h"], ["y"])]
    return model(onnx, nodes, weights, [5, 17], [5, 11], 17)


def layer_weights() -> dict[str, Any]:
    shapes = {"w": (11, 17), "b": (11,)}
    return {name: RANDOM.standard_normal(shape, np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("opset", [9, pytest.param(21, marks=pytest.mark.full)])
def test_problems_of_a_model_in_each_set_of_operators(onnx: Any, opset: int) -> None:
    imported = read_module(convolution(onnx, opset).SerializeToString())
    assert [one.problem for one in imported.occurrences] == [
        "conv2d:n=1,h=10,w=10,ci=8,co=16,kh=3,kw=3,pad=1,layout=nchw_fchw,dtype=f32,"
        "weights=constant",
        "matmul:m=1,n=10,k=16,dtype=f32,weights=constant",
    ]


def test_functions_of_a_model_and_weights_that_are_no_bytes_are_read(onnx: Any) -> None:
    make, kinds, weights = onnx.helper, onnx.TensorProto, layer_weights()
    whole, values = layer(onnx, weights), weights["w"].astype(np.float16)
    places = [one.name for one in whole.graph.initializer]
    inner = [make.make_node("Cast", ["b"], ["w"], to=kinds.FLOAT),
             make.make_node("Gemm", ["a", "w", "c"], ["h"], transB=1)]  # fmt: skip
    sets = [make.make_opsetid("", 17), make.make_opsetid("own", 1)]
    whole.functions.append(make.make_function("own", "F", "abc", "h", inner, sets[:1]))
    whole.opset_import.append(sets[1])
    whole.graph.node[0].CopyFrom(make.make_node("F", ["x", "w", "b"], ["h"], domain="own"))
    narrow = make.make_tensor("w", kinds.FLOAT16, values.shape, values.ravel().tolist())
    whole.graph.initializer[places.index("w")].CopyFrom(narrow)
    assert narrow.int32_data
    x = RANDOM.standard_normal((5, 17)).astype(np.float32)
    (found,) = results_of(as_module(whole.SerializeToString()), x)
    expected = np.maximum(x @ values.T.astype(np.float32) + weights["b"], 0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("within", ["a weight", "a sparse tensor", "a function"])
def test_weights_in_other_files_are_refused_and_not_looked_for(onnx: Any, within: str) -> None:
    proto = layer(onnx, layer_weights())
    if within == "a weight":
        tensor = proto.graph.initializer[0]
    elif within == "a sparse tensor":
        tensor = proto.graph.sparse_initializer.add(dims=[5]).values
    else:
        node = proto.functions.add(name="g", domain="own").node.add(op_type="Constant")
        tensor = node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t
    tensor.name, tensor.data_type = "inner", onnx.TensorProto.FLOAT
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/hostname")
    for read in (read_module, as_module):
        with pytest.raises(ModuleError, match=r"has inner in another file; make one file"):
            read(proto.SerializeToString())


@pytest.mark.parametrize(
    "broken",
    ["an unknown operator", "a cycle"]
    + [pytest.param(name, marks=pytest.mark.full) for name in ("cut", "garbage")],
)
def test_a_broken_model_is_refused(onnx: Any, broken: str) -> None:
    proto = layer(onnx, layer_weights())
    if broken == "an unknown operator":
        proto.graph.node[1].op_type = "Nonsense"
    if broken == "a cycle":
        proto.graph.node[0].input[0] = "y"
    data = proto.SerializeToString()
    given = {"cut": data[: len(data) // 2], "garbage": b"\x08" + RANDOM.bytes(10 << 20)}
    with pytest.raises(ModuleError) as refused:
        read_module(given.get(broken, data), ReadLimits(seconds=30.0, memory_bytes=2 << 30))
    told = str(refused.value)
    assert told.startswith("the module was not read: the ONNX model cannot be imported: ")
    assert told.isprintable() and len(told) < 400


def test_without_the_package_the_way_out_is_named(tmp_path, monkeypatch) -> None:
    absent = tmp_path / "onnx.py"
    absent.write_text("raise ModuleNotFoundError('No module named onnx', name='onnx')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for read in (read_module, as_module):
        with pytest.raises(ModuleError, match=r"tilewise\[onnx\]"):
            read(b"\x08\x08\x12\x07pytorch")
