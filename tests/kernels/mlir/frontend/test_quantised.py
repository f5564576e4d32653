"""Products of bytes with and without a sign, less zero points, are found; nothing runs them yet."""

import pytest

from tilewise.kernels.errors import PlaceError
from tilewise.kernels.mlir.frontend.read import read_graph, read_module, read_op

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


@pytest.mark.parametrize(
    ("za", "zb", "zero"),
    [("%s", "%z", "a"), ("%z", "%seven", "b"), ("%s", "%seven", "ab"), ("%z", "%z", "")],
)
def test_a_quantized_matmul_has_the_zero_points_that_are_not_zero(
    za: str, zb: str, zero: str
) -> None:
    problem = found(PRODUCT.format(filled=FILLED, za=za, zb=zb))
    assert problem == "matmul:m=16,n=48,k=32,dtype=i8" + (f",zero={zero}" if zero else "")


@pytest.mark.parametrize(
    ("first", "second", "keys"),
    [("extui", "extsi", "u8,b=i8"), ("extsi", "extui", "i8,b=u8"), ("extui", "extui", "u8")],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_bytes_have_the_sign_with_which_they_are_widened(
    first: str, second: str, keys: str, swapped: bool
) -> None:
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
    text = PRODUCT.format(filled=FILLED, za="%s", zb="%z").encode()
    (node,) = (node for node in read_graph(text).nodes if node.reason)
    assert node.reason == "is of unsigned bytes or zero points, which no network runs"
    with pytest.raises(
        PlaceError, match=r"use the script of matmul:m=16,n=48,k=32,dtype=i8,zero=a$"
    ):
        read_op(text)
