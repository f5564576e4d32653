"""The same models in the dialects of three frameworks; those of JAX are in `test_jax_modules`."""

import pytest

from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.problem import parse_problem

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


FIRST = "conv2d:n=1,h=10,w=10,ci=4,co=8,kh=3,kw=3,stride=2,pad=1"
TAIL = "dtype=f32,bias,epilogue=relu,weights=constant"

TORCH = """
!x = !torch.vtensor<[1,4,10,10],f32>
!w = !torch.vtensor<[8,4,3,3],f32>
!b = !torch.vtensor<[8],f32>
!d = !torch.vtensor<[8,1,3,3],f32>
!y = !torch.vtensor<[1,8,5,5],f32>
!r = !torch.vtensor<[4,10],f32>
!i = !torch.int
!l = !torch.list<int>
module {
  func.func @net(%x: !x) -> !y attributes {torch.assume_strict_symbolic_shapes} {
    %w = torch.vtensor.literal(dense_resource<w> : tensor<8x4x3x3xf32>) : !w
    %b = torch.vtensor.literal(dense_resource<b> : tensor<8xf32>) : !b
    %d = torch.vtensor.literal(dense_resource<d> : tensor<8x1x3x3xf32>) : !d
    %none = torch.constant.none
    %one = torch.constant.int 1
    %two = torch.constant.int 2
    %eight = torch.constant.int 8
    %false = torch.constant.bool false
    %twos = torch.prim.ListConstruct %two, %two : (!i, !i) -> !l
    %ones = torch.prim.ListConstruct %one, %one : (!i, !i) -> !l
    %nothing = torch.prim.ListConstruct : () -> !l
    %0 = torch.aten.convolution %x, %w, %b, %twos, %ones, %ones, %false, %nothing, %one
        : !x, !w, !b, !l, !l, !l, !torch.bool, !l, !i -> !y
    %1 = torch.aten.relu %0 : !y -> !y
    %2 = torch.aten.convolution %1, %d, %none, %ones, %ones, %ones, %false, %nothing, %eight
        : !y, !d, !torch.none, !l, !l, !l, !torch.bool, !l, !i -> !y
    return %2 : !y
  }
  func.func @mlp(%x: !torch.vtensor<[4,6],f32>, %y: !r) -> !r {
    %one = torch.constant.int 1
    %w = torch.vtensor.literal(dense_resource<v> : tensor<10x6xf32>) : !torch.vtensor<[10,6],f32>
    %b = torch.vtensor.literal(dense<0.25> : tensor<10xf32>) : !torch.vtensor<[10],f32>
    %0 = torch.aten.linear %x, %w, %b : !torch.vtensor<[4,6],f32>, !torch.vtensor<[10,6],f32>,
        !torch.vtensor<[10],f32> -> !r
    %1 = torch.aten.add.Tensor %0, %y, %one : !r, !r, !torch.int -> !r
    %2 = torch.aten.relu %1 : !r -> !r
    return %2 : !r
  }
}
"""
OF_TORCH = {
    "@net": [f"{FIRST},layout=nchw_fchw,{TAIL}",
             "conv2d:n=1,h=5,w=5,ci=8,co=8,kh=3,kw=3,pad=1,groups=8,layout=nchw_fchw,dtype=f32,"
             "weights=constant"],
    "@mlp": [f"matmul:m=4,n=10,k=6,transpose_b,add,{TAIL}"],
}  # fmt: skip

TOSA = """
!x = tensor<1x10x10x4xf32>
!y = tensor<1x10x10x8xf32>
!w = tensor<8x3x3x4xf32>
!i = tensor<8x3x3x4xi8>
!h = tensor<8x3x3x4xbf16>
!n = tensor<1xbf16>
!s = tensor<1xi8>
!z = tensor<1xf32>
!m = tensor<1x4x10xf32>
func.func @net(%x: !x, %b: tensor<8xf32>) -> !y {
  %w = "tosa.const"() {values = dense_resource<w> : !w} : () -> !w
  %z = "tosa.const"() {values = dense<0.0> : !z} : () -> !z
  %0 = "tosa.conv2d"(%x, %w, %b, %z, %z) {acc_type = f32, dilation = array<i64: 1, 1>, stride =
      array<i64: 1, 1>, pad = array<i64: 1, 1, 1, 1>} : (!x, !w, tensor<8xf32>, !z, !z) -> !y
  %1 = "tosa.clamp"(%0) {min_val = 0.0 : f32, max_val = 3.40282347E+38 : f32} : (!y) -> !y
  return %1 : !y
}
func.func @whole_numbers(%x: tensor<1x9x9x4xi8>, %b: tensor<8xi32>) -> tensor<1x7x7x8xi32> {
  %w = "tosa.const"() {values = dense_resource<i> : !i} : () -> !i
  %z = "tosa.const"() {values = dense<0> : !s} : () -> !s
  %0 = "tosa.conv2d"(%x, %w, %b, %z, %z) {acc_type = i32, dilation = array<i64: 1, 1>,
      pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>}
      : (tensor<1x9x9x4xi8>, !i, tensor<8xi32>, !s, !s) -> tensor<1x7x7x8xi32>
  return %0 : tensor<1x7x7x8xi32>
}
func.func @half(%x: tensor<1x9x9x4xbf16>, %w: !h, %b: tensor<8xbf16>) -> tensor<1x7x7x8xbf16> {
  %z = "tosa.const"() {values = dense<0.0> : !n} : () -> !n
  %0 = "tosa.conv2d"(%x, %w, %b, %z, %z) {acc_type = f32, dilation = array<i64: 1, 1>,
      pad = array<i64: 0, 0, 0, 0>, stride = array<i64: 1, 1>}
      : (tensor<1x9x9x4xbf16>, !h, tensor<8xbf16>, !n, !n) -> tensor<1x7x7x8xbf16>
  return %0 : tensor<1x7x7x8xbf16>
}
func.func @mlp(%x: tensor<1x4x6xf32>, %w: tensor<1x6x10xf32>, %y: !m) -> !m {
  %z = "tosa.const"() {values = dense<0.0> : !z} : () -> !z
  %s = "tosa.const"() {values = dense<0> : !s} : () -> !s
  %0 = "tosa.matmul"(%x, %w, %z, %z) : (tensor<1x4x6xf32>, tensor<1x6x10xf32>, !z, !z) -> !m
  %r = "tosa.add"(%y, %0) : (!m, !m) -> !m
  %1 = "tosa.sigmoid"(%r) : (!m) -> !m
  %2 = "tosa.mul"(%r, %1, %s) : (!m, !m, !s) -> !m
  return %2 : !m
}
"""
OF_TOSA = {
    "@net": [f"conv2d:n=1,h=10,w=10,ci=4,co=8,kh=3,kw=3,pad=1,{TAIL}"],
    "@whole_numbers": ["conv2d:n=1,h=9,w=9,ci=4,co=8,kh=3,kw=3,dtype=i8,bias,weights=constant"],
    "@half": ["conv2d:n=1,h=9,w=9,ci=4,co=8,kh=3,kw=3,dtype=bf16,out=bf16,bias"],
    "@mlp": ["matmul:m=4,n=10,k=6,dtype=f32,add,epilogue=silu"],
}

ONNX = """
!x = !torch.vtensor<[1,4,10,10],f32>
!w = !torch.vtensor<[8,4,3,3],f32>
!y = !torch.vtensor<[1,8,5,5],f32>
!v = !torch.vtensor<[10,6],f32>
!c = !torch.vtensor<[10],f32>
!r = !torch.vtensor<[4,10],f32>
func.func @net(%x: !x) -> !y META {
  %w = torch.operator "onnx.Constant"() {torch.onnx.value = dense_resource<w>
      : tensor<8x4x3x3xf32>} : () -> !w
  %b = torch.operator "onnx.Constant"() {torch.onnx.value = dense_resource<b> : tensor<8xf32>}
      : () -> !torch.vtensor<[8],f32>
  %0 = torch.operator "onnx.Conv"(%x, %w, %b) {torch.onnx.group = 1 : si64,
      torch.onnx.dilations = [1 : si64, 1 : si64], torch.onnx.kernel_shape = [3 : si64, 3 : si64],
      torch.onnx.pads = [1 : si64, 1 : si64, 1 : si64, 1 : si64],
      torch.onnx.strides = [2 : si64, 2 : si64]} : (!x, !w, !torch.vtensor<[8],f32>) -> !y
  %1 = torch.operator "onnx.Relu"(%0) : (!y) -> !y
  return %1 : !y
}
func.func @mlp(%x: !torch.vtensor<[4,6],f32>, %y: !r) -> !r META {
  %w = torch.operator "onnx.Constant"() {torch.onnx.value = dense_resource<v> : tensor<10x6xf32>}
      : () -> !v
  %b = torch.operator "onnx.Constant"() {torch.onnx.value = dense_resource<c> : tensor<10xf32>}
      : () -> !c
  %0 = torch.operator "onnx.Gemm"(%x, %w, %b) {torch.onnx.transB = 1 : si64}
      : (!torch.vtensor<[4,6],f32>, !v, !c) -> !r
  %s = torch.operator "onnx.Add"(%0, %y) : (!r, !r) -> !r
  %1 = torch.operator "onnx.Sigmoid"(%s) : (!r) -> !r
  %2 = torch.operator "onnx.Mul"(%s, %1) : (!r, !r) -> !r
  return %2 : !r
}
""".replace(
    "META",
    """attributes {torch.onnx_meta.ir_version = 8 : si64,
    torch.onnx_meta.opset_version = 17 : si64, torch.onnx_meta.producer_name = "",
    torch.onnx_meta.producer_version = ""}""",
)
OF_ONNX = {
    "@net": OF_TORCH["@net"][:1],
    "@mlp": ["matmul:m=4,n=10,k=6,dtype=f32,transpose_b,bias,add,epilogue=silu,weights=constant"],
}

DIALECTS = {"torch": (TORCH, OF_TORCH), "tosa": (TOSA, OF_TOSA), "onnx": (ONNX, OF_ONNX)}

CONVOLUTION = """
func.func @main(%x: !torch.vtensor<[{x}],f32>, %w: !torch.vtensor<[{w}],f32>)
    -> !torch.vtensor<[{y}],f32> {{
  %t = torch.constant.bool {flag}
  %none = torch.constant.none
  %1 = torch.constant.int 1
  %2 = torch.constant.int 2
  %0 = torch.constant.int 0
  %l = torch.prim.ListConstruct {zeros} : ({ints}) -> !torch.list<int>
  %s = torch.prim.ListConstruct {steps} : ({ints}) -> !torch.list<int>
  %p = torch.prim.ListConstruct {pads} : ({ints}) -> !torch.list<int>
  %d = torch.prim.ListConstruct {ones} : ({ints}) -> !torch.list<int>
  %y = torch.aten.convolution %x, %w, %none, %s, %p, %d, %t, %l, %1
    : !torch.vtensor<[{x}],f32>, !torch.vtensor<[{w}],f32>, !torch.none,
    !torch.list<int>, !torch.list<int>, !torch.list<int>, !torch.bool, !torch.list<int>, !torch.int
    -> !torch.vtensor<[{y}],f32>
  return %y : !torch.vtensor<[{y}],f32>
}}"""


def in_torch(x: str, w: str, y: str, step: int, *, flag: str) -> str:
    """A convolution of torch with a padding of one, transposed by `flag`."""
    axes = x.count(",") - 1
    names = {"steps": f"%{step}", "pads": "%1", "ones": "%1", "zeros": "%0", "ints": "!torch.int"}
    lists = {name: ", ".join([one] * axes) for name, one in names.items()}
    return CONVOLUTION.format(x=x, w=w, y=y, flag=flag, **lists)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect(name: str) -> None:
    text, expected = DIALECTS[name]
    imported = read_module(text.encode())
    assert not imported.skipped
    found = [(one.where.split()[0], parse_problem(one.problem)) for one in imported.occurrences]
    assert found == [(at, parse_problem(one)) for at, some in expected.items() for one in some]
