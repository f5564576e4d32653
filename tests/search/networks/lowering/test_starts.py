"""What sums start from is neither lost nor written over; what nobody reads may be given."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.search.networks.lowering.drawn import loaded, plan_of
from tilewise.kernels.mlir.frontend.read import read_program
from tilewise.search.networks.lowering.memory import poison_activations
from tilewise.search.networks.variants import variants

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

Array = NDArray[np.float32]
RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> Array:
    """Numbers that are not the same along any axis."""
    return RANDOM.standard_normal(shape).astype(np.float32)


def dense(values: Array) -> str:
    """A constant's attribute."""
    shape = "x".join(map(str, values.shape))
    return f'dense<"0x{values.tobytes().hex().upper()}"> : tensor<{shape}xf32>'


def run(module: str, seed: int, *arguments: Array) -> tuple[Array, ...]:
    """The results of a module by a plan at random, in memory that was poisoned before."""
    program = read_program(module.encode())
    network = loaded(plan_of(program, seed, copy_us=0.01), program)
    poison_activations(network)
    network.run(*arguments)
    return network.run(*arguments)


def test_sums_start_from_a_constant() -> None:
    weights, start, image = drawn(5, 7), drawn(3, 7), drawn(3, 5)
    module = f"""
func.func @main(%x: tensor<3x5xf32>) -> tensor<3x7xf32> {{
  %w = arith.constant {dense(weights)}
  %c = arith.constant {dense(start)}
  %y = linalg.matmul ins(%x, %w : tensor<3x5xf32>, tensor<5x7xf32>)
                     outs(%c : tensor<3x7xf32>) -> tensor<3x7xf32>
  return %y : tensor<3x7xf32>
}}"""
    (found,) = run(module, 0, image)
    np.testing.assert_allclose(found, image @ weights + start, rtol=1e-5, atol=1e-5)


def test_an_argument_that_nobody_reads_is_taken() -> None:
    image = drawn(3, 5)
    module = """
func.func @main(%none: tensor<2x3xf32>, %x: tensor<3x5xf32>) -> tensor<3x5xf32> {
  return %x : tensor<3x5xf32>
}"""
    (found,) = run(module, 0, drawn(2, 3), image)
    np.testing.assert_array_equal(found, image)


CONVOLVED = """
  %{y} = linalg.conv_2d_nhwc_hwcf ins(%{x}, %{w} : tensor<1x4x4x6xf32>, tensor<1x1x6x6xf32>)
         outs(%{c} : tensor<1x4x4x6xf32>) -> tensor<1x4x4x6xf32>"""
AROUND = """
func.func @main(%x: tensor<1x4x4x6xf32>) -> (tensor<1x4x4x6xf32>, {type}) {{
  %w = arith.constant {weights}
  %none = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<1x4x4x6xf32>
  %zero = linalg.fill ins(%none : f32) outs(%empty : tensor<1x4x4x6xf32>) -> tensor<1x4x4x6xf32>
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
  %room = tensor.empty() : tensor<1x4x4x6xf32>
  %lowest = linalg.fill ins(%least : f32) outs(%room : tensor<1x4x4x6xf32>) -> tensor<1x4x4x6xf32>
  %r = linalg.pooling_nhwc_max ins(%p, %window : tensor<1x6x6x6xf32>, tensor<3x3xf32>)
       outs(%lowest : tensor<1x4x4x6xf32>) -> tensor<1x4x4x6xf32>"""


def two_sums(between: str, after: str, result: str) -> tuple[str, Array]:
    """Y = x * w, z = y + x * w; something between the two, and something behind."""
    weights = drawn(1, 1, 6, 6)
    first = CONVOLVED.format(y="y", x="x", w="w", c="zero")
    second = CONVOLVED.format(y="z", x="x", w="w", c="y")
    module = AROUND.format(type="tensor<1x4x4x6xf32>", weights=dense(weights), first=first,
                           between=between, second=second, after=after)  # fmt: skip
    return module.replace("%r :", f"{result} :"), weights[0, 0]


def test_a_pool_behind_reads_what_its_pad_has_read() -> None:
    module, weights = two_sums(PAD, POOL, "%r")
    image = drawn(1, 4, 4, 6)
    twice, pooled = run(module, 0, image)
    once = image @ weights
    wide = np.pad(once, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    seen = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (1, 2)).max((-1, -2))
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(pooled, seen, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", [0, 1])  # made in one layout, and added to in another
def test_a_result_stays_where_sums_start_from_it(seed: int) -> None:
    module, weights = two_sums("", "", "%y")
    image = drawn(1, 4, 4, 6)
    twice, once = run(module, seed, image)
    np.testing.assert_allclose(once, image @ weights, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-5, atol=1e-5)


PADDED = """
func.func @main(%x: tensor<1x{h}x{w}x4xf32>) -> tensor<1x{mh}x{mw}x4xf32> {{
  %least = arith.constant -3.40282347E+38 : f32
  %none = arith.constant {start} : f32
  %p = tensor.pad %x low[0, {low}, 0] high[0, {high}, 0] {{
    ^bb0(%i: index, %j: index, %k: index, %l: index):
      tensor.yield %least : f32
  }} : tensor<1x{h}x{w}x4xf32> to tensor<1x{ph}x{pw}x4xf32>
  %window = tensor.empty() : tensor<{taps}xf32>
  %room = tensor.empty() : tensor<1x{mh}x{mw}x4xf32>
  %lowest = linalg.fill ins(%none : f32) outs(%room : tensor<1x{mh}x{mw}x4xf32>)
            -> tensor<1x{mh}x{mw}x4xf32>
  %r = linalg.pooling_nhwc_max {{dilations = dense<[{dilation}, 1]> : tensor<2xi64>}}
       ins(%p, %window : tensor<1x{ph}x{pw}x4xf32>, tensor<{taps}xf32>)
       outs(%lowest : tensor<1x{mh}x{mw}x4xf32>) -> tensor<1x{mh}x{mw}x4xf32>
  return %r : tensor<1x{mh}x{mw}x4xf32>
}}"""


@pytest.mark.parametrize(
    ("image", "pads", "taps", "dilation", "start"),
    [
        ((3, 3), ((3, 2), (2, 3)), (2, 2), 1, "-3.40282347E+38"),  # windows outside of the image
        ((1, 1), ((1, 1), (0, 0)), (2, 1), 2, "0xFF800000"),  # and around it
        ((1, 1), ((2, 2), (0, 0)), (2, 1), 3, "0xFF800000"),
    ],
)
def test_windows_without_a_pixel_have_the_number_around_the_image(
    image: tuple[int, int], pads: tuple[tuple[int, int], tuple[int, int]], taps: tuple[int, int],
    dilation: int, start: str,
) -> None:  # fmt: skip
    x = drawn(1, *image, 4)
    wide = np.pad(x, ((0, 0), *pads, (0, 0)), constant_values=np.finfo(np.float32).min)
    spans = (dilation * (taps[0] - 1) + 1, taps[1])
    expected = np.lib.stride_tricks.sliding_window_view(wide, spans, (1, 2))
    expected = expected[..., ::dilation, :].max((-1, -2))
    (h, w), (ph, pw), (mh, mw) = image, wide.shape[1:3], expected.shape[1:3]
    low, high = (f"{pads[0][side]}, {pads[1][side]}" for side in (0, 1))
    (found,) = run(PADDED.format(h=h, w=w, ph=ph, pw=pw, mh=mh, mw=mw, low=low, high=high,
                                 start=start, taps=f"{taps[0]}x{taps[1]}", dilation=dilation),
                   0, x)  # fmt: skip
    np.testing.assert_array_equal(found, expected)


STARTED = """
func.func @main(%x: tensor<1x4x4x64xf32>, %s: tensor<16x64xf32>) -> tensor<1x4x4x64xf32> {{
  %w = arith.constant {weights}
  %f = arith.constant {factor}
  %none = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<16x64xf32>
  %zero = linalg.fill ins(%none : f32) outs(%empty : tensor<16x64xf32>) -> tensor<16x64xf32>
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
    weights, factor = drawn(1, 1, 64, 64), drawn(64, 64)
    image, other = drawn(1, 4, 4, 64), drawn(16, 64)
    module = STARTED.format(weights=dense(weights), factor=dense(factor))
    graph = read_program(module.encode()).outline.graph
    for node in graph.nodes:
        if node.found is not None and node.found.problem.startswith("conv2d"):
            own, *others = variants(node, graph, "all")
            assert not others, own
    expected = image @ weights[0, 0] + (other @ factor).reshape(image.shape)
    for seed in (1, 2):
        (found,) = run(module, seed, image, other)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
