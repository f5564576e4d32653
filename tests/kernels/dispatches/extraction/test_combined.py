"""Ops whose operands lie in another order, with pads and endings around: matched, and right."""

import numpy as np
import pytest

from tests.kernels.dispatches.matching import random_arrays
from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.extraction.extract import Cut, cut_module, patterns_of
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.oracle.operands import Array
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Tile
from tilewise.kernels.target import Target

PAD = """
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad {source} low[{around}] high[{around}] {{
  ^bb0({places}):
    tensor.yield %zero : f32
  }} : {small} to {large}"""
BODY = """{{
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  }}"""


def kind(*shape: int) -> str:
    """A tensor's type."""
    return f"tensor<{'x'.join(map(str, shape))}xf32>"


def padded(source: str, shape: tuple[int, ...], windows: tuple[int, int]) -> str:
    """Lines that put one zero around a source."""
    around = [int(axis in windows) for axis in range(len(shape))]
    large = [size + 2 * more for size, more in zip(shape, around, strict=True)]
    return PAD.format(
        source=source,
        around=", ".join(map(str, around)),
        places=", ".join(f"%i{axis}: index" for axis in range(len(shape))),
        small=kind(*shape),
        large=kind(*large),
    )


def zeros(*shape: int) -> str:
    """Lines of a result that starts from zeros."""
    return f"""
  %e = tensor.empty() : {kind(*shape)}
  %f = linalg.fill ins(%zero : f32) outs(%e : {kind(*shape)}) -> {kind(*shape)}"""


def grouped() -> str:
    """Two groups of channels, whose filters are `g k r s c`."""
    x, w, y = kind(1, 9, 9, 2, 4), kind(2, 16, 3, 3, 4), kind(1, 9, 9, 2, 16)
    loops = "n, h, w, g, k, r, s, c"
    maps = ", ".join(
        f"affine_map<({loops}) -> ({place})>"
        for place in ("n, h + r, w + s, g, c", "g, k, r, s, c", "n, h, w, g, k")
    )
    kinds = ", ".join(['"parallel"'] * 5 + ['"reduction"'] * 3)
    return f"""func.func @main(%x: {x}, %w: {w}) -> {y} {{
  {padded("%x", (1, 9, 9, 2, 4), (1, 2))}{zeros(1, 9, 9, 2, 16)}
  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
    ins(%p, %w : {kind(1, 11, 11, 2, 4)}, {w}) outs(%f : {y}) {BODY.format()} -> {y}
  return %r : {y}
}}"""


def reshaped_result() -> str:
    """A product with its result transposed, then in two dims, then without what is below zero."""
    x, w, y = kind(3, 5, 8), kind(8, 5, 16), kind(16, 3, 5)
    maps = ", ".join(
        f"affine_map<(m, d, n, k) -> ({place})>" for place in ("m, d, k", "k, d, n", "n, m, d")
    )
    kinds = ", ".join(['"parallel"'] * 3 + ['"reduction"'])
    same = "affine_map<(i, j) -> (i, j)>"
    return f"""func.func @main(%x: {x}, %w: {w}) -> tensor<16x15xf32> {{
  %zero = arith.constant 0.0 : f32{zeros(16, 3, 5)}
  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
    ins(%x, %w : {x}, {w}) outs(%f : {y}) {BODY.format()} -> {y}
  %flat = tensor.collapse_shape %r [[0], [1, 2]] : {y} into tensor<16x15xf32>
  %t = tensor.empty() : tensor<16x15xf32>
  %max = linalg.generic {{indexing_maps = [{same}, {same}],
    iterator_types = ["parallel", "parallel"]}}
    ins(%flat : tensor<16x15xf32>) outs(%t : tensor<16x15xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %s = arith.maximumf %a, %zero : f32
    linalg.yield %s : f32
  }} -> tensor<16x15xf32>
  return %max : tensor<16x15xf32>
}}"""


def convolved(image: Array, filters: Array) -> Array:
    """Of `n h w g c` and `g k r s c`, with a zero around."""
    wide = np.pad(image, [(0, 0), (1, 1), (1, 1), (0, 0), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (1, 2))
    return np.einsum("nhwgcrs,gkrsc->nhwgk", windows, filters)


def run_with_kernel(module: str, host: Target, inputs: list[Array]) -> tuple[Cut, Array]:
    """The only op of a module, and what the module computes with the op's kernel."""
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    (cut,) = cut_module(module.encode())
    assert cut.pattern is not None, cut.reason
    steps = [
        *(
            Tile(dim, 1)
            for dim, key in (("g", "groups="), ("batch", "batch="))
            if key in cut.problem
        ),
        *([Pack("A")] if "pad=" in cut.problem else []),
        Register(1, host.lanes("f32")),
    ]
    schedule = Schedule(tuple(steps))
    kernel = compiled(LibraryEntry(parse_problem(cut.problem), schedule), host)
    made = compiled_with(module, text_of([kernel], host, (), patterns_of([cut])))
    assert made.kernels == (kernel.name,)
    given = [(one, "FLOAT_32") for one in inputs]
    (found,) = LoadedModule(made.code, open_device(1)).results("main", given)
    return cut, found


def test_a_padded_image_in_groups_whose_filters_are_one_after_another(host: Target) -> None:
    image, weights = random_arrays((1, 9, 9, 2, 4), (2, 16, 3, 3, 4))
    cut, found = run_with_kernel(grouped(), host, [image, weights])
    assert ",pad=1," in cut.problem and "groups=2" in cut.problem
    np.testing.assert_allclose(found, convolved(image, weights), atol=1e-4)


def test_an_op_without_a_pattern_of_all_that_is_around_it_loses_the_least(host: Target) -> None:
    """A result in another order is not followed through a reshape, so relu stays IREE's."""
    (whole,) = read_module(reshaped_result().encode()).occurrences
    assert "relu" in whole.fused
    (cut,) = cut_module(reshaped_result().encode())
    assert cut.pattern is not None, cut.reason
    assert (cut.whole, cut.problem) == (
        whole.problem, whole.problem.replace(",epilogue=relu", ""),
    )  # fmt: skip
    x, w = random_arrays((3, 5, 8), (8, 5, 16))
    _, found = run_with_kernel(reshaped_result(), host, [x, w])
    expected = np.maximum(np.einsum("mdk,kdn->nmd", x, w), 0).reshape(16, 15)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_zeros_around_an_image_that_is_transposed_afterwards_are_no_pad(host: Target) -> None:
    """The problem's image would be the one before the transposition, in another order."""
    x, w, y = kind(1, 8, 9, 9), kind(3, 3, 8, 16), kind(1, 9, 9, 16)
    module = f"""func.func @main(%x: {x}, %w: {w}) -> {y} {{
  {padded("%x", (1, 8, 9, 9), (2, 3))}{zeros(1, 9, 9, 16)}
  %te = tensor.empty() : {kind(1, 11, 11, 8)}
  %t = linalg.transpose ins(%p : {kind(1, 8, 11, 11)}) outs(%te : {kind(1, 11, 11, 8)})
    permutation = [0, 2, 3, 1]
  %r = linalg.conv_2d_nhwc_hwcf {{dilations = dense<1> : tensor<2xi64>,
    strides = dense<1> : tensor<2xi64>}}
    ins(%t, %w : {kind(1, 11, 11, 8)}, {w}) outs(%f : {y}) -> {y}
  return %r : {y}
}}"""
    image, weights = random_arrays((1, 8, 9, 9), (3, 3, 8, 16))
    _, found = run_with_kernel(module, host, [image, weights])
    nhwgc = image.transpose(0, 2, 3, 1)[..., np.newaxis, :]
    expected = convolved(nhwgc, weights.transpose(3, 0, 1, 2)[np.newaxis])
    np.testing.assert_allclose(found, expected[..., 0, :], atol=1e-4)
