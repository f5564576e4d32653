"""IREE's compiler finds each problem in each spelling, in modules as compilers hand them over."""

from pathlib import Path

from tests.kernels.dispatches.matching import found_in, library_of, module_of, name_of

SPELLED = Path(__file__).parent / "spelled"
PRODUCT, IMAGE = "matmul:m=9,n=33,k=19,dtype=", "conv2d:n=1,h=9,w=7,ci=6,co=10,kh=3,kw=3"
GROUPS = "conv2d:n=1,h=9,w=7,ci=8,co=8,kh=3,kw=3,dtype=f32"
LINALG = [
    *(PRODUCT + dtype for dtype in ("f32", "f64", "bf16", "f16", "i8", "i32")),
    PRODUCT + "f32,bias",
    PRODUCT + "f32,epilogue=relu",
    PRODUCT + "i8,bias,epilogue=relu",
    PRODUCT + "f32,transpose_a,transpose_b,bias,epilogue=relu",
    PRODUCT + "f32,init=accumulate,bias",
    PRODUCT + "f32,transpose_b,weights=constant,bias",
    "matmul:batch=3,m=9,n=21,k=17,dtype=f32,transpose_b",
    "matmul:batch=3,m=9,n=21,k=17,dtype=bf16,transpose_a,epilogue=relu",
    f"{IMAGE},pad=1,dtype=f32,bias,epilogue=relu",
    f"{IMAGE},pad=1,dtype=bf16",
    f"{IMAGE},pad=1,dtype=f32,init=accumulate,bias,epilogue=relu",
    f"{IMAGE},stride=2,dilation=2,dtype=f32,epilogue=relu,weights=constant",
    f"{IMAGE},pad=2,layout=nchw_fchw,dtype=i8,bias",
    PRODUCT + "bf16,bias,epilogue=relu6",
    PRODUCT + "bf16,out=bf16,bias,epilogue=relu",
    PRODUCT + "f16,out=f16",
    PRODUCT + "f32,bias,add,epilogue=relu",
    f"{IMAGE},dtype=f32,add",
    PRODUCT + "bf16,out=bf16,bias,add,epilogue=relu",
    f"{IMAGE},pad=1,layout=nchw_fchw,dtype=bf16,out=bf16,bias",
    f"{IMAGE},pad=1,layout=nchw_fchw,dtype=f32,init=accumulate,bias,epilogue=relu6",
    f"{GROUPS},groups=8,pad=1,bias,epilogue=relu6",
    f"{GROUPS},groups=8,pad=1,bias",
    f"{GROUPS},groups=8,layout=nchw_fchw,epilogue=relu",
    f"{GROUPS},groups=4,pad=1,bias,epilogue=relu",
    f"{GROUPS},groups=4,stride=2,layout=nchw_fchw",
]
SMALL, PHOTO = "matmul:m=64,n=128,k=96,dtype=", "conv2d:n=1,h=14,w=14,ci=64,co="
BOTH = [  # what the modules of two frameworks have between them
    SMALL + "f32,bias,epilogue=relu",
    SMALL + "f32,transpose_b",
    SMALL + "f32,transpose_b,bias,epilogue=relu",
    SMALL + "f32,weights=constant",
    SMALL + "i8",
    SMALL + "bf16",
    "matmul:batch=12,m=64,n=128,k=96,dtype=f32",
    "matmul:batch=12,m=64,n=128,k=96,dtype=f32,transpose_b",
    PHOTO + "96,kh=3,kw=3,pad=1,dtype=f32,bias,epilogue=relu",
    PHOTO + "96,kh=3,kw=3,pad=1,stride=2,layout=nchw_fchw,dtype=f32",
    PHOTO + "96,kh=3,kw=3,pad=1,layout=nchw_fchw,dtype=f32,bias,epilogue=relu",
    PHOTO + "96,kh=1,kw=1,layout=nchw_fchw,dtype=f32",
    PHOTO + "64,kh=3,kw=3,pad=1,groups=64,dtype=f32",
    PHOTO + "64,kh=3,kw=3,pad=1,groups=64,layout=nchw_fchw,dtype=f32,bias",
    SMALL + "f32,bias,epilogue=relu6",
    SMALL + "f32,transpose_b,bias,epilogue=relu6",
    PHOTO + "64,kh=3,kw=3,pad=1,groups=64,dtype=f32,bias,epilogue=relu6",
    PHOTO + "64,kh=3,kw=3,pad=1,groups=64,layout=nchw_fchw,dtype=f32,bias,epilogue=relu6",
]


def test_named_ops_and_generics_of_linalg() -> None:
    found = found_in(module_of(*LINALG), library_of(*LINALG))
    assert found == {f"f{at}": [name_of(text)] for at, text in enumerate(LINALG)}


ROUNDED_APART = """
#whole = affine_map<(m, n) -> (m, n)>
func.func @f(%a: tensor<9x19xbf16>, %b: tensor<19x33xbf16>, %bias: tensor<33xf32>)
    -> tensor<9x33xbf16> {
  %zero = arith.constant 0.0 : f32
  %wide = tensor.empty() : tensor<9x33xf32>
  %start = linalg.fill ins(%zero : f32) outs(%wide : tensor<9x33xf32>) -> tensor<9x33xf32>
  %sums = linalg.matmul ins(%a, %b : tensor<9x19xbf16>, tensor<19x33xbf16>)
      outs(%start : tensor<9x33xf32>) -> tensor<9x33xf32>
  %ended = linalg.generic {
      indexing_maps = [#whole, affine_map<(m, n) -> (n)>, #whole],
      iterator_types = ["parallel", "parallel"]}
      ins(%sums, %bias : tensor<9x33xf32>, tensor<33xf32>) outs(%wide : tensor<9x33xf32>) {
    ^bb0(%x: f32, %y: f32, %old: f32):
      %s = arith.addf %x, %y : f32
      %r = arith.maximumf %s, %zero : f32
      linalg.yield %r : f32
  } -> tensor<9x33xf32>
  %narrow = tensor.empty() : tensor<9x33xbf16>
  %rounded = linalg.generic {
      indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel"]}
      ins(%ended : tensor<9x33xf32>) outs(%narrow : tensor<9x33xbf16>) {
    ^bb0(%x: f32, %old: bf16):
      %n = arith.truncf %x : f32 to bf16
      linalg.yield %n : bf16
  } -> tensor<9x33xbf16>
  return %rounded : tensor<9x33xbf16>
}"""


def test_a_rounding_behind_joined_bias_and_relu_is_found() -> None:
    problem = PRODUCT + "bf16,out=bf16,bias,epilogue=relu"
    assert found_in(ROUNDED_APART, library_of(problem)) == {"f": [name_of(problem)]}
    without = ROUNDED_APART.replace("%r = arith.maximumf %s, %zero", "%r = arith.addf %s, %zero")
    assert found_in(without, library_of(problem)) == {}


def test_what_torch_mlir_makes() -> None:
    module = (SPELLED / "torch.mlir").read_text()
    fused = PHOTO + "96,kh=3,kw=3,pad=1,layout=nchw_fchw,dtype=f32,bias,epilogue=relu"
    cut_off = PHOTO + "64,kh=3,kw=3,pad=1,groups=64,layout=nchw_fchw,dtype=f32,bias,epilogue=relu6"
    assert found_in(module, library_of(*BOTH), "iree-input-type=torch") == {
        "linear": [name_of(SMALL + "f32,transpose_b,bias,epilogue=relu")],
        "bmm": [name_of("matmul:batch=12,m=64,n=128,k=96,dtype=f32")],
        "conv": [name_of(fused)],
        "convn": [name_of(PHOTO + "96,kh=1,kw=1,layout=nchw_fchw,dtype=f32")],
        "dw": [name_of(PHOTO + "64,kh=3,kw=3,pad=1,groups=64,layout=nchw_fchw,dtype=f32,bias")],
        "relu6": [name_of(SMALL + "f32,transpose_b,bias,epilogue=relu6")],
        "hardtanh": [name_of(cut_off)],
        "clamp": [name_of(cut_off)],
    }


def test_what_stablehlo_becomes() -> None:
    module = (SPELLED / "stablehlo.mlir").read_text()
    assert found_in(module, library_of(*BOTH), "iree-input-type=stablehlo") == {
        "dense": [name_of(SMALL + "f32,bias,epilogue=relu")],
        "bmm": [name_of("matmul:batch=12,m=64,n=128,k=96,dtype=f32,transpose_b")],
        "tb": [name_of(SMALL + "f32,transpose_b")],
        "i8": [name_of(SMALL + "i8")],
        "bf": [name_of(SMALL + "bf16")],
        "conv": [name_of(PHOTO + "96,kh=3,kw=3,pad=1,dtype=f32,bias,epilogue=relu")],
        "nchw": [name_of(PHOTO + "96,kh=3,kw=3,pad=1,stride=2,layout=nchw_fchw,dtype=f32")],
        "dw": [name_of(PHOTO + "64,kh=3,kw=3,pad=1,groups=64,dtype=f32")],
        "clamp": [name_of(SMALL + "f32,bias,epilogue=relu6")],
        "relu6": [name_of(PHOTO + "64,kh=3,kw=3,pad=1,groups=64,dtype=f32,bias,epilogue=relu6")],
        "dense3": [name_of(SMALL + "f32,weights=constant")],
    }
