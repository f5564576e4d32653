"""Weights of few bits are found behind whatever dequantises them, or the op stays one of floats."""

import random
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import integers
from numpy.typing import NDArray

from tests.cases import cases
from tilewise.kernels.mlir.frontend.read import read_module, read_program

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

from tilewise.kernels.mlir.frontend.child.strided import NotStridedError, StridedView

DEQUANTISED = """
#id = affine_map<(g, k, n) -> (g, k, n)>
#of_group = affine_map<(g, k, n) -> (g, n)>
#a = affine_map<(m, n, g, k) -> (m, g, k)>
#b = affine_map<(m, n, g, k) -> (g, k, n)>
#c = affine_map<(m, n, g, k) -> (m, n)>
func.func @main(%x: tensor<6x4x32xf32>, %arg: tensor<4x32x64xCODE>) -> tensor<6x64xf32> {
  %w = arith.constant dense_resource<w> : tensor<4x32x64xCODE>
  %s = arith.constant dense_resource<s> : tensor<4x64xSCALE>
  %z = arith.constant dense_resource<z> : tensor<4x64xCODE>
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 8.0 : f32
  %e = tensor.empty() : tensor<4x32x64xf32>
  %d = linalg.generic {indexing_maps = [#id, #of_group, #of_group, #id],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(WEIGHTS, %s, %z : tensor<4x32x64xCODE>, tensor<4x64xSCALE>, tensor<4x64xCODE>)
      outs(%e : tensor<4x32x64xf32>) {
  ^bb0(%q: CODE, %sv: SCALE, %zv: CODE, %o: f32):
    BODY
    linalg.yield %r : f32
  } -> tensor<4x32x64xf32>
  %e2 = tensor.empty() : tensor<6x64xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e2 : tensor<6x64xf32>) -> tensor<6x64xf32>
  %r = linalg.generic {indexing_maps = [#a, #b, #c],
      iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %d : tensor<6x4x32xf32>, tensor<4x32x64xf32>) outs(%i : tensor<6x64xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %t = arith.mulf %p, %q : f32
    %u = arith.addf %t, %o : f32
    linalg.yield %u : f32
  } -> tensor<6x64xf32>
  return %r : tensor<6x64xf32>
}
"""
WIDE = "%v = arith.{0} %q : CODE to f32\n"
SIGNED, UNSIGNED = WIDE.format("sitofp"), WIDE.format("uitofp")
LESS_EIGHT = "%y = arith.subf %v, %half : f32\n"
LESS_ZERO = "%t = arith.{0} %zv : CODE to f32\n%y = arith.subf %v, %t : f32\n"
SCALED = "%r = arith.mulf %y, %sv : f32"
SCALED_HALF = "%t2 = arith.extf %sv : f16 to f32\n%r = arith.mulf %y, %t2 : f32"
PLAIN = "matmul:m=6,n=64,k=128,dtype=f32"


def found(body: str, code: str, *, scale: str = "f32", weights: str = "%w") -> str:
    """The problem of the module with this body."""
    text = DEQUANTISED.replace("WEIGHTS", weights).replace("BODY", body)
    text = text.replace("CODE", code).replace("SCALE", scale)
    (one,) = read_module(text.encode()).occurrences
    return one.problem


@pytest.mark.parametrize(
    ("code", "body", "keys"),
    [
        ("i4", UNSIGNED + LESS_ZERO.format("uitofp") + SCALED, "i4,group=32,scale=f32,zero_b=u4"),
        ("i4", UNSIGNED + LESS_EIGHT + SCALED, "i4,group=32,scale=f32"),
        ("i4", SIGNED + SCALED.replace("%y", "%v"), "i4,group=32,scale=f32"),
        ("i4", UNSIGNED + SCALED.replace("%y", "%v"), "i4,group=32,scale=f32,zero_b=u4"),
        ("i8", SIGNED + LESS_ZERO.format("sitofp") + SCALED, "i8,group=32,scale=f32,zero_b=u8"),
        ("i8", SIGNED + LESS_EIGHT + SCALED, "i8,group=32,scale=f32,zero_b=u8"),
    ],
)
def test_codes_in_groups_have_the_limits_of_their_sign(code: str, body: str, keys: str) -> None:
    assert found(body, code) == f"{PLAIN},b={keys},weights=constant"


def test_scales_keep_their_type() -> None:
    body = SIGNED + SCALED_HALF.replace("%y", "%v")
    assert ",b=i4,group=32,scale=f16,weights" in found(body, "i4", scale="f16")


@pytest.mark.parametrize(
    ("why", "body", "weights"),
    [
        ("an argument", UNSIGNED + LESS_EIGHT + SCALED, "%arg"),
        ("another sign", SIGNED + LESS_ZERO.format("uitofp") + SCALED, "%w"),
        ("a scale before the zero point",
         UNSIGNED + "%y = arith.mulf %v, %sv : f32\n%r = arith.subf %y, %half : f32", "%w"),
        ("an infinite zero point",
         UNSIGNED + "%inf = arith.constant 0x7F800000 : f32\n%y = arith.subf %v, %inf : f32\n"
         + SCALED, "%w"),
        ("two scales", SIGNED + "%y = arith.mulf %v, %sv : f32\n" + SCALED, "%w"),
    ],
)  # fmt: skip
def test_what_no_problem_expresses_stays_a_product_of_floats(
    why: str, body: str, weights: str
) -> None:
    assert found(body, "i4", weights=weights) == PLAIN, why


NIBBLES = """
func.func @main(%x: !torch.vtensor<[3,64],f32>) -> !torch.vtensor<[3,32],f32> {
  %none = torch.constant.none
  %false = torch.constant.bool false
  %m1 = torch.constant.int -1
  %1 = torch.constant.int 1
  %2 = torch.constant.int 2
  %4 = torch.constant.int 4
  %6 = torch.constant.int 6
  %8 = torch.constant.int 8
  %15 = torch.constant.int 15
  %32 = torch.constant.int 32
  %64 = torch.constant.int 64
  %w = torch.vtensor.literal(dense_resource<w> : tensor<32x32xui8>) : !torch.vtensor<[32,32],ui8>
  %s = torch.vtensor.literal(dense_resource<s> : tensor<32x2x1xf32>) : !torch.vtensor<[32,2,1],f32>
  %low = torch.aten.bitwise_and.Scalar %w, %15
    : !torch.vtensor<[32,32],ui8>, !torch.int -> !torch.vtensor<[32,32],ui8>
  %high = torch.aten.__rshift__.Scalar %w, %4
    : !torch.vtensor<[32,32],ui8>, !torch.int -> !torch.vtensor<[32,32],ui8>
  %both = torch.prim.ListConstruct %low, %high
    : (!torch.vtensor<[32,32],ui8>, !torch.vtensor<[32,32],ui8>) -> !torch.list<vtensor>
  %stack = torch.aten.stack %both, %m1
    : !torch.list<vtensor>, !torch.int -> !torch.vtensor<[32,32,2],ui8>
  %blocks = torch.prim.ListConstruct %32, %2, %32
    : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
  %q = torch.aten.view %stack, %blocks
    : !torch.vtensor<[32,32,2],ui8>, !torch.list<int> -> !torch.vtensor<[32,2,32],ui8>
  %f = torch.aten.to.dtype %q, %6, %false, %false, %none : !torch.vtensor<[32,2,32],ui8>,
    !torch.int, !torch.bool, !torch.bool, !torch.none -> !torch.vtensor<[32,2,32],f32>
  %l = torch.aten.sub.Scalar %f, %8, %1
    : !torch.vtensor<[32,2,32],f32>, !torch.int, !torch.int -> !torch.vtensor<[32,2,32],f32>
  %d = torch.aten.mul.Tensor %l, %s : !torch.vtensor<[32,2,32],f32>,
    !torch.vtensor<[32,2,1],f32> -> !torch.vtensor<[32,2,32],f32>
  %shape = torch.prim.ListConstruct %32, %64 : (!torch.int, !torch.int) -> !torch.list<int>
  %e = torch.aten.view %d, %shape
    : !torch.vtensor<[32,2,32],f32>, !torch.list<int> -> !torch.vtensor<[32,64],f32>
  %r = torch.aten.linear %x, %e, %none : !torch.vtensor<[3,64],f32>,
    !torch.vtensor<[32,64],f32>, !torch.none -> !torch.vtensor<[3,32],f32>
  return %r : !torch.vtensor<[3,32],f32>
}
"""


def test_nibbles_of_torch_are_weights_of_four_bits() -> None:
    found = read_module(NIBBLES.encode())
    (one,) = found.occurrences
    keys = "b=i4,group=32,scale=f32,transpose_b,weights=constant"
    assert one.problem == f"matmul:m=3,n=32,k=64,dtype=f32,{keys}"
    assert one.wide == "matmul:m=3,n=32,k=64,dtype=f32,transpose_b"
    assert [other.problem for other in found.widened().problems] == [one.wide]


FOLDED = """
func.func @main(%x: tensor<2x2xf32>) -> tensor<2x3xf32> {
  %w = arith.constant dense<[[-128, 7], [-1, 100], [3, -77]]> : tensor<3x2xi8>
  %s = arith.constant dense<[0.5, -3.0]> : tensor<2xf32>
  %three = arith.constant 3 : i8
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x3xf32>
  %d = linalg.generic {indexing_maps = [affine_map<(k, n) -> (n, k)>, affine_map<(k, n) -> (k)>,
      affine_map<(k, n) -> (k, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%w, %s : tensor<3x2xi8>, tensor<2xf32>) outs(%e : tensor<2x3xf32>) {
  ^bb0(%q: i8, %sv: f32, %o: f32):
    BODY
    %r = arith.mulf %v, %sv : f32
    linalg.yield %r : f32
  } -> tensor<2x3xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<2x3xf32>) -> tensor<2x3xf32>
  %r = linalg.matmul ins(%x, %d : tensor<2x2xf32>, tensor<2x3xf32>)
    outs(%i : tensor<2x3xf32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}
"""
BYTES = np.array([[-128, 7], [-1, 100], [3, -77]], np.int8)
SHIFTED = "%u = arith.{0} %q, %three : i8\n%v = arith.sitofp %u : i8 to f32"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("%v = arith.sitofp %q : i8 to f32", BYTES),
        ("%v = arith.uitofp %q : i8 to f32", BYTES.view(np.uint8)),
        ("%u = arith.extui %q : i8 to i32\n%v = arith.sitofp %u : i32 to f32",
         BYTES.view(np.uint8)),
        (SHIFTED.format("shrui"), (BYTES.view(np.uint8) >> 3).view(np.int8)),
        (SHIFTED.format("shrsi"), BYTES >> 3),
        (SHIFTED.format("andi"), BYTES & 3),
        (SHIFTED.format("subi"), BYTES - np.int8(3)),
        ("%t = arith.sitofp %q : i8 to f32\n%u = arith.truncf %t : f32 to f16\n"
         "%s16 = arith.constant 0.1 : f16\n%p = arith.mulf %u, %s16 : f16\n"
         "%v = arith.extf %p : f16 to f32",
         (BYTES.astype(np.float16) * np.float16(0.1)).astype(np.float32)),
    ],
)  # fmt: skip
def test_networks_fold_what_is_computed_of_constants(body: str, expected: NDArray[Any]) -> None:
    program = read_program(FOLDED.replace("BODY", body).encode())
    (weights,) = program.weights.values()
    wanted = (expected.T * np.array([[0.5], [-3]], np.float32)).astype(np.float32)
    assert np.array_equal(weights, wanted)


@cases(300)
@given(seed=integers(0, 1 << 32))
def test_a_view_is_that_of_numpy(seed: int) -> None:
    choose = random.Random(seed)
    shape = [choose.choice((1, 2, 4, 6)) for _ in range(choose.randint(1, 3))]
    array = np.arange(prod(shape)).reshape(shape)
    view = StridedView.of(shape)
    for _ in range(choose.randint(1, 8)):
        kind = choose.choice(("collapse", "expand", "transpose", "repeat", "slice"))
        size = list(array.shape)
        try:
            if kind == "collapse" and len(size) > 1:
                at = choose.randrange(len(size) - 1)
                groups = [[i] for i in range(at)] + [[at, at + 1]]
                groups += [[i] for i in range(at + 2, len(size))]
                view = view.collapsed(groups)
                array = array.reshape([prod(size[i] for i in group) for group in groups])
            elif kind == "expand":
                at = choose.randrange(len(size))
                part = choose.choice([i for i in range(1, size[at] + 1) if size[at] % i == 0])
                wider = [*size[:at], part, size[at] // part, *size[at + 1 :]]
                groups = [[i] for i in range(at)] + [[at, at + 1]]
                groups += [[i + 1] for i in range(at + 1, len(size))]
                view, array = view.expanded(groups, wider), array.reshape(wider)
            elif kind == "transpose":
                order = choose.sample(range(len(size)), len(size))
                shape = [size[i] for i in order]
                view = view.remapped([((order.index(i), 1),) for i in range(len(size))], shape)
                array = array.transpose(order)
            elif kind == "repeat" and len(size) < 5:
                read = [((i + 1, 1),) for i in range(len(size))]
                view = view.remapped(read, (3, *size))
                array = np.broadcast_to(array, (3, *size))
            elif kind == "slice":
                less = [choose.randint(max(1, one - 1), one) for one in size]
                view, array = view.sliced(less), array[tuple(slice(one) for one in less)]
        except NotStridedError:
            break
    assert view.shape == array.shape
    assert np.array_equal(_elements(view), array)


def _elements(view: StridedView) -> NDArray[Any]:
    """The elements of a view of consecutive numbers."""
    total = np.zeros((), np.int64)
    for digits, size in zip(view.axes, view.shape, strict=True):
        index = np.zeros(1, np.int64)
        for extent, step in digits:
            index = np.add.outer(index, np.arange(extent) * step).reshape(-1)
        total = np.add.outer(total, index[:size])
    return total
