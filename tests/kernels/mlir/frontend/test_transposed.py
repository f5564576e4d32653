"""Transposed convolutions are split by phase: no product with an inserted zero, same numbers."""

from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cases import some
from tests.kernels.mlir.frontend.running import random_arrays, results_of
from tilewise.kernels.mlir.frontend.read import as_module, read_module, read_outline
from tilewise.kernels.problem import parse_problem

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A transposed convolution of torch; sides have numbers for rows and columns."""

    ci: int
    co: int
    sides: tuple[int, ...]
    taps: tuple[int, ...]
    steps: tuple[int, ...]
    pads: tuple[int, ...] = (0, 0)
    more: tuple[int, ...] = (0, 0)
    groups: int = 1
    dilation: int = 1
    has_bias: bool = False
    images: int = 1

    @property
    def result(self) -> tuple[int, ...]:
        axes = zip(self.sides, self.taps, self.steps, self.pads, self.more, strict=True)
        return self.images, self.co, *(
            (size - 1) * step - 2 * pad + self.dilation * (taps - 1) + more + 1
            for size, taps, step, pad, more in axes
        )  # fmt: skip

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"x": (self.images, self.ci, *self.sides),
                "w": (self.ci, self.co // self.groups, *self.taps),
                **({"b": (self.co,)} if self.has_bias else {})}  # fmt: skip

    def in_torch(self, weights: Array | None = None) -> bytes:
        """Return the module; the filter is an argument unless it is given."""
        kinds = {name: tensor(shape) for name, shape in self.shapes.items()}
        held = "" if weights is None else (
            f'%w = torch.vtensor.literal(dense<"0x{weights.tobytes().hex()}"> : '
            f"tensor<{'x'.join(map(str, weights.shape))}xf32>) : {kinds['w']}")  # fmt: skip
        given = ", ".join(f"%{name}: {kind}" for name, kind in kinds.items()
                          if weights is None or name != "w")  # fmt: skip
        lists, lines = dict[str, str](), list[str]()
        of = {"s": self.steps, "p": self.pads, "m": self.more,
              "d": (self.dilation,) * len(self.sides)}  # fmt: skip
        for name, values in of.items():
            names = [f"%{name}{i}" for i in range(len(values))]
            lines += [f"{one} = torch.constant.int {value}"
                      for one, value in zip(names, values, strict=True)]  # fmt: skip
            lists[name] = f"%{name}"
            ints = ", ".join(["!torch.int"] * len(names))
            lines.append(f"%{name} = torch.prim.ListConstruct {', '.join(names)} : ({ints})"
                         " -> !torch.list<int>")  # fmt: skip
        bias, kind = ("%b", kinds["b"]) if self.has_bias else ("%none", "!torch.none")
        ints = "!torch.list<int>"
        body = "\n  ".join(lines)
        return f"""func.func @main({given}) -> {tensor(self.result)} {{
  {held}
  %none = torch.constant.none
  %t = torch.constant.bool true
  %g = torch.constant.int {self.groups}
  {body}
  %y = torch.aten.convolution %x, %w, {bias}, %s, %p, %d, %t, %m, %g : {kinds["x"]}, {kinds["w"]}, \
{kind}, {ints}, {ints}, {ints}, !torch.bool, {ints}, !torch.int -> {tensor(self.result)}
  return %y : {tensor(self.result)}
}}""".encode()

    def defined(self, arrays: dict[str, Array]) -> Array:
        """Return the result in f64: each pixel adds the filter, times itself, to the outputs."""
        x, w = (arrays[name].astype(np.float64) for name in "xw")
        reach = [self.dilation * (taps - 1) + 1 for taps in self.taps]
        whole = [(size - 1) * step + far + more for size, step, far, more
                 in zip(self.sides, self.steps, reach, self.more, strict=True)]  # fmt: skip
        made = np.zeros((self.images, self.co, *whole))
        ci, co = self.ci // self.groups, self.co // self.groups
        for tap in np.ndindex(*self.taps):
            at = tuple(
                slice(self.dilation * t, self.dilation * t + step * (size - 1) + 1, step)
                for t, step, size in zip(tap, self.steps, self.sides, strict=True)
            )
            for g in range(self.groups):
                products = np.einsum("nc...,cf->nf...", x[:, g * ci : (g + 1) * ci],
                                     w[(g * ci) : (g + 1) * ci, :, *tap])  # fmt: skip
                made[:, g * co : (g + 1) * co, *at] += products
        cut = tuple(slice(pad, size - pad) for pad, size in zip(self.pads, whole, strict=True))
        made = made[:, :, *cut]
        if self.has_bias:
            made += arrays["b"].reshape(-1, *[1] * len(self.sides))
        return made


def tensor(shape: tuple[int, ...]) -> str:
    return f"!torch.vtensor<[{','.join(map(str, shape))}],f32>"


def arrays_of(case: Case) -> dict[str, Array]:
    return random_arrays(case.shapes, 7)


UNET = Case(8, 6, (5, 7), (2, 2), (2, 2))
CASES = {
    "as many taps as steps": UNET,
    "twice as many": Case(3, 5, (4, 6), (4, 4), (2, 2), (1, 1), has_bias=True),
    "three taps, two steps": Case(3, 4, (5, 7), (3, 3), (2, 2), (1, 1), (1, 1), images=2),
    "rows alone": Case(3, 4, (5, 7), (4, 3), (2, 1), (1, 1), has_bias=True),
    "one axis": Case(3, 4, (9,), (5,), (3,), (2,), (1,)),
    "depthwise": Case(3, 3, (4, 6), (4, 4), (2, 2), (1, 1), groups=3, has_bias=True),
    "depthwise, three taps": Case(3, 3, (5, 7), (3, 3), (2, 2), (1, 1), (1, 1), groups=3),
    "groups": Case(4, 6, (4, 5), (5, 3), (2, 2), (1, 0), groups=2),
}


def products(case: Case) -> int:
    """Count the multiplications of pixels, none of an inserted zero, by filter taps."""
    return case.images * prod(case.sides) * prod(case.taps) * case.ci * case.co // case.groups


@pytest.mark.parametrize("name", CASES)
def test_the_problems_multiply_no_inserted_zeros(name: str) -> None:
    case = CASES[name]
    found = read_module(case.in_torch())
    assert not found.skipped
    problems = [parse_problem(one.problem) for one in found.occurrences]
    padded = [replaced for replaced in problems if replaced.is_padded]
    assert all(problem.strides == (1, 1) for problem in problems)
    if not padded and not any(case.pads):
        assert sum(problem.flops for problem in problems) == 2 * products(case)
    inserted = [(size - 1) * step + 1 for size, step in zip(case.sides, case.steps, strict=True)]
    direct = 2 * prod(case.result) * prod(case.taps) * case.ci // case.groups
    assert sum(problem.flops for problem in problems) < direct
    assert all(max(problem.operand_shapes["A"][2:]) <= max(inserted) for problem in problems)


def test_one_product_of_pixels_and_taps_is_left_of_unets() -> None:
    (found,) = read_module(UNET.in_torch(arrays_of(UNET)["w"])).occurrences
    assert found.problem == (
        "conv2d:n=1,h=5,w=7,ci=8,co=24,kh=1,kw=1,layout=nchw_fchw,dtype=f32,weights=constant"
    )


def test_depthwise_ones_are_one_convolution() -> None:
    case = CASES["depthwise"]
    (found,) = read_module(case.in_torch(arrays_of(case)["w"])).occurrences
    assert found.problem == ("conv2d:n=1,h=4,w=6,ci=3,co=12,kh=2,kw=2,pad=1,groups=3,"
                             "layout=nchw_fchw,dtype=f32,weights=constant")  # fmt: skip


def test_a_line_is_one_of_pixels() -> None:
    """torch-mlir has lines of one pixel for depthwise convolutions of one dimension."""
    case = Case(4, 4, (9,), (4,), (2,), (1,), (0,), groups=4)
    (found,) = read_module(case.in_torch()).occurrences
    assert found.problem == (
        "conv2d:n=1,h=1,w=9,ci=4,co=8,kh=1,kw=2,pad=0x1,groups=4,layout=nchw_fchw,dtype=f32"
    )


STABLEHLO = b"""
func.func @main(%x: tensor<1x5x7x6xf32>, %w: tensor<2x2x6x4xf32>) -> tensor<1x10x14x4xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [2, 2], rhs_dilate = [1, 1]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x5x7x6xf32>, tensor<2x2x6x4xf32>) -> tensor<1x10x14x4xf32>
  return %0 : tensor<1x10x14x4xf32>
}"""
TOSA = b"""
func.func @main(%x: tensor<1x5x7x6xf32>, %w: tensor<4x2x2x6xf32>, %b: tensor<4xf32>)
    -> tensor<1x10x14x4xf32> {
  %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %0 = "tosa.transpose_conv2d"(%x, %w, %b, %z, %z) <{acc_type = f32,
    out_pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 2, 2>}>
    : (tensor<1x5x7x6xf32>, tensor<4x2x2x6xf32>, tensor<4xf32>, tensor<1xf32>, tensor<1xf32>)
    -> tensor<1x10x14x4xf32>
  return %0 : tensor<1x10x14x4xf32>
}"""
LINALG = b"""
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


@pytest.mark.parametrize("module", [STABLEHLO, TOSA, LINALG], ids=["stablehlo", "tosa", "linalg"])
def test_other_spellings_are_one_convolution_of_pixels(module: bytes) -> None:
    found = read_module(module)
    assert [one.problem for one in found.occurrences] == [
        "conv2d:n=1,h=5,w=7,ci=6,co=16,kh=1,kw=1,dtype=f32"
    ]
    assert not found.skipped


def test_onnx_is_one_convolution_of_pixels() -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    make = onnx.helper
    values = [make.make_tensor_value_info(name, 1, shape) for name, shape in
              {"x": [1, 6, 5, 7], "w": [6, 4, 2, 2], "y": [1, 4, 10, 14]}.items()]  # fmt: skip
    node = make.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], auto_pad="SAME_UPPER")
    graph = make.make_graph([node], "main", values[:2], values[2:])
    sets = [make.make_opsetid("", 17)]
    model = make.make_model(graph, opset_imports=sets, ir_version=8).SerializeToString()
    assert [one.problem for one in read_module(model).occurrences] == [
        "conv2d:n=1,h=5,w=7,ci=6,co=16,kh=1,kw=1,layout=nchw_fchw,dtype=f32"
    ]


def check_in_iree(case: Case, *, has_constant_weights: bool) -> None:
    """Compile the split module, and compare with the definition."""
    arrays = arrays_of(case)
    module = case.in_torch(arrays["w"] if has_constant_weights else None)
    split = as_module(module, splits=True)
    assert split != module
    passed = [one for name, one in arrays.items() if not has_constant_weights or name != "w"]
    (found,) = results_of(split, *passed)
    np.testing.assert_allclose(found, case.defined(arrays), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "name", some(["rows alone", "as many taps as steps", "depthwise, three taps"], of=3)
)
def test_numbers_are_those_of_the_definition(name: str) -> None:
    check_in_iree(CASES[name], has_constant_weights=name == "as many taps as steps")


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_numbers_of_every_kind_are_those_of_the_definition(name: str) -> None:
    check_in_iree(CASES[name], has_constant_weights=True)


def random_case(rng: Random) -> Case:
    while True:
        axes = rng.choice([1, 2, 2, 2])
        groups = rng.choice([1, 1, 2, 3])
        steps = tuple(rng.randint(1, 4) for _ in range(axes))
        taps = tuple(rng.randint(step, 5) for step in steps)
        case = Case(
            groups * rng.randint(1, 3), groups * rng.randint(1, 3),
            tuple(rng.randint(2, 7) for _ in range(axes)), taps, steps,
            tuple(rng.randint(0, one - 1) for one in taps),
            tuple(rng.randint(0, one - 1) for one in steps),
            groups, has_bias=rng.random() < 0.5, images=rng.choice([1, 1, 2]),
        )  # fmt: skip
        if max(steps) > 1 and min(case.result) > 0 and case.ci % groups == case.co % groups == 0:
            return case


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_random_numbers_are_those_of_the_definition(seed: int) -> None:
    check_in_iree(random_case(Random(seed)), has_constant_weights=seed % 2 == 0)


def test_networks_run_every_part_of_unets() -> None:
    outline = read_outline(UNET.in_torch(arrays_of(UNET)["w"]))
    assert outline is not None
    assert [one.refused for one in outline.actions if one.refused] == []


@pytest.mark.parametrize(("taps", "dilation"), [(3, 2), (1, 1)])
def test_other_filters_stay_as_they_are(taps: int, dilation: int) -> None:
    module = Case(3, 4, (5, 7), (taps,) * 2, (2, 2), dilation=dilation).in_torch()
    assert as_module(module, splits=True) == module
    (found,) = read_module(module).occurrences
    problem = parse_problem(found.problem)
    assert problem.main_shapes["A"][2] > 2 * 5 - 2


def test_modules_without_them_stay_as_they_are() -> None:
    module = Case(3, 4, (5, 7), (3, 3), (1, 1)).in_torch().replace(b"bool true", b"bool false")
    module = module.replace(tensor((3, 4, 3, 3)).encode(), tensor((4, 3, 3, 3)).encode())
    module = module.replace(tensor((1, 4, 7, 9)).encode(), tensor((1, 4, 3, 5)).encode())
    assert as_module(module, splits=True) == module
