"""Products of bytes less zero points, and of weights of few bits, are found behind their ops."""

import random
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import integers
from numpy.typing import NDArray

from tests.cases import cases
from tests.kernels.mlir.payloads import generic
from tilewise.kernels.dispatches.extraction.extract import cut_module
from tilewise.kernels.errors import PlaceError
from tilewise.kernels.mlir.frontend.child.strided import NotStridedError, StridedView
from tilewise.kernels.mlir.frontend.read import read_graph, read_module, read_op, read_program

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


FILLED = """%z = arith.constant 0 : i32
  %e = tensor.empty() : tensor<16x48xi32>
  %f = linalg.fill ins(%z : i32) outs(%e : tensor<16x48xi32>) -> tensor<16x48xi32>"""
PRODUCT = """func.func @f(%a: tensor<16x32xi8>, %b: tensor<32x48xi8>, %s: i32)
    -> tensor<16x48xi32> {{
  {filled}
  %seven = arith.constant 7 : i32
  %r = linalg.quantized_matmul ins(%a, %b, {za}, {zb} : tensor<16x32xi8>, tensor<32x48xi8>,
    i32, i32) outs(%f : tensor<16x48xi32>) -> tensor<16x48xi32>
  return %r : tensor<16x48xi32>
}}"""
GENERIC = """func.func @f(%a: tensor<16x32xi8>, %b: tensor<32x48xi8>) -> tensor<16x48xi32> {{
  {filled}
  %r = linalg.generic {{indexing_maps = [{maps}],
    iterator_types = ["parallel", "parallel", "reduction"]}}
    ins({ins} : {types}) outs(%f : tensor<16x48xi32>) {{
  ^bb0(%x: i8, %y: i8, %o: i32):
    %x1 = arith.{first} %x : i8 to i32
    %y1 = arith.{second} %y : i8 to i32
    %p = arith.muli %x1, %y1 : i32
    %t = arith.addi %o, %p : i32
    linalg.yield %t : i32
  }} -> tensor<16x48xi32>
  return %r : tensor<16x48xi32>
}}"""
TOSA = """func.func @f(%x: tensor<1x9x9x5xi8>, %b: tensor<20xi32>) -> tensor<1x9x9x20xi32> {{
  %w = "tosa.const"() {{values = dense<3> : tensor<20x3x3x5xi8>}} : () -> tensor<20x3x3x5xi8>
  %zx = "tosa.const"() {{values = dense<{zero}> : tensor<1xi8>}} : () -> tensor<1xi8>
  %zw = "tosa.const"() {{values = dense<0> : tensor<1xi8>}} : () -> tensor<1xi8>
  %r = "tosa.conv2d"(%x, %w, %b, %zx, %zw) {{acc_type = i32, dilation = array<i64: 1, 1>,
      pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>}}
      : (tensor<1x9x9x5xi8>, tensor<20x3x3x5xi8>, tensor<20xi32>, tensor<1xi8>, tensor<1xi8>)
      -> tensor<1x9x9x20xi32>
  return %r : tensor<1x9x9x20xi32>
}}"""


def found(text: str | bytes) -> str:
    """The only problem of a module."""
    (one,) = read_module(text if isinstance(text, bytes) else text.encode()).occurrences
    return one.problem


@pytest.mark.parametrize(("za", "zb", "zero"), [
    ("%s", "%z", "a"), ("%z", "%seven", "b"), ("%s", "%seven", "ab"), ("%z", "%z", ""),
])  # fmt: skip
def test_a_quantized_matmul_has_the_zero_points_that_are_not_zero(za, zb, zero) -> None:
    problem = found(PRODUCT.format(filled=FILLED, za=za, zb=zb))
    assert problem == "matmul:m=16,n=48,k=32,dtype=i8" + (f",zero={zero}" if zero else "")
    beyond = PRODUCT.format(filled=FILLED, za=za, zb="%seven").replace("constant 7", "constant 128")
    (skipped,) = read_module(beyond.encode()).skipped
    assert skipped.reason == "has a zero point beyond a byte"


@pytest.mark.parametrize(("first", "second", "keys"), [
    ("extui", "extsi", "u8,b=i8"), ("extsi", "extui", "i8,b=u8"), ("extui", "extui", "u8"),
])  # fmt: skip
@pytest.mark.parametrize("swapped", [False, True])
def test_bytes_have_the_sign_with_which_they_are_widened(first, second, keys, swapped) -> None:
    names, types = ["%a", "%b"], ["tensor<16x32xi8>", "tensor<32x48xi8>"]
    maps = [f"affine_map<(m, n, k) -> ({one})>" for one in ("m, k", "k, n", "m, n")]
    signs = [first, second]
    if swapped:  # the op's second input is A
        names, types, signs = names[::-1], types[::-1], signs[::-1]
        maps = [maps[1], maps[0], maps[2]]
    text = GENERIC.format(
        filled=FILLED, maps=", ".join(maps), ins=", ".join(names), types=", ".join(types),
        first=signs[0], second=signs[1],
    )  # fmt: skip
    assert found(text) == f"matmul:m=16,n=48,k=32,dtype={keys}"


@pytest.mark.parametrize(("zero", "keys"), [(0, ""), (-7, ",zero=a")])
def test_tosa_pads_with_the_zero_point(zero: int, keys: str) -> None:
    shape = "conv2d:n=1,h=9,w=9,ci=5,co=20,kh=3,kw=3,pad=1"
    assert found(TOSA.format(zero=zero)).startswith(f"{shape},dtype=i8{keys},bias")


def test_networks_and_scripts_of_ops_leave_them_out() -> None:
    shifted, plain = (PRODUCT.format(filled=FILLED, za=za, zb="%z") for za in ("%s", "%z"))
    text = (shifted + plain.replace("@f", "@g")).encode()
    node, other = (node for node in read_graph(text).nodes if node.reason or node.place)
    assert node.reason == "is of unsigned bytes or zero points, which no network runs"
    assert (node.place, other.place) == (None, 2)
    with pytest.raises(PlaceError, match=r"script of matmul:m=16,n=48,k=32,dtype=i8,zero=a$"):
        read_op(text, "1")
    with pytest.raises(PlaceError, match="reads 4 tensors"):
        read_op(text, "2")


DEQUANTISED = """
#id = affine_map<(g, k, n) -> (g, k, n)>
#of_group = affine_map<(g, k, n) -> (g, n)>
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
  %i = linalg.fill ins(%zero : f32) outs(%e2 : tensor<6x64xf32>) -> tensor<6x64xf32>GROUPED
  return %r : tensor<6x64xf32>
}
"""
GROUPED = generic("r", (6, 64, 4, 32), ["%x[d0, d2, d3]", "%d[d2, d3, d1]"], "%i[d0, d1]",
                  "%t = arith.mulf %a, %b : f32\n%r = arith.addf %t, %o : f32", 2)  # fmt: skip
WIDE = "%v = arith.{0} %q : CODE to f32\n"
SIGNED, UNSIGNED = WIDE.format("sitofp"), WIDE.format("uitofp")
LESS_EIGHT = "%y = arith.subf %v, %half : f32\n"
LESS_ZERO = "%t = arith.{0} %zv : CODE to f32\n%y = arith.subf %v, %t : f32\n"
SCALED = "%r = arith.mulf %y, %sv : f32"
SCALED_HALF = "%t2 = arith.extf %sv : f16 to f32\n%r = arith.mulf %y, %t2 : f32"
PLAIN = "matmul:m=6,n=64,k=128,dtype=f32"


def weights_found(body: str, code: str, *, scale: str = "f32", weights: str = "%w") -> str:
    """The problem of the module with this body."""
    text = DEQUANTISED.replace("GROUPED", GROUPED).replace("WEIGHTS", weights).replace("BODY", body)
    text = text.replace("CODE", code).replace("SCALE", scale)
    (one,) = read_module(text.encode()).occurrences
    return one.problem


@pytest.mark.parametrize(("code", "body", "keys"), [
    ("i4", UNSIGNED + LESS_ZERO.format("uitofp") + SCALED, "i4,group=32,scale=f32,zero_b=u4"),
    ("i4", UNSIGNED + LESS_EIGHT + SCALED, "i4,group=32,scale=f32"),
    ("i4", SIGNED + SCALED.replace("%y", "%v"), "i4,group=32,scale=f32"),
    ("i4", UNSIGNED + SCALED.replace("%y", "%v"), "i4,group=32,scale=f32,zero_b=u4"),
    ("i8", SIGNED + LESS_ZERO.format("sitofp") + SCALED, "i8,group=32,scale=f32,zero_b=u8"),
    ("i8", SIGNED + LESS_EIGHT + SCALED, "i8,group=32,scale=f32,zero_b=u8"),
    ("i4", SIGNED + SCALED_HALF.replace("%y", "%v"), "i4,group=32,scale=f16"),
])  # fmt: skip
def test_codes_in_groups_have_the_limits_of_their_sign(code: str, body: str, keys: str) -> None:
    scale = "f16" if "f16" in keys else "f32"
    assert weights_found(body, code, scale=scale) == f"{PLAIN},b={keys},weights=constant"


@pytest.mark.parametrize(("why", "body", "weights"), [
    ("an argument", UNSIGNED + LESS_EIGHT + SCALED, "%arg"),
    ("another sign", SIGNED + LESS_ZERO.format("uitofp") + SCALED, "%w"),
    ("no mask", "%four = arith.constant 4 : CODE\n%h = arith.shrui %q, %four : CODE\n"
     "%v = arith.uitofp %h : CODE to f32\n" + SCALED.replace("%y", "%v"), "%w"),
    ("a scale before the zero point",
     UNSIGNED + "%y = arith.mulf %v, %sv : f32\n%r = arith.subf %y, %half : f32", "%w"),
    ("an infinite zero point",
     UNSIGNED + "%inf = arith.constant 0x7F800000 : f32\n%y = arith.subf %v, %inf : f32\n" + SCALED,
     "%w"),
    ("zero points of f32", "%u = arith.extui %q : CODE to i32\n%v = arith.uitofp %u : i32 to f32\n"
     "%y = arith.subf %v, %sv : f32\n" + SCALED, "%arg"),
    ("two scales", SIGNED + "%y = arith.mulf %v, %sv : f32\n" + SCALED, "%w"),
])  # fmt: skip
def test_what_no_problem_expresses_stays_a_product_of_floats(why, body, weights) -> None:
    constant = ",weights=constant" * (weights == "%w")
    code = "i32" if why == "no mask" else "i4"
    assert weights_found(body, code, weights=weights) == PLAIN + constant, why


NIBBLES = """
!w = !torch.vtensor<[32,32],ui8>
!q = !torch.vtensor<[32,32,2],ui8>
!b = !torch.vtensor<[32,2,32],f32>
!s = !torch.vtensor<[32,2,1],f32>
!i = !torch.int
!l = !torch.list<int>
func.func @main(%x: !torch.vtensor<[3,64],f32>) -> !torch.vtensor<[3,32],f32> {
  %none = torch.constant.none
  %false = torch.constant.bool false
  %m1 = torch.constant.int -1
CONSTANTS
  %w = torch.vtensor.literal(dense_resource<w> : tensor<32x32xui8>) : !w
  %s = torch.vtensor.literal(dense_resource<s> : tensor<32x2x1xf32>) : !s
  %low = torch.aten.bitwise_and.Scalar %w, %15 : !w, !i -> !w
  %high = torch.aten.__rshift__.Scalar %w, %4 : !w, !i -> !w
  %both = torch.prim.ListConstruct %low, %high : (!w, !w) -> !torch.list<vtensor>
  %stack = torch.aten.stack %both, %m1 : !torch.list<vtensor>, !i -> !q
  %blocks = torch.prim.ListConstruct %32, %2, %32 : (!i, !i, !i) -> !l
  %q = torch.aten.view %stack, %blocks : !q, !l -> !torch.vtensor<[32,2,32],ui8>
  %f = torch.aten.to.dtype %q, %6, %false, %false, %none : !torch.vtensor<[32,2,32],ui8>,
    !i, !torch.bool, !torch.bool, !torch.none -> !b
  %y = torch.aten.sub.Scalar %f, %8, %1 : !b, !i, !i -> !b
  %d = torch.aten.mul.Tensor %y, %s : !b, !s -> !b
  %shape = torch.prim.ListConstruct %32, %64 : (!i, !i) -> !l
  %e = torch.aten.view %d, %shape : !b, !l -> !torch.vtensor<[32,64],f32>
  %r = torch.aten.linear %x, %e, %none : !torch.vtensor<[3,64],f32>,
    !torch.vtensor<[32,64],f32>, !torch.none -> !torch.vtensor<[3,32],f32>
  return %r : !torch.vtensor<[3,32],f32>
}
""".replace("CONSTANTS", "\n".join(
    f"  %{i} = torch.constant.int {i}" for i in (1, 2, 4, 6, 8, 15, 32, 64)
))  # fmt: skip


def test_nibbles_of_torch_are_weights_of_four_bits() -> None:
    (one,) = read_module(NIBBLES.encode()).occurrences
    keys = "b=i4,group=32,scale=f32,transpose_b,weights=constant"
    assert one.problem == f"matmul:m=3,n=32,k=64,dtype=f32,{keys}"
    (cut,), wide = cut_module(NIBBLES.encode()), "dtype=f32,transpose_b,weights=constant"
    assert (cut.problem, cut.narrow) == (f"matmul:m=3,n=32,k=64,{wide}", one.problem)


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


@pytest.mark.parametrize(("body", "expected"), [
    ("%v = arith.sitofp %q : i8 to f32", BYTES),
    ("%v = arith.uitofp %q : i8 to f32", BYTES.view(np.uint8)),
    ("%u = arith.extui %q : i8 to i32\n%v = arith.sitofp %u : i32 to f32", BYTES.view(np.uint8)),
    (SHIFTED.format("shrui"), (BYTES.view(np.uint8) >> 3).view(np.int8)),
    (SHIFTED.format("shrsi"), BYTES >> 3),
    (SHIFTED.format("andi"), BYTES & 3),
    (SHIFTED.format("subi"), BYTES - np.int8(3)),
    ("%t = arith.sitofp %q : i8 to f32\n%u = arith.truncf %t : f32 to f16\n"
     "%s16 = arith.constant 0.1 : f16\n%p = arith.mulf %u, %s16 : f16\n"
     "%v = arith.extf %p : f16 to f32",
     (BYTES.astype(np.float16) * np.float16(0.1)).astype(np.float32)),
])  # fmt: skip
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
