"""Small networks, one of each family, as modules."""

from itertools import pairwise

from examples.models.bert import bert
from examples.models.graph import Graph, Value
from examples.models.mlp import mlp
from examples.models.spellings import spelled


def residual(spelling: str = "linalg") -> bytes:
    """A stem, a pool, a block with an identity, one with a projection, a classifier."""
    graph = Graph("residual", Value("given", (1, 24, 24, 3)))
    x = graph.max_pool(graph.conv(graph.given, 16, 7, 2))
    y = graph.conv(graph.conv(x, 16, 3), 16, 3, relu=False, gain=0.3)
    x = graph.add(y, x, relu=True)
    y = graph.conv(graph.conv(x, 32, 3, 2), 32, 1, relu=False, gain=0.3)
    x = graph.add(y, graph.conv(x, 32, 1, 2, relu=False), relu=True)
    graph.linear(graph.mean_pool(x), 24)
    return spelled(graph, spelling).encode()


def perceptron() -> bytes:
    """Three layers in bf16."""
    return spelled(mlp(small=True)).encode()


def encoder() -> bytes:
    """One layer of attention with its feed-forward part."""
    graph = bert(small=True)
    half = len(graph.layers) // 2
    del graph.layers[half:]
    return spelled(graph).encode()


def separable(h: int = 6, wide: int = 48, narrow: int = 32) -> bytes:
    """An inverted residual block of MobileNet's: widened, each channel by itself, narrowed, added.

    Weights are arguments.
    """
    image, inner = f"tensor<1x{h}x{h}x{narrow}xf32>", f"tensor<1x{h}x{h}x{wide}xf32>"
    padded = f"tensor<1x{h + 2}x{h + 2}x{wide}xf32>"
    steps = "{dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}"
    first, each, last = (
        f"tensor<1x1x{narrow}x{wide}xf32>",
        f"tensor<3x3x{wide}xf32>",
        f"tensor<1x1x{wide}x{narrow}xf32>",
    )
    clip = (
        "%low = arith.maximumf %in, %zero : f32\n%high = arith.minimumf %low, %six : f32\n"
        "linalg.yield %high : f32"
    )
    add = "%sum = arith.addf %in, %other : f32\nlinalg.yield %sum : f32"
    return f"""
func.func @main(%x: {image}, %f: {first}, %d: {each}, %p: {last}) -> {image} {{
  %zero = arith.constant 0.0 : f32
  %six = arith.constant 6.0 : f32
  %e = tensor.empty() : {inner}
  %z = linalg.fill ins(%zero : f32) outs(%e : {inner}) -> {inner}
  %0 = linalg.conv_2d_nhwc_hwcf {steps} ins(%x, %f : {image}, {first}) outs(%z : {inner}) -> {inner}
  %1 = {elementwise(["%0"], inner, clip)}
  %2 = tensor.pad %1 low[0, 1, 1, 0] high[0, 1, 1, 0] {{
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %zero : f32
  }} : {inner} to {padded}
  %3 = linalg.depthwise_conv_2d_nhwc_hwc {steps} ins(%2, %d : {padded}, {each})
    outs(%z : {inner}) -> {inner}
  %4 = {elementwise(["%3"], inner, clip)}
  %o = tensor.empty() : {image}
  %y = linalg.fill ins(%zero : f32) outs(%o : {image}) -> {image}
  %5 = linalg.conv_2d_nhwc_hwcf {steps} ins(%4, %p : {inner}, {last}) outs(%y : {image}) -> {image}
  %6 = {elementwise(["%5", "%x"], image, add)}
  return %6 : {image}
}}
""".encode()


def elementwise(reads: list[str], kind: str, body: str) -> str:
    """A generic on values of one type of four axes; its arguments are %in, %other, %out."""
    names = ["%in", "%other"][: len(reads)]
    same = "affine_map<(n, h, w, c) -> (n, h, w, c)>"
    maps = ", ".join([same] * (len(reads) + 1))
    arguments = ", ".join(f"{name}: f32" for name in [*names, "%out"])
    return f"""linalg.generic {{indexing_maps = [{maps}],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
      ins({", ".join(reads)} : {", ".join([kind] * len(reads))})
      outs({"%e" if "%5" not in reads else "%o"} : {kind}) {{
    ^bb0({arguments}):
      {body}
    }} -> {kind}"""


def products(m: int = 8, sizes: tuple[int, ...] = (24, 20)) -> bytes:
    """Products one after the other, with nothing between; weights are arguments."""
    given = "".join(f", %w{i}: tensor<{k}x{n}xf32>" for i, (k, n) in enumerate(pairwise(sizes)))
    lines, value = ["%zero = arith.constant 0.0 : f32"], "%x"
    for i, (k, n) in enumerate(pairwise(sizes)):
        kind = f"tensor<{m}x{n}xf32>"
        lines += [
            f"%e{i} = tensor.empty() : {kind}",
            f"%f{i} = linalg.fill ins(%zero : f32) outs(%e{i} : {kind}) -> {kind}",
            f"%p{i} = linalg.matmul ins({value}, %w{i} : tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) "
            f"outs(%f{i} : {kind}) -> {kind}",
        ]
        value = f"%p{i}"
    kind = f"tensor<{m}x{sizes[-1]}xf32>"
    body = "\n  ".join(lines)
    return f"""func.func @main(%x: tensor<{m}x{sizes[0]}xf32>{given}) -> {kind} {{
  {body}
  return {value} : {kind}
}}
""".encode()
