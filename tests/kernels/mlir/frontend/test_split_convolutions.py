"""Convolutions that are split: transposed ones by phase, those of volumes by taps of the depth."""

from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.cases import some
from tests.kernels.mlir.frontend.running import results_of
from tests.kernels.mlir.frontend.test_dialects import in_torch
from tilewise.kernels.mlir.frontend.read import as_module, read_module, read_outline
from tilewise.kernels.mlir.network.pack import pack_module

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
onnx: Any = pytest.importorskip("onnx", reason="onnx is not installed")

Shape = tuple[int, ...]
UNET = ("ConvTranspose", (1, 8, 5, 7), (8, 6, 2, 2), {"strides": [2, 2]})
VOLUME = ("Conv", (1, 3, 5, 6, 7), (4, 3, 3, 3, 3), {"pads": [1] * 6})


def model(
    op: str, x: Shape, w: Shape, given: dict[str, Any], *, has_bias: bool = False,
    is_constant: bool = True, times: int = 1,
) -> tuple[bytes, dict[str, Any]]:  # fmt: skip
    """Return a model of one node, or of several in a row, and its random arguments."""
    rng, make = np.random.default_rng(7), onnx.helper
    shapes = {"x": x, "w": w}
    if has_bias:
        channels = w[0] if op == "Conv" else w[1] * given.get("group", 1)
        shapes["b"] = (channels,)
    arrays = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    held = [name for name in arrays if name == "b" or (name == "w" and is_constant)]
    names = ["x", *"pqrs"[: times - 1], "y"]
    nodes = [make.make_node(op, [one, *list(arrays)[1:]], [to], **given)
             for one, to in pairwise(names)]  # fmt: skip
    values = [make.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()
              if name not in held]  # fmt: skip
    result = make.make_tensor_value_info("y", 1, list("abcde")[: len(x)])
    weights = [onnx.numpy_helper.from_array(arrays.pop(name), name) for name in held]
    graph = make.make_graph(nodes, "main", values, [result], weights)
    sets = [make.make_opsetid("", 17)]
    made = make.make_model(graph, opset_imports=sets, ir_version=8).SerializeToString()
    return made, arrays


def problems(module: bytes) -> list[str]:
    found = read_module(module)
    assert not found.skipped
    return [one.problem for one in found.occurrences]


FIRST = "layout=nchw_fchw,dtype=f32"
OF_VOLUME = f"conv2d:n=5,h=6,w=7,ci=3,co=4,kh=3,kw=3,pad=1,{FIRST}"


@pytest.mark.parametrize(("case", "expected"), [
    (UNET, [f"n=1,h=5,w=7,ci=8,co=24,kh=1,kw=1,{FIRST}"]),
    (("ConvTranspose", (1, 3, 4, 6), (3, 5, 4, 4), {"strides": [2, 2], "pads": [1] * 4}),
     [f"n=1,h=4,w=6,ci=3,co=20,kh=2,kw=2,pad=1,{FIRST}"]),
    (("ConvTranspose", (1, 3, 9), (3, 4, 5), {"strides": [3], "pads": [2, 2],
                                              "output_padding": [1]}),
     [f"n=1,h=1,w=9,ci=3,co=4,kh=1,kw=1,{FIRST}",
      f"n=1,h=1,w=9,ci=3,co=8,kh=1,kw=2,pad=0x0x0x1,{FIRST}"]),
    (("ConvTranspose", (1, 3, 4, 6), (3, 1, 4, 4),
      {"strides": [2, 2], "pads": [1] * 4, "group": 3}),
     [f"n=1,h=4,w=6,ci=3,co=12,kh=2,kw=2,pad=1,groups=3,{FIRST}"]),
    (("ConvTranspose", (1, 4, 9), (4, 1, 4), {"strides": [2], "pads": [1, 1], "group": 4}),
     [f"n=1,h=1,w=9,ci=4,co=8,kh=1,kw=2,pad=0x1,groups=4,{FIRST}"]),
    (("Conv", (2, 3, 7, 6, 9), (4, 3, 2, 3, 3), {"dilations": [2, 2, 2]}),
     [f"n=10,h=6,w=9,ci=3,co=4,kh=3,kw=3,dilation=2,{FIRST}{more}"
      for more in ("", ",init=accumulate")]),
])  # fmt: skip
def test_problems_have_no_inserted_zeros_and_one_tap_of_the_depth(case, expected) -> None:
    module, _ = model(*case)
    assert problems(module) == [f"conv2d:{one},weights=constant" for one in expected]


@pytest.mark.parametrize(("case", "count"), [
    (("ConvTranspose", (1, 3, 4, 6), (3, 3, 2, 2), {"strides": [2, 2]}), 3),
    (("Conv", (1, 3, 5, 6, 7), (3, 3, 3, 3, 3), {"pads": [1] * 6}), 9),
])  # fmt: skip
def test_convolutions_in_a_row_are_split(case, count: int) -> None:
    assert len(problems(model(*case, times=3)[0])) == count


def test_the_first_tap_of_the_depth_starts_from_the_bias() -> None:
    module, _ = model(*VOLUME, has_bias=True, is_constant=False)
    rest = f"{OF_VOLUME},init=accumulate"
    assert problems(module) == [f"{OF_VOLUME},bias", rest, rest]


def random_case(rng: Random) -> tuple[str, Shape, Shape, dict[str, Any]]:
    """A transposed convolution of one axis or two, or a convolution of volumes."""
    if rng.random() < 0.3:
        w = (rng.randint(2, 5), rng.randint(1, 5), *(rng.randint(2, 3) for _ in range(3)))
        given = {"strides": [rng.randint(1, 3)] * 3, "dilations": [rng.choice([1, 1, 2])] * 3,
                 "pads": [rng.randint(0, 2), rng.randint(0, 2), 1] * 2}  # fmt: skip
        return "Conv", (rng.choice([1, 2]), w[1], *(rng.randint(5, 8) for _ in range(3))), w, given
    axes, groups = rng.choice([1, 2, 2]), rng.choice([1, 1, 2, 3])
    steps = [rng.randint(1, 4) for _ in range(axes)]
    steps[0] = max(steps[0], 2)
    taps = [rng.randint(step, 5) for step in steps]
    inputs = groups * rng.randint(1, 3)
    given = {"strides": steps, "group": groups, "pads": [rng.randrange(tap) for tap in taps] * 2,
             "output_padding": [rng.randrange(step) for step in steps]}  # fmt: skip
    x = (rng.choice([1, 2]), inputs, *(rng.randint(4, 7) for _ in range(axes)))
    return "ConvTranspose", x, (inputs, rng.randint(1, 3), *taps), given


@pytest.mark.parametrize("seed", some([(seed,) for seed in range(40)], of=13))
def test_random_convolutions_have_the_numbers_of_onnx_runtime(seed: int) -> None:
    runtime: Any = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    rng = Random(seed)
    module, arrays = model(*random_case(rng), has_bias=rng.random() < 0.5,
                           is_constant=seed % 2 == 0)  # fmt: skip
    session = runtime.InferenceSession(module, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, arrays)
    (found,) = results_of(as_module(module, splits=True), *arrays.values())
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


STABLEHLO = """
func.func @main(%x: tensor<{x}xf32>, %w: tensor<{w}xf32>) -> tensor<{y}xf32> {{
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, {d}, f]x[{d}, i, o]->[b, {d}, f],
    window = {{{window}}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
    : (tensor<{x}xf32>, tensor<{w}xf32>) -> tensor<{y}xf32>
  return %0 : tensor<{y}xf32>
}}"""
SPREAD = "stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [2, 2], rhs_dilate = [1, 1]"
TOSA = """
func.func @main(%x: tensor<1x5x7x6xf32>, %w: tensor<4x2x2x6xf32>, %b: tensor<4xf32>)
    -> tensor<1x10x14x4xf32> {
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %0 = "tosa.transpose_conv2d"(%x, %w, %b, %z, %z) <{acc_type = f32,
    out_pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>}>
    : (tensor<1x5x7x6xf32>, tensor<4x2x2x6xf32>, tensor<4xf32>, tensor<1xf32>, tensor<1xf32>)
    -> tensor<1x10x14x4xf32>
  return %0 : tensor<1x10x14x4xf32>
}"""
LINALG = """
func.func @main(%x: tensor<1x5x7x6xf32>, %w: tensor<4x2x2x6xf32>) -> tensor<1x10x14x4xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x9x13x6xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<1x9x13x6xf32>) -> tensor<1x9x13x6xf32>
  %s = tensor.insert_slice %x into %f[0, 0, 0, 0] [1, 5, 7, 6] [1, 2, 2, 1]
    : tensor<1x5x7x6xf32> into tensor<1x9x13x6xf32>
  %p = tensor.pad %s low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %z : f32
  } : tensor<1x9x13x6xf32> to tensor<1x11x15x6xf32>
  %o = tensor.empty() : tensor<1x10x14x4xf32>
  %i = linalg.fill ins(%z : f32) outs(%o : tensor<1x10x14x4xf32>) -> tensor<1x10x14x4xf32>
  %r = linalg.conv_2d_nhwc_fhwc {dilations = dense<1> : tensor<2xi64>,
    strides = dense<1> : tensor<2xi64>} ins(%p, %w : tensor<1x11x15x6xf32>, tensor<4x2x2x6xf32>)
    outs(%i : tensor<1x10x14x4xf32>) -> tensor<1x10x14x4xf32>
  return %r : tensor<1x10x14x4xf32>
}"""
PIXELS = ["conv2d:n=1,h=5,w=7,ci=6,co=16,kh=1,kw=1,dtype=f32"]
OTHERS = {
    "stablehlo": (STABLEHLO.format(x="1x5x7x6", w="2x2x6x4", y="1x10x14x4", d="0, 1",
                                   window=SPREAD), PIXELS),
    "tosa": (TOSA, PIXELS),
    "linalg": (LINALG, PIXELS),
    "torch": (in_torch("1,6,5,7", "6,4,4,4", "1,4,10,14", 2, flag="true"),
              [f"conv2d:n=1,h=5,w=7,ci=6,co=16,kh=2,kw=2,pad=1,{FIRST}"]),
    "volumes of torch": (in_torch("1,3,5,6,7", "4,3,3,3,3", "1,4,5,6,7", 1, flag="false"),
                         [OF_VOLUME, *[f"{OF_VOLUME},init=accumulate"] * 2]),
    "volumes of stablehlo": (
        STABLEHLO.format(x="1x5x6x7x3", w="3x3x3x3x4", y="1x5x6x7x4", d="0, 1, 2",
                         window="stride = [1, 1, 1], pad = [[1, 1], [1, 1], [1, 1]]"),
        [one.replace("layout=nchw_fchw,", "")
         for one in (OF_VOLUME, *[f"{OF_VOLUME},init=accumulate"] * 2)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_spellings_are_split_for_iree_as_well(name: str) -> None:
    text, expected = OTHERS[name]
    split = as_module(text.encode(), splits=True)
    assert (split != text.encode()) == (name != "tosa"), "IREE's pipeline splits those of TOSA"
    assert problems(text.encode()) == problems(split) == expected


@pytest.mark.parametrize("text", [
    in_torch("1,3,5,7", "4,3,3,3", "1,4,5,7", 1, flag="false"),
    # fewer taps than phases
    STABLEHLO.format(x="1x5x7x6", w="1x1x6x4", y="1x11x15x4", d="0, 1", window=SPREAD),
    """func.func @f(%x: tensor<5x7xf32>, %w: tensor<2x2xf32>, %i: tensor<8x12xf32>) {
  %f = arith.constant dense<0.0> : tensor<9x13xf32>
  %s = tensor.insert_slice %x into %f[0, 0] [5, 7] [2, 2] : tensor<5x7xf32> into tensor<9x13xf32>
  linalg.conv_2d ins(%s, %w : tensor<9x13xf32>, tensor<2x2xf32>) outs(%i : tensor<8x12xf32>)
    -> tensor<8x12xf32>
  return
}""",
], ids=["torch", "one tap", "no channels"])  # fmt: skip
def test_other_modules_stay_as_they_are(text: str) -> None:
    assert as_module(text.encode(), splits=True) == text.encode()


def test_groups_of_volumes_are_skipped_with_the_reason() -> None:
    module, _ = model("Conv", (1, 3, 5, 6, 7), (6, 1, 3, 3, 3), {"group": 3})
    (skipped,) = read_module(module).skipped
    assert "convolves 3 dimensions; conv2d has two" in skipped.reason


def test_networks_run_every_part_of_unets() -> None:
    outline = read_outline(model(*UNET)[0])
    assert [one.refused for one in (outline, *outline.actions) if one.refused] == []


def test_packs_are_of_the_whole_convolution() -> None:
    """Ops that read parts of one tensor cannot be packed by one script."""
    module, _ = model("Conv", (1, 16, 4, 6, 5), (32, 16, 3, 3, 3), {"pads": [1] * 6})
    assert "tensor<1x16x6x8x7xf32>" in pack_module(module).payload
