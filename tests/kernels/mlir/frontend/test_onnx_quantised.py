"""Quantised ops of ONNX: found as problems of integers, and compiled to what they compute."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cases import some
from tests.kernels.mlir.frontend.running import results_of
from tilewise.kernels.errors import ModuleError
from tilewise.kernels.mlir.frontend.read import as_module, read_module, read_program

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
onnx: Any = pytest.importorskip("onnx", reason="onnx is not installed")
make, types = onnx.helper, onnx.TensorProto
full = pytest.mark.full
Array = NDArray[Any]
CODE_TYPES = {"i8": types.INT8, "u8": types.UINT8, "i4": types.INT4, "u4": types.UINT4}
LIMITS = {"i8": (-128, 128), "u8": (0, 256), "i4": (-8, 8), "u4": (0, 16)}


def model(
    nodes: list[Any], x: tuple[int, ...], y: tuple[int, ...], weights: dict[str, Any], **given: Any
) -> bytes:
    kinds = given.get("x_type", types.FLOAT), given.get("y_type", types.FLOAT)
    values = [make.make_tensor_value_info(name, kind, list(shape))
              for name, kind, shape in zip("xy", kinds, (x, y), strict=True)]  # fmt: skip
    tensors = [onnx.numpy_helper.from_array(one, name) if isinstance(one, np.ndarray) else one
               for name, one in weights.items()]  # fmt: skip
    graph = make.make_graph(nodes, "net", values[:1], values[1:], tensors)
    sets = [make.make_opsetid("", given.get("opset", 21)), make.make_opsetid("com.microsoft", 1)]
    return bytes(make.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString())


def problems(source: bytes) -> list[str]:
    return [one.problem for one in read_module(source).occurrences]


def computed(source: bytes, x: Array) -> Array:
    """The result of a model as IREE compiles it."""
    return results_of(as_module(source), x)[0]


def pairs(codes: Array, bits: int) -> Array:
    """Codes as ONNX packs them along the last axis."""
    if bits == 8:
        return codes.astype(np.uint8)
    even = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, codes.shape[-1] % 2)])
    return (even[..., 0::2] | (even[..., 1::2] << 4)).astype(np.uint8)


def of_bits(
    *, k: int = 64, n: int = 32, bits: int = 4, block: int = 32, zeros: str = "", m: int = 4
) -> tuple[bytes, Array]:
    """A MatMulNBits, and its dequantised weights in f64."""
    rng, blocks, most = np.random.default_rng(k + n + bits), -(-k // block), 1 << bits
    codes = rng.integers(0, most, (n, blocks * block))
    scales = rng.uniform(0.1, 1, (n, blocks)).astype(np.float32)
    points = np.full((n, blocks), most // 2)
    weights = {"b": pairs(codes, bits).reshape(n, blocks, -1), "s": scales.reshape(-1)}
    if zeros:
        points = rng.integers(0, most, (n, blocks))
        packed = pairs(points, bits) if zeros == "packed" else points.astype(np.float32)
        weights["z"] = packed.reshape(-1) + np.float32(zeros == "fractions") / 2
        weights["z"] = weights["z"].astype(packed.dtype)
    if zeros == "indices":
        del weights["z"]
        weights["g"] = (np.arange(k)[::-1] // block).astype(np.int32)
    inputs = ["x", "b", "s", *(["", "g"] if "g" in weights else ["z"] if zeros else [])]
    node = make.make_node("MatMulNBits", inputs, ["y"], domain="com.microsoft", K=k, N=n,
                          bits=bits, block_size=block)  # fmt: skip
    dequantised = (codes - points.repeat(block, 1)) * scales.astype(np.float64).repeat(block, 1)
    return model([node], (m, k), (m, n), weights), dequantised[:, :k]


@full
@pytest.mark.parametrize(("given", "keys"), [
    ({"zeros": "packed", "k": 99, "n": 31},
     "n=31,k=99,dtype=f32,b=i4,group=32,scale=f32,zero_b=u4"),
    ({"bits": 8}, "n=32,k=64,dtype=f32,b=i8,group=32,scale=f32"),
    ({}, "n=32,k=64,dtype=f32,b=i4,group=32,scale=f32"),
    ({"bits": 8, "zeros": "packed", "block": 16, "m": 1},
     "n=32,k=64,dtype=f32,b=i8,group=16,scale=f32,zero_b=u8"),
    ({"zeros": "floats", "block": 128, "k": 300},
     "n=32,k=300,dtype=f32,b=i4,group=128,scale=f32,zero_b=u4"),
    ({"zeros": "packed", "block": 64}, "n=32,k=64,dtype=f32,b=i4,group=k,scale=f32,zero_b=u4"),
])  # fmt: skip
def test_products_of_bits_are_problems_and_compile(given: dict[str, Any], keys: str) -> None:
    source, weights = of_bits(**given)
    rows = given.get("m", 4)
    assert problems(source) == [f"matmul:m={rows},{keys},transpose_b,weights=constant"]
    x = np.random.default_rng(1).standard_normal((rows, weights.shape[1]), np.float32)
    tolerance = 1e-6 * (abs(x) @ abs(weights.T))
    assert np.all(abs(computed(source, x) - x @ weights.T) <= tolerance)


def contributed(op: str, opset: int = 21, domain: str = "com.microsoft", **given: Any) -> bytes:
    """A node that reads `x` and weights [5, 9]."""
    node = make.make_node(op, ["x", "w"][: 1 + (op != "Swish")], ["y"], domain=domain, **given)
    weights = {"w": np.arange(45, dtype=np.float32).reshape(5, 9)}
    return model([node], (2, 4, 9), (2, 4, 5) if domain else (2, 4, 9), weights, opset=opset)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_multiples_of_products_and_swish_are_what_they_compute(alpha: float) -> None:
    x = np.random.default_rng(6).standard_normal((2, 4, 9), np.float32)
    product = x @ np.arange(45, dtype=np.float32).reshape(5, 9).T
    found = computed(contributed("FusedMatMul", transB=1, alpha=alpha), x)
    np.testing.assert_allclose(found, alpha * product, rtol=1e-5, atol=1e-4)
    found = computed(contributed("Swish", 24, "", alpha=alpha), x)
    np.testing.assert_allclose(found, x / (1 + np.exp(-alpha * x)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("op", "given", "why"), [
    ("MatMulNBits", {"zeros": "fractions"}, "MatMulNBits y: its zero points are no whole numbers"),
    ("MatMulNBits", {"zeros": "indices"}, "MatMulNBits y: g_idx puts the elements"),
    ("MatMulNBits", {"bits": 2}, "MatMulNBits y: bits=2; 4 and 8 are known"),
    ("FusedMatMul", {"transBatchB": 1}, "FusedMatMul y: transBatchA and transBatchB are not"),
    ("Attention", {"num_heads": 3}, "Attention y: the operator of com.microsoft is not known"),
    ("QuickGelu", {}, "IREE has no form of ONNX QuickGelu in this operator set"),
])  # fmt: skip
def test_contributed_operators_are_refused_with_the_reason(op, given, why) -> None:
    with pytest.raises(ModuleError, match=why):
        read_module(of_bits(**given)[0] if op == "MatMulNBits" else contributed(op, **given))


def test_networks_have_the_dequantised_weights() -> None:
    source, weights = of_bits(zeros="packed", k=99, n=31)
    (found,) = read_program(as_module(source)).weights.values()
    assert np.array_equal(found, weights.astype(np.float32))


def dequantised(kind: str, axis: int | None, block: int) -> tuple[bytes, Array]:
    """A product with a DequantizeLinear of weights [k, n], and these weights in f64."""
    rng, (k, n), (least, most) = np.random.default_rng(2), (48, 30), LIMITS[kind]
    codes = rng.integers(least, most, (k, n))
    shape = {None: (1,) if kind == "i4" else (), 0: (k,), 1: (n,)}[axis]
    if block:
        shape = (-(-k // block), n) if axis == 0 else (k, -(-n // block))
    points = np.asarray(rng.integers(1, most, shape))
    scales = np.asarray(rng.uniform(0.1, 1, shape), np.float32)
    raw = {name: pairs((one & 15 if kind.endswith("4") else one & 255).reshape(-1),
                       int(kind[1:])).tobytes()
           for name, one in (("w", codes), ("z", points))}  # fmt: skip
    weights = {
        "w": make.make_tensor("w", CODE_TYPES[kind], (k, n), raw["w"], raw=True),
        "z": make.make_tensor("z", CODE_TYPES[kind], shape, raw["z"], raw=True),
        "s": scales,
    }
    given = {} if axis is None else {"axis": axis} | ({"block_size": block} if block else {})
    nodes = [make.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], **given),
             make.make_node("MatMul", ["x", "d"], ["y"])]  # fmt: skip

    def whole(array: Array) -> Array:
        if block:
            return array.repeat(block, axis)[:k, :n]
        return array.reshape((-1, 1)) if axis == 0 else array

    wide = (codes - whole(points)) * whole(scales.astype(np.float64))
    return model(nodes, (5, k), (5, n), weights), wide


PLACES = ((0, 32, "32"), (1, 0, "k"), (None, 0, "k"), (1, 15, ""), (0, 0, ""))
# Each type with half of the places, each place with a signed type and an unsigned one.
DEQUANTISED = [*product(("u4", "i8", "i4", "u8"), PLACES)][::2]


@pytest.mark.parametrize(("kind", "place"), some(DEQUANTISED, of=20, all_of=2))
def test_dequantised_weights_are_problems_and_compile(kind, place) -> None:
    axis, block, group = place
    source, weights = dequantised(kind, axis, block)
    keys = f",b=i{kind[1]},group={group},scale=f32,zero_b=u{kind[1]}" if group else ""
    assert problems(source) == [f"matmul:m=5,n=30,k=48,dtype=f32{keys},weights=constant"]
    x = np.random.default_rng(1).standard_normal((5, 48), np.float32)
    tolerance = 1e-6 * (abs(x) @ abs(weights))
    assert np.all(abs(computed(source, x) - x @ weights) <= tolerance)


def test_codes_that_are_one_number_are_bytes() -> None:
    weights = {"w": make.make_tensor("w", types.UINT4, (6, 20), b"\x55" * 60, raw=True),
               "s": np.linspace(0.1, 1, 6, dtype=np.float32)}  # fmt: skip
    nodes = [make.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0),
             make.make_node("Gemm", ["x", "d"], ["y"], transB=1)]  # fmt: skip
    (found,) = problems(model(nodes, (3, 20), (3, 6), weights))
    assert found.endswith(",b=i8,group=k,scale=f32,zero_b=u8,transpose_b,weights=constant")


def around(op: str, *, channels: bool, points: bool = False) -> bytes:
    """A product or a convolution between pairs of QuantizeLinear and DequantizeLinear."""
    rng, is_image = np.random.default_rng(3), op == "Conv"
    shape, x, y = ((20, 5, 3, 3), (1, 5, 9, 9), (1, 20, 9, 9)) if is_image else (
        (64, 32), (4, 64), (4, 32))  # fmt: skip
    count = 20 if is_image else 32
    of_channels = (count,) if channels else ()
    weights = {
        "w": rng.integers(-128, 128, shape).astype(np.int8),
        "sw": np.asarray(rng.uniform(0.01, 0.1, of_channels), np.float32),
        "zw": np.asarray(rng.integers(-9, 9, of_channels) * points, np.int8),
        "sx": np.array(0.02, np.float32), "zx": np.array(3, np.uint8),
        "bias": rng.standard_normal(count, np.float32),
    }  # fmt: skip
    given = {"axis": 0 if is_image else 1} if channels else {}
    nodes = [
        make.make_node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
        make.make_node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
        make.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wd"], **given),
        make.make_node(op, ["xd", "wd"] + ["bias"] * (op != "MatMul"), ["r"],
                       **({"pads": [1, 1, 1, 1]} if is_image else {})),
        make.make_node("QuantizeLinear", ["r", "sx", "zx"], ["rq"]),
        make.make_node("DequantizeLinear", ["rq", "sx", "zx"], ["y"]),
    ]  # fmt: skip
    return model(nodes, x, y, weights, opset=17)


PRODUCT = "matmul:m=4,n=32,k=64,dtype="
CONVOLUTION = "conv2d:n=1,h=9,w=9,ci=5,co=20,kh=3,kw=3,pad=1,layout=nchw_fchw,dtype="


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize(("op", "begin"), [("MatMul", PRODUCT), ("Gemm", PRODUCT),
                                           ("Conv", CONVOLUTION)])  # fmt: skip
def test_ops_between_pairs_multiply_bytes(op: str, begin: str, channels: bool) -> None:
    assert problems(around(op, channels=channels)) == [f"{begin}u8,b=i8,zero=a,weights=constant"]


def test_a_zero_point_of_each_channel_needs_weights_of_few_bits_or_floats() -> None:
    found = problems(around("MatMul", channels=True, points=True))
    assert found == [f"{PRODUCT}f32,b=i8,group=k,scale=f32,zero_b=u8,weights=constant"]
    found = problems(around("Conv", channels=True, points=True))
    assert found == [f"{CONVOLUTION}f32,bias,weights=constant"]
    found = problems(around("MatMul", channels=False, points=True))
    assert found == [f"{PRODUCT}u8,b=i8,zero=ab,weights=constant"]


@pytest.mark.parametrize(("za", "zb", "zero"), [
    ("za", "", "a"), ("", "zb", "b"), ("za", "zb", "ab"), ("za", "several", ""),
])  # fmt: skip
def test_integer_products_have_zero_points(za: str, zb: str, zero: str) -> None:
    codes = np.random.default_rng(4).integers(-128, 128, (64, 32)).astype(np.int8)
    weights = {"w": codes, "za": np.array(200, np.uint8), "zb": np.array(-3, np.int8),
               "several": np.arange(32, dtype=np.int8)}  # fmt: skip
    node = make.make_node("MatMulInteger", ["x", "w", za, zb], ["y"])
    source = model([node], (4, 64), (4, 32), weights, opset=17, x_type=types.UINT8,
                   y_type=types.INT32)  # fmt: skip
    assert problems(source) == [f"{PRODUCT}u8,b=i8,zero={zero},weights=constant"] * bool(zero)
    assert [one.reason for one in read_module(source).skipped] == [
        "multiplies bytes, and the second input has several zero points"
    ] * (not zero)


@pytest.mark.parametrize(("axes", "given", "sizes"), [
    (2, {"pads": [1, 1, 1, 1]}, "h=9,w=9,ci=5,co=20,kh=3,kw=3,pad=1"),
    (2, {"pads": [0, 0, 2, 2]}, "h=11,w=11,ci=5,co=20,kh=3,kw=3"),
    (1, {"pads": [1, 1]}, "h=1,w=9,ci=5,co=20,kh=1,kw=3,pad=0x1"),
    (1, {"auto_pad": "SAME_UPPER", "strides": [7]}, "h=1,w=10,ci=5,co=20,kh=1,kw=3,stride=7"),
])  # fmt: skip
def test_quantised_convolutions_are_padded_with_their_zero_point(axes, given, sizes) -> None:
    weights = {"w": np.ones((20, 5, *[3] * axes), np.int8), "s": np.array(0.1, np.float32),
               "zx": np.array(121, np.uint8), "zw": np.array(0, np.int8)}  # fmt: skip
    inputs = ["x", "s", "zx", "w", "s", "zw", "s", "zx"]
    node = make.make_node("QLinearConv", inputs, ["y"], **given)
    source = model([node], (1, 5, *[9] * axes), (1, 20, *[None] * axes), weights, opset=17,
                   x_type=types.UINT8, y_type=types.UINT8)  # fmt: skip
    assert problems(source) == [
        f"conv2d:n=1,{sizes},layout=nchw_fchw,dtype=i8,zero=a,weights=constant"
    ]
