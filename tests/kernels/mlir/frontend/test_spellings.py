"""What stands around a product is taken into its problem where that is the same, and only there."""

import pytest

from tilewise.kernels.mlir.frontend.graph import Imported
from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.problem import parse_problem

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

MM = "matmul:m=4,n=6,k=5,dtype=f32"
MM_1 = "matmul:m=1,n=6,k=5,dtype=f32"
CONV = "conv2d:n=1,h=8,w=8,ci=3,co=5,kh=3,kw=3"
MAPS = {
    "rows": "affine_map<(i, j) -> (i)>",
    "columns": "affine_map<(i, j) -> (j)>",
    "whole": "affine_map<(i, j) -> (i, j)>",
    "turned": "affine_map<(i, j) -> (j, i)>",
}
START = """
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x6xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x6xf32>) -> tensor<4x6xf32>
"""
PRODUCT = """
  %p = linalg.matmul ins(%a, %b : tensor<4x5xf32>, tensor<5x6xf32>)
      outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
"""


def function(arguments: str, body: str, value: str, kind: str) -> str:
    """A function that returns a value; its name is that of the spelling."""
    return f"func.func @NAME({arguments}) -> {kind} {{\n{body}\n  return {value} : {kind}\n}}\n"


def ended(ending: str, value: str = "%r", kind: str = "tensor<4x6xf32>", start: str = START) -> str:
    """A matmul, and what is done to its result."""
    arguments = ("%a: tensor<4x5xf32>, %b: tensor<5x6xf32>, %bias: tensor<6xf32>, "
                 "%tall: tensor<4xf32>, %c: tensor<4x6xf32>")  # fmt: skip
    return function(arguments, start + PRODUCT + ending, value, kind)


def elementwise(
    value: str, body: str, added: str = "", at: str = "columns", name: str = "r"
) -> str:
    """A generic on a 4x6 tensor and perhaps another operand; the body makes %v of %x and %y."""
    kinds = {"rows": "tensor<4xf32>", "columns": "tensor<6xf32>", "whole": "tensor<4x6xf32>"}
    maps = [MAPS["whole"], *([MAPS[at]] if added else []), MAPS["whole"]]
    values, types = [value, *([added] if added else [])], ["tensor<4x6xf32>", kinds[at]]
    names = ["%x: f32", *(["%y: f32"] if added else []), "%o: f32"]
    return f"""
  %{name} = linalg.generic {{indexing_maps = [{", ".join(maps)}],
      iterator_types = ["parallel", "parallel"]}}
      ins({", ".join(values)} : {", ".join(types[: len(values)])})
      outs(%empty : tensor<4x6xf32>) {{
  ^bb0({", ".join(names)}):
    {body}
    linalg.yield %v : f32
  }} -> tensor<4x6xf32>
"""


ADD = "%v = arith.addf %x, %y : f32"
RELUS = {
    "maximumf": "%v = arith.maximumf %x, %zero : f32",
    "maxnumf": "%v = arith.maxnumf %zero, %x : f32",
    "ugt": "%m = arith.cmpf ugt, %x, %zero : f32\n    %v = arith.select %m, %x, %zero : f32",
    "olt": "%m = arith.cmpf olt, %x, %zero : f32\n    %v = arith.select %m, %zero, %x : f32",
    "absf": "%h = arith.constant 0.5 : f32\n    %m = math.absf %x : f32\n"
    "    %s = arith.addf %m, %x : f32\n    %v = arith.mulf %s, %h : f32",
    "clamp": "%h = arith.constant 3.40282347E+38 : f32\n"
    "    %m = arith.minimumf %x, %h : f32\n    %v = arith.maximumf %m, %zero : f32",
}
NO_RELUS = {
    "minimum": "%v = arith.minimumf %x, %zero : f32",
    "of_one": "%h = arith.constant 1.0 : f32\n    %v = arith.maximumf %x, %h : f32",
    "six_alone": "%h = arith.constant 6.0 : f32\n    %v = arith.minimumf %x, %h : f32",
    "seven": "%h = arith.constant 7.0 : f32\n"
    "    %m = arith.minimumf %x, %h : f32\n    %v = arith.maximumf %m, %zero : f32",
    "at_least_six": "%h = arith.constant 6.0 : f32\n"
    "    %m = arith.maximumf %x, %h : f32\n    %v = arith.maximumf %m, %zero : f32",
    "leaky": "%m = arith.cmpf ogt, %x, %zero : f32\n    %h = arith.mulf %x, %x : f32\n"
    "    %v = arith.select %m, %x, %h : f32",
    "threshold": "%h = arith.constant 0.05 : f32\n    %m = arith.cmpf ogt, %x, %h : f32\n"
    "    %v = arith.select %m, %x, %zero : f32",
    "backwards": "%m = arith.cmpf ogt, %x, %zero : f32\n    %v = arith.select %m, %zero, %x : f32",
}
SIX = "%h = arith.constant 6.0 : f32\n    "
RELU6S = {
    "clamp": f"{SIX}%m = arith.minimumf %x, %h : f32\n    %v = arith.maximumf %m, %zero : f32",
    "named": f"{SIX}%m = arith.maximumf %x, %zero : f32\n    %v = arith.minnumf %h, %m : f32",
    "torch_clamp": f"{SIX}%l = arith.cmpf ult, %x, %zero : f32\n"
    "    %m = arith.select %l, %zero, %x : f32\n    %g = arith.cmpf ugt, %m, %h : f32\n"
    "    %v = arith.select %g, %h, %m : f32",
}
SCALAR = """
  %six = arith.constant dense<6.0> : tensor<f32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> ()>, affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%six, %q : tensor<f32>, tensor<4x6xf32>) outs(%empty : tensor<4x6xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %m = arith.cmpf olt, %x, %y : f32
    %v = arith.select %m, %x, %y : f32
    linalg.yield %v : f32
  } -> tensor<4x6xf32>
"""
TWO_OPS = """
  %z = arith.constant dense<0.0> : tensor<4x6xf32>
  %h = arith.constant dense<{}> : tensor<4x6xf32>
  %m = arith.cmpf ogt, %p, %h : tensor<4x6xf32>
  %r = arith.select %m, %p, %z : tensor<4x6xi1>, tensor<4x6xf32>
"""
BROADCAST = """
  %wide = linalg.broadcast ins({0} : {1}) outs(%empty : tensor<4x6xf32>) dimensions = [{2}]
"""

HALF, ONE = "%h = arith.constant 0.5 : f32\n    ", "%q8 = arith.constant 1.0 : f32\n    "
SMOOTH = {
    "gelu_tanh": ("gelu_tanh", f"""{HALF}{ONE}%q7 = arith.constant 0.797724 : f32
    %q6 = arith.constant 0.044715 : f32
    %three = arith.constant 3.0 : f32
    %q0 = math.powf %x, %three : f32
    %q1 = math.fma %q0, %q6, %x : f32
    %q2 = arith.mulf %q1, %q7 : f32
    %q3 = math.tanh %q2 : f32
    %q4 = arith.addf %q3, %q8 : f32
    %q5 = arith.mulf %x, %h : f32
    %v = arith.mulf %q4, %q5 : f32"""),
    "silu": ("silu", f"""{ONE}%q0 = arith.negf %x : f32
    %q1 = math.exp %q0 : f32
    %q2 = arith.addf %q1, %q8 : f32
    %q3 = arith.divf %q8, %q2 : f32
    %v = arith.mulf %q3, %x : f32"""),
    "quick_gelu": ("", f"""{ONE}%q7 = arith.constant -1.702 : f32
    %q0 = arith.mulf %x, %q7 : f32
    %q1 = math.exp %q0 : f32
    %q2 = arith.addf %q1, %q8 : f32
    %v = arith.divf %x, %q2 : f32"""),
}  # fmt: skip
SMOOTH["silu_and_a_little"] = ("", SMOOTH["silu"][1].replace("%v", "%w") + """
    %little = arith.constant 5.0e-7 : f32
    %v = arith.addf %w, %little : f32""")  # fmt: skip


def _endings() -> dict[str, tuple[str, str]]:
    both, relu = (elementwise("%p", *one, name="q") for one in ((ADD, "%bias"), (RELUS["ugt"],)))
    residual = ended(elementwise("%p", ADD, "%c", "whole"))
    many = residual.translate({52: "64", 53: "512", 54: "512"})  # 4, 5, 6
    narrow = residual.replace("4x5xf32", "4x5xbf16").replace("5x6xf32", "5x6xbf16")
    constant = "%d = arith.constant dense<2.0> : tensor<512x512xf32>"
    held = many.replace("%p = ", f"{constant}\n %p = ").replace("a, %b", "a, %d")
    bodies = [
        *((f"relu_{name}", body, "relu") for name, body in RELUS.items()),
        *((f"no_{name}", body, "") for name, body in NO_RELUS.items()),
        *((f"relu6_{name}", body, "relu6") for name, body in RELU6S.items()),
        *((f"smooth_{name}", body, epilogue) for name, (epilogue, body) in SMOOTH.items()),
    ]
    cases = {
        name: (ended(elementwise("%p", body)), f"{MM},epilogue={epilogue}" if epilogue else MM)
        for name, body, epilogue in bodies
    }
    cases |= {
        "relu_of_two_ops": (ended(TWO_OPS.format(0.0)), f"{MM},epilogue=relu"),
        "threshold_of_two_ops": (ended(TWO_OPS.format(0.05)), MM),
        "relu6_from_above": (ended(elementwise("%p", NO_RELUS["six_alone"], name="q")
                                   + elementwise("%q", RELUS["maximumf"])), f"{MM},epilogue=relu6"),
        "relu6_twice": (ended(relu + SCALAR), f"{MM},epilogue=relu6"),
        "bias": (ended(elementwise("%p", ADD, "%bias")), f"{MM},bias"),
        "bias_relu": (ended(both + elementwise("%q", RELUS["maximumf"])),
                      f"{MM},bias,epilogue=relu"),
        "bias_of_rows": (ended(elementwise("%p", ADD, "%tall", "rows")), MM),
        "residual": (residual, f"{MM},add"),
        "residual_of_many": (many, "matmul:m=64,n=512,k=512,dtype=f32,add"),
        "residual_of_bf16": (narrow, "matmul:m=4,n=6,k=5,dtype=bf16"),
        "residual_of_weights": (held, "matmul:m=64,n=512,k=512,dtype=f32,weights=constant"),
        "minus": (ended(elementwise("%p", "%v = arith.subf %x, %y : f32", "%bias")), MM),
        "relu_bias": (ended(relu + elementwise("%q", ADD, "%bias")), f"{MM},epilogue=relu"),
        "two_biases": (ended(both + elementwise("%q", ADD, "%bias")), f"{MM},bias"),
        "two_users": (ended(elementwise("%p", ADD, "%bias", name="q")
                            + elementwise("%p", ADD, "%q", "whole")), MM),
        "bias_broadcast": (ended(BROADCAST.format("%bias", "tensor<6xf32>", 0)
                                 + elementwise("%p", ADD, "%wide", "whole")), f"{MM},bias"),
        "bias_broadcast_down": (
            ended(BROADCAST.format("%tall", "tensor<4xf32>", 1)
                  + elementwise("%p", ADD, "%wide", "whole")), MM),
        "on_tensors": (ended("\n  %z = arith.constant dense<0.0> : tensor<4x6xf32>\n"
                             "  %r = arith.maximumf %p, %z : tensor<4x6xf32>"),
                       f"{MM},epilogue=relu"),
        "seen_otherwise": (
            ended("""
  %e = tensor.expand_shape %p [[0], [1, 2]] output_shape [4, 2, 3]
      : tensor<4x6xf32> into tensor<4x2x3xf32>
  %z = arith.constant dense<0.0> : tensor<4x2x3xf32>
  %r = arith.maximumf %e, %z : tensor<4x2x3xf32>
""", kind="tensor<4x2x3xf32>"), f"{MM},epilogue=relu"),
        "in_place": (ended(f"""
  %r = linalg.generic {{indexing_maps = [{MAPS["columns"]}, {MAPS["whole"]}],
      iterator_types = ["parallel", "parallel"]}} ins(%bias : tensor<6xf32>)
      outs(%p : tensor<4x6xf32>) {{
  ^bb0(%x: f32, %o: f32):
    %v = arith.addf %x, %o : f32
    linalg.yield %v : f32
  }} -> tensor<4x6xf32>
"""), f"{MM},bias"),
        "turned_result": (ended("""
  %t = tensor.empty() : tensor<6x4xf32>
  %r = linalg.transpose ins(%p : tensor<4x6xf32>) outs(%t : tensor<6x4xf32>) permutation = [1, 0]
""", kind="tensor<6x4xf32>"), "matmul:m=6,n=4,k=5,dtype=f32,transpose_a,transpose_b"),
    }  # fmt: skip
    return cases


def _starts() -> dict[str, tuple[str, str]]:
    shape = "tensor<4x6xf32>"

    def start(lines: str) -> str:
        return ended("", "%p", start=f"\n  %empty = tensor.empty() : {shape}\n" + lines)

    return {
        "start_bias": (start(BROADCAST.format("%bias", "tensor<6xf32>", 0).replace(
            "%wide", "%init")), f"{MM},bias"),
        "start_rows": (start(BROADCAST.format("%tall", "tensor<4xf32>", 1).replace(
            "%wide", "%init")), f"{MM},init=accumulate"),
        "start_zeros": (start(f"  %init = arith.constant dense<0.0> : {shape}"), MM),
        "start_splat": (start(f"  %init = arith.constant dense<0.5> : {shape}"),
                        f"{MM},bias"),
        "start_filled": (start(f"""  %half = arith.constant 0.5 : f32
  %init = linalg.fill ins(%half : f32) outs(%empty : {shape}) -> {shape}"""), f"{MM},bias"),
        "start_constant": (
            start(f"  %init = arith.constant dense_resource<k> : {shape}"),
            f"{MM},init=accumulate"),
        "start_argument": (
            start(f"  %init = tensor.cast %c : {shape} to {shape}"),
            f"{MM},init=accumulate"),
        "start_one_row": (function("%a: tensor<1x5xf32>, %b: tensor<5x6xf32>", """
  %init = arith.constant dense<[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]> : tensor<1x6xf32>
  %p = linalg.matmul ins(%a, %b : tensor<1x5xf32>, tensor<5x6xf32>)
      outs(%init : tensor<1x6xf32>) -> tensor<1x6xf32>""", "%p", "tensor<1x6xf32>"),
            f"{MM_1},bias"),
    }  # fmt: skip


def _weights() -> dict[str, tuple[str, str]]:
    def product(lines: str) -> str:
        return function("%a: tensor<4x5xf32>, %x: tensor<6x5xf32>", START + lines + PRODUCT,
                        "%p", "tensor<4x6xf32>")  # fmt: skip

    transposed = """
  %e = tensor.empty() : tensor<5x6xf32>
  %b = linalg.transpose ins(%x : tensor<6x5xf32>) outs(%e : tensor<5x6xf32>) permutation = [1, 0]
"""
    constant = "  %w = arith.constant dense_resource<w> : tensor<6x5xf32>\n"
    return {
        "weights": (product("  %b = arith.constant dense_resource<w> : tensor<5x6xf32>"),
                    f"{MM},weights=constant"),
        "weights_transposed": (product(constant + transposed.replace("%x", "%w")),
                           "matmul:m=4,n=6,k=5,dtype=f32,transpose_b,weights=constant"),
        "transposed": (product(transposed), "matmul:m=4,n=6,k=5,dtype=f32,transpose_b"),
        "weights_global": (product("  %b = util.global.load @frozen : tensor<5x6xf32>"),
            f"{MM},weights=constant"),
        "weights_times_an_argument": (product("""
  %at = arith.constant 0 : index
  %y = tensor.extract %x[%at, %at] : tensor<6x5xf32>
  %w = arith.constant dense_resource<w> : tensor<5x6xf32>""" + elementwise(
            "%w", "%v = arith.mulf %x, %y : f32", name="b"
        ).replace("4x6", "5x6").replace("%empty", "%w").replace("%x", "%q")), MM),
        "variable_global": (product("  %b = util.global.load @changing : tensor<5x6xf32>"), MM),
        "weights_reshaped": (product("""
  %w = arith.constant dense_resource<w> : tensor<30xf32>
  %b = tensor.expand_shape %w [[0, 1]] output_shape [5, 6] : tensor<30xf32> into tensor<5x6xf32>
"""), f"{MM},weights=constant"),
    }  # fmt: skip


GLOBALS = """
util.global private @frozen = #flow.parameter.named<"model"::"w"> : tensor<5x6xf32>
util.global private mutable @changing : tensor<5x6xf32>
"""


def _pads() -> dict[str, tuple[str, str]]:
    """Of an image of 6x6, or of what makes 8x8 of it, for a filter of 3x3."""
    line = "tensor<2x6x3xf32>"

    def padded(low: str, high: str, shape: str, value: str = "0.0", extra: str = "",
               image: str = "1x6x6x3") -> str:  # fmt: skip
        whole = [int(size) for size in shape.split("x")]
        result = f"tensor<1x{whole[1] - 2}x{whole[2] - 2}x5xf32>"
        return function(f"%a: tensor<{image}xf32>, %b: tensor<3x3x{whole[3]}x5xf32>", f"""
  %zero = arith.constant 0.0 : f32
  %blank = arith.constant {value} : f32
  %empty = tensor.empty() : {result}
  %init = linalg.fill ins(%zero : f32) outs(%empty : {result}) -> {result}
  %padded = tensor.pad %a low[{low}] high[{high}] {{
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %blank : f32
  }} : tensor<{image}xf32> to tensor<{shape}xf32>
  %p = linalg.conv_2d_nhwc_hwcf ins(%padded, %b : tensor<{shape}xf32>,
      tensor<3x3x{whole[3]}x5xf32>) outs(%init : {result}) -> {result}
{extra}""", "%p", result)  # fmt: skip

    conv, of_6 = f"{CONV},dtype=f32", f"{CONV.replace('8', '6')},pad={{}},dtype=f32"
    around = padded("0, 1, 1, 0", "0, 1, 1, 0", "1x8x8x3")
    own = "%own = arith.constant 0.0 : f32\n    tensor.yield %own"
    return {
        "pad": (around, of_6.format(1)),
        "pad_inside": (around.replace("tensor.yield %blank", own), of_6.format(1)),
        "pad_of_one": (padded("0, 1, 1, 0", "0, 1, 1, 0", "1x8x8x3", "1.0"), conv),
        "pad_after": (padded("0, 0, 0, 0", "0, 2, 2, 0", "1x8x8x3"), of_6.format("0x0x2x2")),
        "pad_one_way": (padded("0, 1, 0, 0", "0, 1, 0, 0", "1x8x6x3"), of_6.format("1x0")),
        "pad_of_a_line": (function(f"%a: {line}, %b: tensor<3x3x5xf32>", """
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<2x7x5xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x7x5xf32>) -> tensor<2x7x5xf32>
  %padded = tensor.pad %a low[0, 1, 0] high[0, 2, 0] {
  ^bb0(%i: index, %j: index, %k: index):
    tensor.yield %zero : f32
  } : tensor<2x6x3xf32> to tensor<2x9x3xf32>
  %p = linalg.conv_1d_nwc_wcf ins(%padded, %b : tensor<2x9x3xf32>, tensor<3x3x5xf32>)
      outs(%init : tensor<2x7x5xf32>) -> tensor<2x7x5xf32>
""", "%p", "tensor<2x7x5xf32>"),
            "conv2d:n=2,h=1,w=6,ci=3,co=5,kh=1,kw=3,pad=0x1x0x2,dtype=f32"),
        "pad_channels": (padded("0, 1, 1, 1", "0, 1, 1, 0", "1x8x8x4"),
                         conv.replace("ci=3", "ci=4")),
        "pad_shared": (padded("0, 1, 1, 0", "0, 1, 1, 0", "1x8x8x3", extra="""
  %other = linalg.conv_2d_nhwc_hwcf ins(%padded, %b : tensor<1x8x8x3xf32>, tensor<3x3x3x5xf32>)
      outs(%p : tensor<1x6x6x5xf32>) -> tensor<1x6x6x5xf32>"""), conv),
        "inserted": (function("%a: tensor<1x6x6x3xf32>, %b: tensor<3x3x3x5xf32>", """
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<1x6x6x5xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<1x6x6x5xf32>) -> tensor<1x6x6x5xf32>
  %image = tensor.empty() : tensor<1x8x8x3xf32>
  %blank = linalg.fill ins(%zero : f32) outs(%image : tensor<1x8x8x3xf32>) -> tensor<1x8x8x3xf32>
  %padded = tensor.insert_slice %a into %blank[0, 1, 1, 0] [1, 6, 6, 3] [1, 1, 1, 1]
      : tensor<1x6x6x3xf32> into tensor<1x8x8x3xf32>
  %p = linalg.conv_2d_nhwc_hwcf ins(%padded, %b : tensor<1x8x8x3xf32>, tensor<3x3x3x5xf32>)
      outs(%init : tensor<1x6x6x5xf32>) -> tensor<1x6x6x5xf32>
""", "%p", "tensor<1x6x6x5xf32>"),
            of_6.format(1)),
    }  # fmt: skip


def _layouts() -> dict[str, tuple[str, str]]:
    """Named convolutions: their image, filter, result and attributes, and what they are."""
    grouped = "conv2d:n=1,h=8,w=8,ci=4,co=6,kh=3,kw=3,groups=2"
    deep = "conv2d:n=1,h=8,w=8,ci=4,co=4,kh=3,kw=3,groups=4"
    many = "conv2d:n=1,h=8,w=8,ci=4,co=8,kh=3,kw=3,groups=4"
    of = {
        "conv_2d_nhwc_hwcf": ("1x8x8x3", "3x3x3x5", "1x6x6x5", CONV),
        "conv_2d_nhwc_fhwc": ("1x8x8x3", "5x3x3x3", "1x6x6x5", CONV),
        "conv_2d_nchw_fchw": ("1x3x8x8", "5x3x3x3", "1x5x6x6", f"{CONV},layout=nchw_fchw"),
        "conv_2d_ngchw_fgchw": ("1x2x2x8x8", "3x2x2x3x3", "1x2x3x6x6",
                                f"{grouped},layout=nchw_fchw"),
        "conv_2d_ngchw_gfchw": ("1x2x2x8x8", "2x3x2x3x3", "1x2x3x6x6",
                                f"{grouped},layout=nchw_fchw"),
        "conv_2d_nhwgc_gfhwc": ("1x8x8x2x2", "2x3x3x3x2", "1x6x6x2x3", grouped),
        "depthwise_conv_2d_nhwc_hwc": ("1x8x8x4", "3x3x4", "1x6x6x4", deep),
        "depthwise_conv_2d_nhwc_hwcm": ("1x8x8x4", "3x3x4x2", "1x6x6x4x2", many),
        "depthwise_conv_2d_nchw_chw": ("1x4x8x8", "4x3x3", "1x4x6x6", f"{deep},layout=nchw_fchw"),
    }  # fmt: skip
    found = {}
    for op, (image, filters, result, problem) in of.items():
        a, b, c = (f"tensor<{shape}xf32>" for shape in (image, filters, result))
        body = f"""
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : {c}
  %init = linalg.fill ins(%zero : f32) outs(%empty : {c}) -> {c}
  %p = linalg.{op} ins(%a, %b : {a}, {b}) outs(%init : {c}) -> {c}
"""
        found[op] = (function(f"%a: {a}, %b: {b}", body, "%p", c), f"{problem},dtype=f32")
    return found


_EVERY = _endings() | _starts() | _weights() | _pads() | _layouts()
SPELLINGS = {name: (one[0].replace("@NAME", f"@{name}"), one[1]) for name, one in _EVERY.items()}


@pytest.fixture(scope="module")
def imported() -> Imported:
    return read_module("\n".join([GLOBALS, *(text for text, _ in SPELLINGS.values())]).encode())


def test_of_two_products_of_one_row_the_second_adds_the_first() -> None:
    text = ended(PRODUCT.replace("%p", "%q") + elementwise("%p", ADD, "%q", "whole"))
    found = read_module(text.translate({52: "1"}).encode()).occurrences  # 4
    assert [one.problem for one in found] == [MM_1, f"{MM_1},bias"]


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_spelling_is_read_as(name: str, imported: Imported) -> None:
    found = [one for one in imported.occurrences if one.where.startswith(f"@{name} ")]
    refused = [one for one in imported.skipped if one.where.startswith(f"@{name} ")]
    assert found, refused
    assert found[0].problem == parse_problem(SPELLINGS[name][1]).canonical


ROUNDING = """
func.func @main(%a: tensor<5x7x{dtype}>, %b: tensor<7x9x{dtype}>, %c: tensor<5x9xf32>,
    %bias: tensor<9xf32>) -> tensor<5x9x{last}> {{
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x9xf32>
  %n = tensor.empty() : tensor<5x9x{out}>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<5x9xf32>) -> tensor<5x9xf32>
  %p = linalg.matmul ins(%a, %b : tensor<5x7x{dtype}>, tensor<7x9x{dtype}>)
    outs(%{start} : tensor<5x9xf32>) -> tensor<5x9xf32>
  {body}
  return %r : tensor<5x9x{last}>
}}
"""
ROUNDED = """%r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>,
    affine_map<(i, j) -> (j)>,
    affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
    ins(%p, %bias : tensor<5x9xf32>, tensor<9xf32>) outs(%n : tensor<5x9x{out}>) {{
  ^bb0(%x: f32, %y: f32, %o: {out}):
    %s = arith.addf %x, %y : f32
    %m = arith.maximumf %s, %z : f32
    %t = arith.truncf %m : f32 to {out}
    linalg.yield %t : {out}
  }} -> tensor<5x9x{out}>"""
ON_TENSORS = "%r = arith.truncf %p : tensor<5x9xf32> to tensor<5x9x{out}>"
AND_AGAIN = ON_TENSORS.replace("%r", "%q") + ("\n  %r = arith.addf %q, %q : tensor<5x9x{out}>")
AND_RELU = AND_AGAIN.replace("addf %q, %q", "maximumf %q, %q0").replace(
    "%q =", "%q0 = arith.constant dense<0.0> : tensor<5x9x{out}>\n  %q ="
)
MATMUL = "matmul:m=5,n=9,k=7,dtype="


@pytest.mark.parametrize(("dtype", "out", "start", "body", "problem"), [
    ("bf16", "bf16", "f", ROUNDED, "bf16,out=bf16,bias,epilogue=relu"),
    ("f16", "f16", "f", ON_TENSORS, "f16,out=f16"),
    ("f16", "bf16", "f", ON_TENSORS, "f16,out=bf16"),
    ("bf16", "bf16", "f", AND_AGAIN, "bf16,out=bf16"),
    ("bf16", "bf16", "f", AND_RELU, "bf16,out=bf16,epilogue=relu"),
    ("f32", "bf16", "f", ON_TENSORS, "f32"),
    ("bf16", "f8E5M2", "f", ON_TENSORS, "bf16"),
    ("bf16", "bf16", "c", ON_TENSORS, "bf16,init=accumulate"),
])  # fmt: skip
def test_a_rounding_of_sums_is_read_as(dtype, out, start, body, problem) -> None:
    names = {"dtype": dtype, "out": out, "last": out, "start": start}
    text = ROUNDING.format(body=body.format(**names), **names)
    (found,) = read_module(text.encode()).occurrences
    assert found.problem == parse_problem(MATMUL + problem).canonical
