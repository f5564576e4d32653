"""Convolutions of volumes are sums of convolutions of images, and have the same numbers."""

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels.mlir.frontend.running import random_arrays, results_of
from tilewise.kernels.mlir.frontend.read import as_module, read_module
from tilewise.kernels.mlir.network.pack import pack_module
from tilewise.kernels.problem import parse_problem

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A convolution of volumes by a filter, both with three sides."""

    sides: tuple[int, int, int]
    taps: tuple[int, int, int]
    step: int = 1
    dilation: int = 1
    pads: tuple[int, int, int] = (0, 0, 0)
    ci: int = 3
    co: int = 4
    images: int = 1
    has_bias: bool = False
    is_last: bool = False

    @property
    def result(self) -> tuple[int, ...]:
        return self.shape(self.co, [
            (size + 2 * pad - self.dilation * (taps - 1) - 1) // self.step + 1
            for size, taps, pad in zip(self.sides, self.taps, self.pads, strict=True)
        ])  # fmt: skip

    def shape(self, channels: int, sides: Any) -> tuple[int, ...]:
        return ((self.images, *sides, channels) if self.is_last
                else (self.images, channels, *sides))  # fmt: skip

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        filters = (*self.taps, self.ci, self.co) if self.is_last else (self.co, self.ci, *self.taps)
        bias = {"b": (self.co,)} if self.has_bias else {}
        return {"x": self.shape(self.ci, self.sides), "w": filters, **bias}

    def in_linalg(self, weights: Array | None = None) -> bytes:
        """Return the module; the filter is an argument unless it is given."""
        kinds = {name: tensor(shape) for name, shape in self.shapes.items()}
        held = "" if weights is None else (
            f'%w = arith.constant dense<"0x{weights.tobytes().hex()}"> : {kinds["w"]}')  # fmt: skip
        given = ", ".join(f"%{name}: {kind}" for name, kind in kinds.items()
                          if weights is None or name != "w")  # fmt: skip
        pads = self.shape(0, self.pads)
        pads = (0, *pads[1:])
        padded = tensor(tuple(size + 2 * by for size, by in zip(self.shapes["x"], pads,
                                                                 strict=True)))  # fmt: skip
        op = "conv_3d_ndhwc_dhwcf" if self.is_last else "conv_3d_ncdhw_fcdhw"
        start = "linalg.fill ins(%z : f32)"
        if self.has_bias:
            start = f"linalg.broadcast ins(%b : {kinds['b']})"
        others = f" dimensions = {[0, 1, 2, 3] if self.is_last else [0, 2, 3, 4]}"
        kind = tensor(self.result)
        ending = others if self.has_bias else f" -> {kind}"
        return f"""func.func @main({given}) -> {kind} {{
  {held}
  %z = arith.constant 0.0 : f32
  %p = tensor.pad %x low{list(pads)} high{list(pads)} {{
  ^bb0(%i: index, %j: index, %k: index, %l: index, %m: index):
    tensor.yield %z : f32
  }} : {kinds["x"]} to {padded}
  %e = tensor.empty() : {kind}
  %f = {start} outs(%e : {kind}){ending}
  %y = linalg.{op} {{dilations = dense<{self.dilation}> : tensor<3xi64>,
    strides = dense<{self.step}> : tensor<3xi64>}} ins(%p, %w : {padded}, {kinds["w"]})
    outs(%f : {kind}) -> {kind}
  return %y : {kind}
}}""".encode()

    def defined(self, arrays: dict[str, Array]) -> Array:
        """Return the result in f64."""
        x, w = (arrays[name].astype(np.float64) for name in "xw")
        if self.is_last:
            x, w = x.transpose(0, 4, 1, 2, 3), w.transpose(4, 3, 0, 1, 2)
        x = np.pad(x, ((0, 0), (0, 0), *((by, by) for by in self.pads)))
        sides = self.result[1:4] if self.is_last else self.result[2:]
        made = np.zeros((self.images, self.co, *sides))
        for tap in np.ndindex(*self.taps):
            at = tuple(slice(self.dilation * t, self.dilation * t + self.step * (size - 1) + 1,
                             self.step) for t, size in zip(tap, sides, strict=True))  # fmt: skip
            made += np.einsum("ncdhw,fc->nfdhw", x[:, :, *at], w[:, :, *tap])
        made += arrays["b"].reshape(-1, 1, 1, 1) if self.has_bias else 0
        return made.transpose(0, 2, 3, 4, 1) if self.is_last else made


def tensor(shape: tuple[int, ...]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}xf32>"


CASES = {
    "channels first": Case((5, 6, 7), (3, 3, 3), pads=(1, 1, 1), has_bias=True),
    "channels last": Case((5, 6, 7), (3, 2, 3), pads=(0, 1, 0), images=2, is_last=True),
    "steps": Case((7, 6, 9), (3, 3, 3), 2, pads=(1, 0, 1), is_last=True, has_bias=True),
    "dilated": Case((7, 6, 9), (2, 3, 3), dilation=2, images=2),
    "one tap deep": Case((4, 6, 5), (1, 3, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_tap_along_the_depth_is_a_problem(name: str) -> None:
    case = CASES[name]
    found = read_module(case.in_linalg())
    assert not found.skipped
    problems = [parse_problem(one.problem) for one in found.occurrences]
    assert len(problems) == case.taps[0]
    depth = case.result[1 if case.is_last else 2]
    for number, problem in enumerate(problems):
        keys = problem.to_json()
        assert keys["n"] == case.images * depth
        assert (keys["h"], keys["w"], keys["kh"], keys["kw"]) == (*case.sides[1:], *case.taps[1:])
        assert problem.pads.low == case.pads[1:]
        assert problem.accumulates == (number > 0)
        assert problem.has_bias == (case.has_bias and not number)
        assert problem.has_channels_first is not case.is_last


def test_slices_of_a_constant_filter_are_constant() -> None:
    case = CASES["channels first"]
    found = read_module(case.in_linalg(np.ones(case.shapes["w"], np.float32)))
    assert all("weights=constant" in one.problem for one in found.occurrences)


STABLEHLO = b"""
func.func @main(%x: tensor<1x5x6x7x3xf32>, %w: tensor<3x3x3x3x4xf32>) -> tensor<1x5x6x7x4xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, 2, f]x[0, 1, 2, i, o]->[b, 0, 1, 2, f],
    window = {stride = [1, 1, 1], pad = [[1, 1], [1, 1], [1, 1]]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x5x6x7x3xf32>, tensor<3x3x3x3x4xf32>) -> tensor<1x5x6x7x4xf32>
  return %0 : tensor<1x5x6x7x4xf32>
}"""
TORCH = b"""
func.func @main(%x: !torch.vtensor<[1,3,5,6,7],f32>, %w: !torch.vtensor<[4,3,3,3,3],f32>)
    -> !torch.vtensor<[1,4,5,6,7],f32> {
  %no = torch.constant.bool false
  %none = torch.constant.none
  %1 = torch.constant.int 1
  %ones = torch.prim.ListConstruct %1, %1, %1
    : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %l = torch.prim.ListConstruct : () -> !torch.list<int>
  %y = torch.aten.convolution %x, %w, %none, %ones, %ones, %ones, %no, %l, %1
    : !torch.vtensor<[1,3,5,6,7],f32>, !torch.vtensor<[4,3,3,3,3],f32>, !torch.none,
    !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int
    -> !torch.vtensor<[1,4,5,6,7],f32>
  return %y : !torch.vtensor<[1,4,5,6,7],f32>
}"""


@pytest.mark.parametrize(("module", "layout"), [(STABLEHLO, ""), (TORCH, "layout=nchw_fchw,")],
                         ids=["stablehlo", "torch"])  # fmt: skip
def test_other_spellings_are_split_for_iree_as_well(module: bytes, layout: str) -> None:
    first = f"conv2d:n=5,h=6,w=7,ci=3,co=4,kh=3,kw=3,pad=1,{layout}dtype=f32"
    problems = [first, *[f"{first},init=accumulate"] * 2]
    for given in (module, as_module(module, splits=True)):
        assert [one.problem for one in read_module(given).occurrences] == problems
    assert as_module(module, splits=True) != module


def check_in_iree(case: Case, *, has_constant_weights: bool) -> None:
    """Compile the split module, and compare with the definition."""
    arrays = random_arrays(case.shapes, 5)
    module = case.in_linalg(arrays["w"] if has_constant_weights else None)
    split = as_module(module, splits=True)
    assert split != module
    passed = [one for name, one in arrays.items() if not has_constant_weights or name != "w"]
    (found,) = results_of(split, *passed)
    np.testing.assert_allclose(found, case.defined(arrays), rtol=1e-5, atol=1e-4)


def test_numbers_are_those_of_the_definition() -> None:
    check_in_iree(CASES["channels first"], has_constant_weights=True)


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_numbers_of_every_kind_are_those_of_the_definition(name: str) -> None:
    check_in_iree(CASES[name], has_constant_weights=False)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_random_numbers_are_those_of_the_definition(seed: int) -> None:
    rng = Random(seed)
    taps = rng.randint(2, 3), rng.randint(2, 3), rng.randint(2, 3)
    dilation = rng.choice([1, 1, 2])
    sides = rng.randint(5, 8), rng.randint(5, 8), rng.randint(5, 8)
    case = Case(
        sides, taps, rng.randint(1, 3), dilation, (rng.randint(0, 2), rng.randint(0, 2), 1),
        rng.randint(1, 5), rng.randint(2, 5), rng.choice([1, 2]), rng.random() < 0.5,
        rng.random() < 0.5,
    )  # fmt: skip
    check_in_iree(case, has_constant_weights=seed % 2 == 0)


def test_packs_are_of_the_whole_convolution() -> None:
    """Ops that read parts of one tensor cannot be packed by one script."""
    case = Case((4, 6, 5), (3, 3, 3), pads=(1, 1, 1), ci=16, co=32)
    plan = pack_module(case.in_linalg(np.ones(case.shapes["w"], np.float32)))
    assert "tensor<1x16x6x8x7xf32>" in plan.payload


def test_groups_are_skipped_with_the_reason() -> None:
    module = TORCH.replace(b"%l, %1\n", b"%l, %3\n").replace(b"[4,3,3,3,3]", b"[6,1,3,3,3]")
    module = module.replace(b"[1,4,5", b"[1,6,5").replace(
        b"  %none", b"  %3 = torch.constant.int 3\n  %none")  # fmt: skip
    found = read_module(module)
    assert not found.occurrences
    assert "convolves 3 dimensions; conv2d has two" in found.skipped[0].reason
