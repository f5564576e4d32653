"""A small model: two equal convolutions with padding, and an op between that nobody tunes."""

import numpy as np

TEXT = {"content-type": "text/x-mlir"}
NOTHING = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }"


def filter_of(seed: int = 1) -> np.ndarray:
    """The filter of the model, in steps of an eighth, so that its text is exact."""
    return np.random.default_rng(seed).integers(-6, 7, (3, 3, 8, 8)).astype(np.float32) / 8


def module(seed: int = 1) -> str:
    """The model as text, with the filter of a seed."""
    return _MODULE.replace("FILTER", str(filter_of(seed).tolist()))


_MODULE = """
#map = affine_map<(a, b, c, d) -> (a, b, c, d)>
func.func @main(%image: tensor<1x10x9x8xf32>) -> tensor<1x10x9x8xf32> {
  %filter = arith.constant dense<FILTER> : tensor<3x3x8x8xf32>
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %e = tensor.empty() : tensor<1x10x9x8xf32>
  %p = tensor.pad %image low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%a0: index, %a1: index, %a2: index, %a3: index):
    tensor.yield %zero : f32
  } : tensor<1x10x9x8xf32> to tensor<1x12x11x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x10x9x8xf32>) -> tensor<1x10x9x8xf32>
  %c = linalg.conv_2d_nhwc_hwcf ins(%p, %filter : tensor<1x12x11x8xf32>, tensor<3x3x8x8xf32>)
    outs(%f : tensor<1x10x9x8xf32>) -> tensor<1x10x9x8xf32>
  %m = linalg.generic {indexing_maps = [#map, #map],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c : tensor<1x10x9x8xf32>) outs(%e : tensor<1x10x9x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %z = arith.mulf %x, %half : f32
    linalg.yield %z : f32
  } -> tensor<1x10x9x8xf32>
  %q = tensor.pad %m low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%b0: index, %b1: index, %b2: index, %b3: index):
    tensor.yield %zero : f32
  } : tensor<1x10x9x8xf32> to tensor<1x12x11x8xf32>
  %d = linalg.conv_2d_nhwc_hwcf ins(%q, %filter : tensor<1x12x11x8xf32>, tensor<3x3x8x8xf32>)
    outs(%f : tensor<1x10x9x8xf32>) -> tensor<1x10x9x8xf32>
  return %d : tensor<1x10x9x8xf32>
}
"""
MODULE = module()
PROBLEMS = ["conv2d:n=1,h=10,w=9,ci=8,co=8,kh=3,kw=3,pad=1,dtype=f32,weights=constant"]
OTHERS = [
    "conv2d:n=1,h=12,w=11,ci=8,co=8,kh=3,kw=3,dtype=f32,weights=constant",
    "conv2d:n=1,h=10,w=9,ci=8,co=8,kh=3,kw=3,pad=1,layout=nchw_fchw,dtype=f32,weights=constant",
    "conv2d:n=1,h=12,w=11,ci=8,co=8,kh=3,kw=3,layout=nchw_fchw,dtype=f32,weights=constant",
]
