"""Paddings of ONNX models are resolved: every form computes what ONNX's own evaluator does."""

from typing import Any

import numpy as np
import pytest

from tests.kernels.mlir.frontend.running import results_of
from tilewise.kernels.errors import ModuleError
from tilewise.kernels.mlir.frontend.child.onnx import OnnxError, bytecode_of
from tilewise.kernels.mlir.frontend.child.onnx_pads import rewrite
from tilewise.kernels.mlir.frontend.read import as_module, read_module

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
onnx: Any = pytest.importorskip("onnx", reason="onnx is not installed")

Case = tuple[str, dict[str, Any]]
AUTO = ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
FILTER = {"Conv": (4, 3), "ConvTranspose": (3, 4)}
SHAPES = {1: (1, 3, 9), 2: (1, 3, 7, 8), 3: (1, 3, 4, 5, 6)}
TAPS = {1: [3], 2: [3, 2], 3: [3, 2, 2]}
LOPSIDED = {1: [0, 1], 2: [1, 0, 0, 1], 3: [1, 0, 0, 0, 1, 1]}
EVERYWHERE: list[Case] = [
    ("Conv", {"lopsided": True, "strides": 2}),
    ("Conv", {"auto_pad": "SAME_LOWER"}),
    ("Conv", {"auto_pad": "SAME_UPPER", "strides": 2}),
    ("ConvTranspose", {"lopsided": True, "strides": 2}),
    ("AveragePool", {"lopsided": True, "strides": 2}),
    ("AveragePool", {"lopsided": True, "count_include_pad": 1}),
]
CASES: dict[int, list[Case]] = {
    1: [*EVERYWHERE, ("MaxPool", {"lopsided": True, "strides": 2})],
    2: [*EVERYWHERE, *(("Conv", {"auto_pad": auto, "strides": 1}) for auto in AUTO),
        *(("ConvTranspose", {"auto_pad": auto, "strides": 2}) for auto in AUTO),
        *(("AveragePool", {"auto_pad": auto, "strides": 2}) for auto in AUTO),
        *(("MaxPool", {"auto_pad": auto}) for auto in AUTO),
        ("Conv", {"lopsided": True, "dilations": 2}),
        ("ConvTranspose", {"lopsided": True, "strides": 2, "output_padding": 1}),
        ("MaxPool", {"lopsided": True, "strides": 2, "ceil_mode": 1}),
        ("MaxPool", {"lopsided": True, "dilations": 2})],
    3: EVERYWHERE,
}  # fmt: skip


def model(cases: list[Case], axes: int, shape: tuple[Any, ...] = ()) -> bytes:
    """A model with a node, and a result, for each case; all read `x`, which is negative."""
    make, rng = onnx.helper, np.random.default_rng(3)
    nodes, weights, results = [], [], []
    for at, (op, said) in enumerate(cases):
        given = {name: [value] * axes for name, value in said.items()
                 if name in ("strides", "dilations", "output_padding")}  # fmt: skip
        given |= {name: said[name] for name in said
                  if name in ("auto_pad", "count_include_pad", "ceil_mode")}  # fmt: skip
        if "lopsided" in said:
            given["pads"] = LOPSIDED[axes]
        names = ["x"]
        if op in FILTER:
            names.append(f"w{at}")
            value = rng.uniform(-1, 1, (*FILTER[op], *TAPS[axes])).astype(np.float32)
            weights.append(onnx.numpy_helper.from_array(value, f"w{at}"))
        else:
            given["kernel_shape"] = TAPS[axes]
        nodes.append(make.make_node(op, names, [f"y{at}"], **given))
        results.append(make.make_tensor_value_info(f"y{at}", 1, [None] * (2 + axes)))
    x = make.make_tensor_value_info("x", 1, shape or SHAPES[axes])
    graph = make.make_graph(nodes, "net", [x], results, weights)
    proto = make.make_model(graph, opset_imports=[make.make_opsetid("", 19)], ir_version=9)
    made: bytes = proto.SerializeToString()
    return made


@pytest.mark.full
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_all_forms_compute_what_onnx_says(axes: int) -> None:
    from onnx.reference import ReferenceEvaluator

    # a pad of 0 would be the largest
    x = np.random.default_rng(5).uniform(-2, -1, SHAPES[axes]).astype(np.float32)
    source = model(CASES[axes], axes)
    expected = ReferenceEvaluator(onnx.load_model_from_string(source)).run(None, {"x": x})
    found = results_of(as_module(source), x)
    for case, one, other in zip(CASES[axes], found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4, err_msg=str(case))


def test_a_maximum_of_integers_has_the_least_of_them_around() -> None:
    proto = onnx.load_model_from_string(model([("MaxPool", {"lopsided": True})], 2))
    proto.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT8
    assert rewrite(onnx, proto.graph, 19)
    filled = {one.name: one for one in proto.graph.initializer}[proto.graph.node[0].input[2]]
    assert onnx.numpy_helper.to_array(filled) == np.int8(-128)


def test_nodes_inside_of_others_are_resolved() -> None:
    make = onnx.helper
    whole = onnx.load_model_from_string(model([("MaxPool", {"auto_pad": "SAME_UPPER"})], 2))
    whole.graph.ClearField("input")
    node = make.make_node("If", ["c"], ["y"], then_branch=whole.graph, else_branch=whole.graph)
    values = [make.make_tensor_value_info(*one) for one in (("x", 1, SHAPES[2]), ("c", 9, []))]
    graph = make.make_graph([node], "net", values, [])
    assert rewrite(onnx, graph, 19)
    for branch in graph.node[0].attribute:
        assert [one.op_type for one in branch.g.node] == ["Pad", "MaxPool"]


def convolution(op: str, x: list[int], y: list[Any], **attributes: Any) -> bytes:
    """A node with a filter of 3x3."""
    make = onnx.helper
    node = make.make_node(op, ["x", "w"], ["y"], **attributes)
    values = [make.make_tensor_value_info(*one) for one in (("x", 1, x), ("y", 1, y))]
    weights = onnx.numpy_helper.from_array(np.ones((4, x[1], 3, 3), np.float32), "w")
    graph = make.make_graph([node], "net", values[:1], values[1:], [weights])
    sets = [make.make_opsetid("", 17)]
    return bytes(make.make_model(graph, opset_imports=sets, ir_version=8).SerializeToString())


def test_a_symmetric_padding_is_the_problems_own() -> None:
    source = convolution("Conv", [1, 3, 8, 8], [1, 4, 8, 8], auto_pad="SAME_UPPER")
    (found,) = read_module(source).occurrences
    assert found.problem == (
        "conv2d:n=1,h=8,w=8,ci=3,co=4,kh=3,kw=3,pad=1,layout=nchw_fchw,dtype=f32,weights=constant"
    )


@pytest.mark.parametrize(("case", "reason"), [
    (("Conv", {"auto_pad": "SAME_UPPER", "strides": 2}), "auto_pad=SAME_UPPER needs the size"),
    (("MaxPool", {"lopsided": True, "ceil_mode": 1}), "needs the size of x, and that is"),
])  # fmt: skip
def test_a_padding_that_depends_on_an_unknown_size_is_refused(case, reason) -> None:
    source = model([case], 2, (1, 3, "h", 8))
    with pytest.raises(ModuleError, match=f"{case[0]} y0: .*{reason}"):
        as_module(source)


@pytest.mark.parametrize(("attributes", "reason"), [
    ({"auto_pad": "SAME"}, "auto_pad=SAME; known are SAME_UPPER, "),
    ({"pads": [0, 1]}, "pads has 2 numbers; 2 axes take 4"),
    ({"strides": [2], "pads": [0, 1, 1, 1]}, "strides has 1 numbers; 2 axes take 2"),
    ({"strides": [0, 1]}, "strides=0,1; each is at least 1"),
    ({"dilations": [1, -1]}, "dilations=1,-1; each is at least 1"),
    ({"kernel_shape": [3]}, "its window has 1 axes, and its input 2 besides"),
])  # fmt: skip
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_malformed_windows_are_named(op, attributes, reason) -> None:
    with pytest.raises(OnnxError, match=f"{op} y: {reason}"):
        bytecode_of(convolution(op, [1, 4, 9, 9], list("abcd"), **attributes))
