"""Passes over rows and what sums start from, in whatever shapes and layouts."""

import numpy as np
import pytest

from examples.models.graph import Array
from tests.cases import some
from tests.kernels.mlir.payloads import generic, pointwise
from tests.search.networks.lowering.drawn import labels, loaded, plan_of
from tilewise.kernels.mlir.frontend.read import read_program
from tilewise.kernels.native.conversion import Conversion, moves_of
from tilewise.kernels.target import detect
from tilewise.search.networks.loader.network import Network
from tilewise.search.networks.lowering import non_gemm
from tilewise.search.networks.lowering.kernel_calls import Memory
from tilewise.search.networks.lowering.memory import Arena, placed, poison_activations
from tilewise.search.networks.lowering.network import LoweredNetwork
from tilewise.search.networks.variants import variants

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
THREADS = range(1, 1 + min(2, detect().cores))


def network(text: str, threads: int = 1) -> Network:
    program = read_program(text.encode())
    return loaded(plan_of(program, 1, threads), program)


def run(made: Network, *arguments: Array) -> Array:
    poison_activations(made)
    (result,) = made.run(*arguments)
    return result


def values(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


ALL, EACH = "d0, d1, d2, d3", "d0, d1, d2, 0"
MASKED_BY = [
    ("s", [f"%x[{ALL}]", "%view[d0, 0, 0, d3]"], f"%wide[{ALL}]",
     "%t = arith.mulf %a, %by : f32 %r = arith.addf %t, %b : f32", 0),
    ("m", [f"%s[{ALL}]"], f"%lows[{EACH}]", "%r = arith.maximumf %a, %o : f32", 1),
    ("e", [f"%s[{ALL}]", f"%m[{EACH}]"], f"%wide[{ALL}]",
     "%t = arith.subf %a, %b : f32 %r = math.exp %t : f32", 0),
    ("n", [f"%e[{ALL}]"], f"%zeros[{EACH}]", "%r = arith.addf %o, %a : f32", 1),
    ("p", [f"%e[{ALL}]", f"%n[{EACH}]"], f"%wide[{ALL}]", "%r = arith.divf %a, %b : f32", 0),
]  # fmt: skip
MASKED = f"""
func.func @main(%x: tensor<2x3x7x37xf32>, %mask: tensor<2x37xf32>) -> tensor<2x3x7x37xf32> {{
  %by = arith.constant 0.25 : f32
  %wide = tensor.empty() : tensor<2x3x7x37xf32>
  %lows = arith.constant dense<0xFF800000> : tensor<2x3x7x1xf32>
  %zeros = arith.constant dense<0.0> : tensor<2x3x7x1xf32>
  %view = tensor.expand_shape %mask [[0], [1, 2, 3]] output_shape [2, 1, 1, 37]
      : tensor<2x37xf32> into tensor<2x1x1x37xf32>
  {"".join(generic(name, (2, 3, 7, 37), *op) for name, *op in MASKED_BY)}
  return %p : tensor<2x3x7x37xf32>
}}
"""


def test_rows_that_are_too_long_to_be_kept() -> None:
    text = MASKED.replace("2x3x7", "1x1x2").replace("37", "30011").replace("tensor<2x", "tensor<1x")
    made = network(text.replace("[2, 1, 1", "[1, 1, 1"))
    assert labels(made)[0].count("; ") == 4
    x, mask = 5 * values(1, 1, 2, 30011), values(1, 30011)
    expected = softmax(x.astype(float) / 4 + mask)
    np.testing.assert_allclose(run(made, x, mask), expected, rtol=1e-5)


@pytest.mark.parametrize("threads", THREADS)
def test_a_masked_softmax_is_one_pass(threads: int) -> None:
    made = network(MASKED, threads)
    assert len(labels(made)) == 1
    x, mask = 5 * values(2, 3, 7, 37), np.where(values(2, 37) > 0.5, -np.inf, 0)
    found = run(made, x, mask.astype(np.float32))
    expected = softmax(x.astype(float) / 4 + mask[:, None, None, :])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    assert (found[expected == 0] == 0).all()


TRANSPOSED = """
func.func @main(%x: tensor<AxBxCxf32>) -> tensor<CxDxf32> {
  %to = tensor.empty() : tensor<CxAxBxf32>
  %first = linalg.transpose ins(%x : tensor<AxBxCxf32>) outs(%to : tensor<CxAxBxf32>)
      permutation = [2, 0, 1]
  %second = math.tanh %first : tensor<CxAxBxf32>
  %last = tensor.collapse_shape %second [[0], [1, 2]] : tensor<CxAxBxf32> into tensor<CxDxf32>
  return %last : tensor<CxDxf32>
}
"""


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("shape", [(5, 6, 50), (1, 49, 48)])  # the second one in parts of a block
def test_a_transposition_and_what_follows_in_another_shape(shape, threads: int) -> None:
    x, text = values(*shape), TRANSPOSED
    for name, size in zip("ABCD", (*shape, shape[0] * shape[1]), strict=True):
        text = text.replace(f"<{name}x", f"<{size}x").replace(f"x{name}x", f"x{size}x")
    program = read_program(text.encode())
    step, *_ = LoweredNetwork(plan_of(program, 1, threads), program).steps
    assert [row[2] < row[3] for row in step.rows] == [True] * threads
    made = network(text, threads)
    assert labels(made)[0] == "transposition"
    expected = np.tanh(x.astype(float).transpose(2, 0, 1).reshape(shape[2], -1))
    np.testing.assert_allclose(run(made, x), expected, rtol=1e-6)


MAXIMUM = generic("m", (4, 9), ["%x[d0, d1]"], "%lows[d0]", "%r = arith.maximumf %a, %o : f32", 1)
LEAST = f"""
func.func @main(%x: tensor<4x9xf32>) -> tensor<4xf32> {{
  %lows = arith.constant dense<-3.40282347E+38> : tensor<4xf32>
  {MAXIMUM}
  return %m : tensor<4xf32>
}}
"""


def test_a_maximum_of_infinities_is_what_it_starts_from() -> None:
    x = values(4, 9)
    x[1], x[2, 3] = -np.inf, np.nan
    expected = x.max(-1)
    expected[1] = np.finfo(np.float32).min
    np.testing.assert_array_equal(run(network(LEAST), x), expected)
    assert (run(network(pointwise("%r = arith.constant 3.0 : f32")), *[values(61)] * 2) == 3).all()


SHARED_BY = [
    ("s", ["%x[d0, d1]", "%y[d1, d0]"], "%wide[d0, d1]", "%r = arith.subf %a, %b : f32", 0),
    ("t", ["%s[d0, d1]"], "%zeros[d0]", "%r = arith.addf %a, %o : f32", 1),
    ("u", ["%s[d0, d1]", "%t[d0]"], "%wide[d0, d1]",
     "%g = arith.cmpf ugt, %a, %b : f32 %r = arith.select %g, %a, %zero : f32", 0),
]  # fmt: skip
SHARED = f"""
func.func @main(%x: tensor<4x9xf32>, %y: tensor<9x4xf32>) -> (tensor<4x9xf32>, tensor<4xf32>) {{
  %zero = arith.constant 0.0 : f32
  %wide = tensor.empty() : tensor<4x9xf32>
  %zeros = arith.constant dense<0.0> : tensor<4xf32>
  {"".join(generic(name, (4, 9), *op) for name, *op in SHARED_BY)}
  return %u, %t : tensor<4x9xf32>, tensor<4xf32>
}}
"""


def test_an_operand_across_the_rows_and_results_on_the_way() -> None:
    x, y = values(4, 9), values(9, 4)
    made = network(SHARED)
    poison_activations(made)
    chosen, sums = made.run(x, y)
    rest = x - y.T
    np.testing.assert_allclose(sums, rest.sum(1), rtol=1e-5, atol=1e-6)
    assert np.array_equal(chosen, np.where(rest > sums[:, None], rest, 0))


def dense(values: Array) -> str:
    """A constant's attribute."""
    shape = "x".join(map(str, values.shape))
    return f'dense<"0x{values.tobytes().hex().upper()}"> : tensor<{shape}xf32>'


def constant(name: str, array: Array) -> str:
    return f"\n  %{name} = arith.constant {dense(array)}"


def convolution(name: str, given: str, weights: str, shapes: tuple[str, str, str]) -> str:
    """One of 1x1, channels first."""
    x, w, y = (f"tensor<{shape}xf32>" for shape in shapes)
    return f"""
  %{name}_zeros = arith.constant dense<0.0> : {y}
  %{name} = linalg.conv_2d_nchw_fchw {{dilations = dense<1> : tensor<2xi64>,
                                       strides = dense<1> : tensor<2xi64>}}
      ins(%{given}, %{weights} : {x}, {w}) outs(%{name}_zeros : {y}) -> {y}"""


def test_elements_in_whatever_order_the_layers_around_have_them() -> None:
    wide, narrow = values(16, 8, 1, 1), values(8, 16, 1, 1)
    scale, x = values(16), values(1, 8, 6, 5)
    product = generic(
        "e", (1, 16, 6, 5), ["%c[d0, d1, d2, d3]", "%scale[d1]"], "%c_zeros[d0, d1, d2, d3]",
        "%t = arith.mulf %a, %b : f32 %r = math.tanh %t : f32",
    )  # fmt: skip
    text = f"""
func.func @main(%x: tensor<1x8x6x5xf32>) -> tensor<1x8x6x5xf32> {{
  {constant("wide", wide)}{constant("narrow", narrow)}{constant("scale", scale)}
  {convolution("c", "x", "wide", ("1x8x6x5", "16x8x1x1", "1x16x6x5"))}
  {product}
  {convolution("d", "e", "narrow", ("1x16x6x5", "8x16x1x1", "1x8x6x5"))}
  return %d : tensor<1x8x6x5xf32>
}}
"""
    program = read_program(text.encode())
    plans = (plan_of(program, seed, copy_us=0.1) for seed in range(9))
    plan = next(one for one in plans if not one.nodes[1].makes[0].layout.is_plain)
    made = loaded(plan, program)
    assert sum("tanh" in label for label in labels(made)) == 1
    inner = np.einsum("oc,chw->ohw", wide[..., 0, 0], x[0], dtype=float)
    inner = np.tanh(inner * scale[:, None, None])
    expected = np.einsum("oc,chw->ohw", narrow[..., 0, 0], inner)
    np.testing.assert_allclose(run(made, x)[0], expected, rtol=1e-4, atol=1e-5)


SQUEEZED = """
func.func @main(%x: tensor<1x6x7x4xf32>) -> (tensor<1x4x5x8xf32>, tensor<1x6x7xf32>) {
  %filter = arith.constant dense<"0x@FILTER@"> : tensor<3x3x4x8xf32>
  %t = math.tanh %x : tensor<1x6x7x4xf32>
  %from = arith.constant dense<0.0> : tensor<1x6x7xf32>
  %m = linalg.reduce {arith.addf} ins(%t : tensor<1x6x7x4xf32>) outs(%from : tensor<1x6x7xf32>)
      dimensions = [3]
  %zeros = arith.constant dense<0.0> : tensor<1x4x5x8xf32>
  %c = linalg.conv_2d_nhwc_hwcf ins(%t, %filter : tensor<1x6x7x4xf32>, tensor<3x3x4x8xf32>)
      outs(%zeros : tensor<1x4x5x8xf32>) -> tensor<1x4x5x8xf32>
  return %c, %m : tensor<1x4x5x8xf32>, tensor<1x6x7xf32>
}
"""


@pytest.mark.full
def test_a_tensor_inside_a_group_is_copied_behind_it() -> None:
    weights, image = values(3, 3, 4, 8), values(1, 6, 7, 4)
    text = SQUEEZED.replace("@FILTER@", weights.tobytes().hex().upper())
    program = read_program(text.encode())
    turned = np.tanh(image.astype(np.float64))
    taps = [(i, j) for i in range(3) for j in range(3)]
    expected = sum(turned[:, i : i + 4, j : j + 5] @ weights[i, j] for i, j in taps)
    copied = 0
    for seed in range(12):
        made = loaded(plan_of(program, seed, copy_us=0.1), program)
        copied += "copy of tensor 1" in " ".join(labels(made))
        for _ in range(2):  # the first run may find what the loading has left
            poison_activations(made)
            convolved, sums = made.run(image)
            assert np.abs(convolved - expected).max() < 1e-5 * np.abs(expected).max(), labels(made)
            assert np.abs(sums - turned.sum(3)).max() < 1e-5
    assert copied


def run_twice(module: str, seed: int, *arguments: Array, threads: int = 1) -> tuple[Array, ...]:
    """The results of a module by a plan at random, in memory that was poisoned before."""
    program = read_program(module.encode())
    made = loaded(plan_of(program, seed, threads, copy_us=0.01), program)
    poison_activations(made)
    made.run(*arguments)
    return made.run(*arguments)


def test_sums_start_from_a_constant_and_an_argument_may_be_unread_or_a_result() -> None:
    weights, start, image = values(5, 7), values(3, 7), values(3, 5)
    module = f"""
func.func @main(%none: tensor<2x3xf32>, %x: tensor<3x5xf32>)
    -> (tensor<3x7xf32>, tensor<3x5xf32>) {{
  %w = arith.constant {dense(weights)}
  %c = arith.constant {dense(start)}
  %y = linalg.matmul ins(%x, %w : tensor<3x5xf32>, tensor<5x7xf32>)
                     outs(%c : tensor<3x7xf32>) -> tensor<3x7xf32>
  return %y, %x : tensor<3x7xf32>, tensor<3x5xf32>
}}"""
    found, same = run_twice(module, 0, values(2, 3), image)
    np.testing.assert_allclose(found, image @ weights + start, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(same, image)


CONVOLVED = """
  %{y} = linalg.conv_2d_nhwc_hwcf ins(%{x}, %{w} : tensor<1x4x4x6xf32>, tensor<1x1x6x6xf32>)
         outs(%{c} : tensor<1x4x4x6xf32>) -> tensor<1x4x4x6xf32>"""
AROUND = """
func.func @main(%x: tensor<1x4x4x6xf32>) -> (tensor<1x4x4x6xf32>, {type}) {{
  %w = arith.constant {weights}
  %zero = arith.constant dense<0.0> : tensor<1x4x4x6xf32>
  {first}
  {between}
  {second}
  {after}
  return %z, %r : tensor<1x4x4x6xf32>, {type}
}}"""
PAD = """
  %least = arith.constant 0xFF800000 : f32
  %p = tensor.pad %y low[0, 1, 1, 0] high[0, 1, 1, 0] {
    ^bb0(%i: index, %j: index, %k: index, %l: index):
      tensor.yield %least : f32
  } : tensor<1x4x4x6xf32> to tensor<1x6x6x6xf32>"""
POOL = """
  %window = tensor.empty() : tensor<3x3xf32>
  %lowest = arith.constant dense<0xFF800000> : tensor<1x4x4x6xf32>
  %r = linalg.pooling_nhwc_max ins(%p, %window : tensor<1x6x6x6xf32>, tensor<3x3xf32>)
       outs(%lowest : tensor<1x4x4x6xf32>) -> tensor<1x4x4x6xf32>"""


def two_sums(between: str, after: str, result: str) -> tuple[str, Array]:
    """Y = x * w, z = y + x * w; something between the two, and something behind."""
    weights = values(1, 1, 6, 6)
    first = CONVOLVED.format(y="y", x="x", w="w", c="zero")
    second = CONVOLVED.format(y="z", x="x", w="w", c="y")
    module = AROUND.format(type="tensor<1x4x4x6xf32>", weights=dense(weights), first=first,
                           between=between, second=second, after=after)  # fmt: skip
    return module.replace("%r :", f"{result} :"), weights[0, 0]


@pytest.mark.full
def test_a_pool_behind_reads_what_its_pad_has_read() -> None:
    module, weights = two_sums(PAD, POOL, "%r")
    image = values(1, 4, 4, 6)
    twice, pooled = run_twice(module, 0, image)
    once = image @ weights
    wide = np.pad(once, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    seen = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (1, 2)).max((-1, -2))
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(pooled, seen, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", [0, 1])  # made in one layout, and added to in another
def test_a_result_stays_where_sums_start_from_it(seed: int) -> None:
    module, weights = two_sums("", "", "%y")
    image = values(1, 4, 4, 6)
    twice, once = run_twice(module, seed, image)
    np.testing.assert_allclose(once, image @ weights, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-5, atol=1e-5)


PADDED = """
func.func @main(%x: tensor<1x{h}x{w}x4xf32>) -> tensor<1x{mh}x{mw}x4xf32> {{
  %least = arith.constant -3.40282347E+38 : f32
  %p = tensor.pad %x low[0, {low}, 0] high[0, {high}, 0] {{
    ^bb0(%i: index, %j: index, %k: index, %l: index):
      tensor.yield %least : f32
  }} : tensor<1x{h}x{w}x4xf32> to tensor<1x{ph}x{pw}x4xf32>
  %window = tensor.empty() : tensor<{taps}xf32>
  %lowest = arith.constant dense<{start}> : tensor<1x{mh}x{mw}x4xf32>
  %r = linalg.pooling_nhwc_max {{dilations = dense<[{dilation}, 1]> : tensor<2xi64>}}
       ins(%p, %window : tensor<1x{ph}x{pw}x4xf32>, tensor<{taps}xf32>)
       outs(%lowest : tensor<1x{mh}x{mw}x4xf32>) -> tensor<1x{mh}x{mw}x4xf32>
  return %r : tensor<1x{mh}x{mw}x4xf32>
}}"""


@pytest.mark.parametrize(("image", "pads", "taps", "dilation", "start"), some([
    ((3, 3), ((3, 2), (2, 3)), (2, 2), 1, "-3.40282347E+38"),  # windows outside of the image
    ((1, 1), ((1, 1), (0, 0)), (2, 1), 2, "0xFF800000"),  # and around it
    ((1, 1), ((2, 2), (0, 0)), (2, 1), 3, "0xFF800000"),
], of=3))  # fmt: skip
def test_windows_without_a_pixel_have_the_number_around(image, pads, taps, dilation, start) -> None:
    x = values(1, *image, 4)
    wide = np.pad(x, ((0, 0), *pads, (0, 0)), constant_values=np.finfo(np.float32).min)
    spans = (dilation * (taps[0] - 1) + 1, taps[1])
    expected = np.lib.stride_tricks.sliding_window_view(wide, spans, (1, 2))
    expected = expected[..., ::dilation, :].max((-1, -2))
    (h, w), (ph, pw), (mh, mw) = image, wide.shape[1:3], expected.shape[1:3]
    low, high = (f"{pads[0][side]}, {pads[1][side]}" for side in (0, 1))
    (found,) = run_twice(PADDED.format(h=h, w=w, ph=ph, pw=pw, mh=mh, mw=mw, low=low, high=high,
                                 start=start, taps=f"{taps[0]}x{taps[1]}", dilation=dilation),
                   0, x)  # fmt: skip
    np.testing.assert_array_equal(found, expected)


STARTED = """
func.func @main(%x: tensor<1x4x4x64xf32>, %s: tensor<16x64xf32>) -> tensor<1x4x4x64xf32> {{
  %w = arith.constant {weights}
  %f = arith.constant {factor}
  %zero = arith.constant dense<0.0> : tensor<16x64xf32>
  %m = linalg.matmul ins(%s, %f : tensor<16x64xf32>, tensor<64x64xf32>)
                     outs(%zero : tensor<16x64xf32>) -> tensor<16x64xf32>
  %v = tensor.expand_shape %m [[0, 1, 2], [3]] output_shape [1, 4, 4, 64]
       : tensor<16x64xf32> into tensor<1x4x4x64xf32>
  %y = linalg.conv_2d_nhwc_hwcf
       ins(%x, %w : tensor<1x4x4x64xf32>, tensor<1x1x64x64xf32>)
       outs(%v : tensor<1x4x4x64xf32>) -> tensor<1x4x4x64xf32>
  return %y : tensor<1x4x4x64xf32>
}}"""


def test_sums_start_from_a_view_in_the_order_that_it_has() -> None:
    weights, factor = values(1, 1, 64, 64), values(64, 64)
    image, other = values(1, 4, 4, 64), values(16, 64)
    module = STARTED.format(weights=dense(weights), factor=dense(factor))
    graph = read_program(module.encode()).outline.graph
    for node in graph.nodes:
        if node.found is not None and node.found.problem.startswith("conv2d"):
            own, *others = variants(node, graph, "all")
            assert not others, own
    expected = image @ weights[0, 0] + (other @ factor).reshape(image.shape)
    for seed in (1, 2):
        (found,) = run_twice(module, seed, image, other)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_each_thread_copies_elements_of_its_own() -> None:
    moves, counts = moves_of(Conversion((2, 70), (0, 1), (0, 1), (1, 0))), np.zeros(4 * 70, int)
    for part in non_gemm._parts(moves, Memory(Arena(0), placed([]), Arena(0), 8), size=2):
        np.add.at(counts, part.tos[:, None] + np.arange(part.lengths[0]), 1)
    assert (counts.reshape(4, 70) == [[0], [1], [1], [0]]).all()
