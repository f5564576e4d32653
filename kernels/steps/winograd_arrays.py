"""Winograd transforms on NumPy arrays: V = B' d B, U = G w G', C = A' M A."""

from collections.abc import Iterator, Mapping

import numpy as np

from tilewise.kernels.nest.arrays import Array, Indices
from tilewise.kernels.problem import Conv2d
from tilewise.kernels.steps.transformed import TILES
from tilewise.kernels.winograd import WinogradTransforms

Grid = tuple[int, int]
"""Tiles that cover one image's result, down and across."""


def filters(
    problem: Conv2d, transforms: WinogradTransforms, arrays: Mapping[str, Array], at: Indices
) -> Array:
    """Return transformed filters, [point, ci, co]."""
    weights = arrays["B"]
    if problem.has_channels_first:
        weights = weights.transpose(2, 3, 1, 0)
    found = _both(transforms.down.filter, transforms.across.filter, weights[:, :, :, at["co"]])
    return found.reshape(-1, *found.shape[2:])


def images(
    problem: Conv2d,
    transforms: WinogradTransforms,
    grid: Grid,
    arrays: Mapping[str, Array],
    at: Indices,
) -> Array:
    """Return transformed tiles of images, [point, t, ci]."""
    inputs = _inputs(problem, transforms, arrays["A"], _origins(grid, at[TILES]))
    found = _both(transforms.down.image, transforms.across.image, inputs)
    return found.reshape(-1, *found.shape[2:])


def combine(
    problem: Conv2d, transforms: WinogradTransforms, grid: Grid, products: Array, at: Indices
) -> Iterator[tuple[tuple[Array, ...], Array, Array]]:
    """Yield the pixels of the tiles that exist, and their sums."""
    down, across = transforms.down, transforms.across
    shaped = products.reshape(down.input, across.input, *products.shape[1:])
    sums = _both(down.result, across.result, shaped)  # [down, across, t, co]
    images, lines, pixels = _origins(grid, at[TILES])
    y = lines * down.output + np.arange(down.output)[:, None, None]
    x = pixels * across.output + np.arange(across.output)[None, :, None]
    y, x, images = np.broadcast_arrays(y, x, images)
    exist = (y < problem.oh) & (x < problem.ow)
    n, y, x = (each[exist][:, None] for each in (images, y, x))
    cols = np.broadcast_to(at["co"], (len(n), len(at["co"])))
    where = (n, cols, y, x) if problem.has_channels_first else (n, y, x, cols)
    yield where, cols, sums[exist]


def _origins(grid: Grid, tiles: Array) -> tuple[Array, Array, Array]:
    """The image, and the line and column of tiles in it."""
    down, across = grid
    return tiles // (down * across), tiles // across % down, tiles % across


def _inputs(
    problem: Conv2d,
    transforms: WinogradTransforms,
    image: Array,
    origins: tuple[Array, Array, Array],
) -> Array:
    """The pixels that tiles read, [down, across, t, ci], zero outside of the image."""
    down, across = transforms.input
    image = image.transpose(0, 2, 3, 1) if problem.has_channels_first else image
    images, lines, pixels = origins
    step_down, step_across = transforms.step
    y = lines * step_down - problem.pad + np.arange(down)[:, None, None]
    x = pixels * step_across - problem.pad + np.arange(across)[None, :, None]
    inside = (y >= 0) & (y < problem.h) & (x >= 0) & (x < problem.w)
    found = image[images, np.clip(y, 0, problem.h - 1), np.clip(x, 0, problem.w - 1)]
    return np.where(inside[..., None], found, 0)


def _both(down: object, across: object, values: Array) -> Array:
    """The matrices times the first two axes."""
    first, second = (np.array(matrix, np.float64) for matrix in (down, across))
    out: Array = np.einsum("pi,qj,ij...->pq...", first, second, values, optimize=True)
    return out
