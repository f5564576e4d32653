"""Sizes of dynamic dims: a model has the problems and results of one with static shapes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.cases import cases, some
from tests.kernels.mlir.frontend.running import results_of
from tests.kernels.mlir.frontend.test_onnx import model
from tilewise.kernels.errors import DimError
from tilewise.kernels.mlir.frontend.dims import exact_dims, parse_dims, problems_over
from tilewise.kernels.mlir.frontend.read import as_module, read_module
from tilewise.kernels.problem import ProblemRange, parse_any, parse_problem

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

BIAS = np.arange(8, dtype=np.float32)
SPELLINGS = {
    "linalg": """
func.func @main(%x: tensor<?x6xf32>, %y: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %w = arith.constant dense<2.0> : tensor<6x8xf32>
  %c0 = arith.constant 0 : index
  %z = arith.constant 0.0 : f32
  %d = tensor.dim %x, %c0 : tensor<?x6xf32>
  %e = tensor.empty(%d) : tensor<?x8xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
  %p = call @product(%x, %w, %f)
      : (tensor<?x6xf32>, tensor<6x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %r = arith.addf %p, %y : tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}
func.func private @product(%x: tensor<?x6xf32>, %w: tensor<6x8xf32>, %f: tensor<?x8xf32>)
    -> tensor<?x8xf32> {
  %r = linalg.matmul ins(%x, %w : tensor<?x6xf32>, tensor<6x8xf32>)
      outs(%f : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}""",
    "stablehlo": """
func.func public @main(%x: tensor<?x6xf32>, %y: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %w = stablehlo.constant dense<2.0> : tensor<6x8xbf16>
  %h = stablehlo.convert %x : (tensor<?x6xf32>) -> tensor<?x6xbf16>
  %n = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0]
      : (tensor<?x6xbf16>, tensor<6x8xbf16>) -> tensor<?x8xbf16>
  %p = stablehlo.convert %n : (tensor<?x8xbf16>) -> tensor<?x8xf32>
  %r = stablehlo.add %p, %y : tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}""",
    "tosa": """
func.func @main(%x: tensor<?x1x1x6xf32>, %y: tensor<?x1x1x8xf32>) -> tensor<?x1x1x8xf32> {
  %w = "tosa.const"() {values = dense<2.0> : tensor<8x1x1x6xf32>} : () -> tensor<8x1x1x6xf32>
  %b = "tosa.const"() {values = dense<0.0> : tensor<8xf32>} : () -> tensor<8xf32>
  %z = "tosa.const"() {values = dense<0.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %p = "tosa.conv2d"(%x, %w, %b, %z, %z) {acc_type = f32, dilation = array<i64: 1, 1>,
      pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>} : (tensor<?x1x1x6xf32>,
      tensor<8x1x1x6xf32>, tensor<8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<?x1x1x8xf32>
  %r = tosa.add %p, %y : (tensor<?x1x1x8xf32>, tensor<?x1x1x8xf32>) -> tensor<?x1x1x8xf32>
  return %r : tensor<?x1x1x8xf32>
}""",
    "torch": """
func.func @main(%x: !torch.vtensor<[?,6],f32>, %y: !torch.vtensor<[?,8],f32>)
    -> !torch.vtensor<[?,8],f32> {
  %s = torch.symbolic_int "s0" {min_val = 2, max_val = 64} : !torch.int
  torch.bind_symbolic_shape %x, [%s], affine_map<()[s0] -> (s0, 6)> : !torch.vtensor<[?,6],f32>
  %w = torch.vtensor.literal(dense<2.0> : tensor<6x8xf32>) : !torch.vtensor<[6,8],f32>
  %one = torch.constant.int 1
  %p = torch.aten.mm %x, %w : !torch.vtensor<[?,6],f32>, !torch.vtensor<[6,8],f32>
      -> !torch.vtensor<[?,8],f32>
  %r = torch.aten.add.Tensor %p, %y, %one : !torch.vtensor<[?,8],f32>, !torch.vtensor<[?,8],f32>,
      !torch.int -> !torch.vtensor<[?,8],f32>
  return %r : !torch.vtensor<[?,8],f32>
}""",
}


def in_onnx() -> bytes:
    """The same product in ONNX, with a shape that is computed, and a residual."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    node = onnx.helper.make_node
    nodes = [
        node("Shape", ["x"], ["shape"]), node("Slice", ["shape", "zero", "one"], ["n"]),
        node("Concat", ["n", "rest"], ["new"], axis=0), node("Reshape", ["x", "new"], ["flat"]),
        node("MatMul", ["flat", "w"], ["p"]), node("Add", ["p", "r"], ["y"]),
    ]  # fmt: skip
    ints = {name: np.array([of], np.int64) for name, of in (("zero", 0), ("one", 1), ("rest", 6))}
    weights = {"w": np.full((6, 8), 2, np.float32), **ints}
    proto = model(onnx, nodes, weights, ["batch", 2, 3], ["batch", 8], 17)
    proto.graph.input.append(onnx.helper.make_tensor_value_info("r", 1, [None, 8]))
    source: bytes = proto.SerializeToString()
    return source


def source_of(spelling: str) -> tuple[bytes, tuple[str, str]]:
    """A model with two dynamic dims, and their names."""
    if spelling == "onnx":
        return in_onnx(), ("batch", "r.0")
    return SPELLINGS[spelling].encode(), ("arg0.0", "1.0")


@pytest.mark.parametrize("spelling", some([*SPELLINGS, "onnx"], of=3))
@cases(3, short=1)
@given(size=st.integers(1, 40))
def test_a_model_with_sizes_has_static_problems_and_results(spelling: str, size: int) -> None:
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")

    source, names = source_of(spelling)
    sizes = exact_dims([f"{','.join(names)}={size}"])
    imported = read_module(source, sizes=sizes)
    (found,) = (parse_problem(one.problem) for one in imported.occurrences)
    assert not imported.skipped and found.has_constant_weights
    made: Any = found
    rows = made.n if spelling == "tosa" else made.m
    assert rows == size and found.flops == 2 * size * 6 * 8

    module = as_module(source, sizes=sizes)
    assert read_module(module).occurrences == imported.occurrences
    between = {"tosa": (1, 1), "onnx": ()}.get(spelling, ())
    first = (size, 2, 3) if spelling == "onnx" else (size, *between, 6)
    x = np.random.default_rng(size).integers(-8, 8, first).astype(np.float32)
    y = np.broadcast_to(BIAS, (size, *between, 8))
    (computed,) = results_of(module, x, y)
    expected = 2 * x.reshape(size, 6).sum(1, keepdims=True) + BIAS
    assert np.array_equal(computed.reshape(size, 8), expected)


@pytest.mark.parametrize("spelling", ["linalg", "onnx"])
def test_a_name_that_is_wrong_or_lacking_is_named(spelling: str) -> None:
    source, (first, second) = source_of(spelling)
    for read in (lambda sizes: read_module(source, sizes=sizes),
                 lambda sizes: as_module(source, sizes=sizes)):  # fmt: skip
        with pytest.raises(DimError, match=rf"{second} is left dynamic; give --dim {second}=SIZE"):
            read({first: 4})
        has = f"{first.removeprefix('arg')}, {second}"
        with pytest.raises(DimError, match=rf"dim='nil': .* dynamic dim; it has {has}"):
            read({first: 4, second: 4, "nil": 4})


@cases(60)
@given(
    first=st.integers(1, 40), more=st.integers(1, 60), step=st.integers(1, 5),
    slope=st.integers(-1, 6), offset=st.integers(0, 9),
)  # fmt: skip
@example(first=4, more=56, step=4, slope=128, offset=0)
@example(first=1, more=31, step=1, slope=2, offset=1)  # odd numbers are no multiples
@example(first=1, more=31, step=1, slope=-1, offset=0)
def test_a_range_has_the_problem_of_each_size(first, more, step, slope, offset) -> None:
    texts = ["k=7", f"rows={first}..{first + more + 2 * step}:{step}"]
    _, dim = parse_dims(texts)
    assert dim is not None
    within = dim.within
    assert dim.names == ("rows",) and not any(one % step for one in within)
    assert {*dim.samples, *dim.tested} <= {*within} and dim.outside not in within
    offset += 200 if slope < 0 else 1 if not slope else 0

    def problem(rows: int) -> str:
        return f"matmul:m={slope * rows + offset},n=5,k=7,dtype=f32"

    def read(sizes: dict[str, int]) -> dict[str, Any]:
        assert sizes["k"] == 7
        rows = sizes["rows"]
        square = f"matmul:m={rows},n={rows},k=7,dtype=f32"
        listed = [{"problem": problem(rows), "count": 2, "where": ["@f 1:1 a", "@f 1:1 a"]},
                  {"problem": square, "count": 1, "where": ["@f 2:1 b"]}]  # fmt: skip
        listed += [{"problem": square, "count": 1, "where": ["@f 3:1 c"]}] * (rows == within[0])
        return {"problems": listed, "skipped": [{"op": "c", "reason": "", "where": "@f 3:1 c"}]}

    found = problems_over(texts, read)
    assert [one["op"] for one in found["skipped"]].count("c") == 1
    assert [one["reason"] for one in found["skipped"] if one["op"] == "b"] == [
        "changes m and n with rows; give rows exact sizes"
    ]
    rest = [one for one in found["skipped"] if one["op"] == "a"]
    wanted = {problem(rows) for rows in within}
    starts, by = slope * within[0] + offset, slope * within.step
    if slope and (slope < 0 or starts % by):
        assert len(rest) == 2 and not found["problems"], found
        return
    (one,) = found["problems"]
    assert not rest and (one["count"], one["where"]) == (2, ["@f 1:1 a"] * 2)
    made = parse_any(one["problem"])
    if isinstance(made, ProblemRange):
        assert {str(made.at(rows)) for rows in made.sizes} == wanted
    else:
        assert {str(made)} == wanted


@pytest.mark.parametrize(("texts", "message"), [
    (["batch"], r"dim='batch': give NAME=SIZE"), (["batch=0"], r"dim='batch=0': give NAME=SIZE"),
    (["a=1", "b,a=2"], r"dim='b,a=2': a has a size already"),
    (["a=1..4", "b=1..4"], r"a has a range already; dims that share it are written a,b="),
    (["a=4..4"], r"dim='a=4..4' holds no two sizes"),
    (["a=1..4:0"], r"dim='a=1..4:0' holds no two sizes"),
])  # fmt: skip
def test_what_is_no_dim_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(DimError, match=message):
        parse_dims(texts)
    with pytest.raises(DimError, match="a has a range; give one size"):
        exact_dims(["a=1..4"])
