"""The transforms of fast algorithms in NumPy: of blocks of A and B, and of the products to C.

Winograd: V = B' d B, U = G w G', C = A' M A, along both axes of a tile. Strassen: sums of blocks,
level by level (`tilewise.kernels.fast_algorithms`).
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from tilewise.kernels.fast_algorithms import BilinearAlgorithm, Matrix, WinogradTransforms
from tilewise.kernels.problem import Conv2d

Array = np.ndarray[Any, Any]
Sums = Iterator[tuple[tuple[Array, ...], Array, Array]]
"""Places of C as it is stored, their columns, and their sums."""


def winograd_filters(
    problem: Conv2d, transforms: WinogradTransforms, weights: Array, cols: Array
) -> Array:
    """Return transformed filters of some output channels, [point, ci, co]."""
    if problem.has_channels_first:
        weights = weights.transpose(2, 3, 1, 0)
    down, across = transforms.down.filter, transforms.across.filter
    return _merged(_both_sides(down, across, weights[:, :, :, cols]))


def winograd_images(
    problem: Conv2d, transforms: WinogradTransforms, image: Array, tiles: Array
) -> Array:
    """Return transformed tiles of images, [point, t, ci]; pixels outside of an image are zero."""
    image = image.transpose(0, 2, 3, 1) if problem.has_channels_first else image
    images, lines, pixels = _origins(problem, transforms, tiles)
    (down, across), (step_down, step_across) = transforms.input, transforms.step
    y = lines * step_down - problem.pads.top + np.arange(down)[:, None, None]
    x = pixels * step_across - problem.pads.left + np.arange(across)[None, :, None]
    inside = (y >= 0) & (y < problem.h) & (x >= 0) & (x < problem.w)
    found = image[images, np.clip(y, 0, problem.h - 1), np.clip(x, 0, problem.w - 1)]
    found = np.where(inside[..., None], found, 0)
    return _merged(_both_sides(transforms.down.image, transforms.across.image, found))


def winograd_results(
    problem: Conv2d, transforms: WinogradTransforms, products: Array, tiles: Array, cols: Array
) -> Sums:
    """Yield the pixels of the tiles that exist, and their sums, of [point, t, co]."""
    down, across = transforms.down, transforms.across
    shaped = products.reshape(*transforms.input, *products.shape[1:])
    sums = _both_sides(down.result, across.result, shaped)  # [down, across, t, co]
    images, lines, pixels = _origins(problem, transforms, tiles)
    y = lines * down.output + np.arange(down.output)[:, None, None]
    x = pixels * across.output + np.arange(across.output)[None, :, None]
    y, x, images = np.broadcast_arrays(y, x, images)
    exist = (y < problem.oh) & (x < problem.ow)
    n, y, x = (each[exist][:, None] for each in (images, y, x))
    cols = np.broadcast_to(cols, (len(n), len(cols)))
    where = (n, cols, y, x) if problem.has_channels_first else (n, y, x, cols)
    yield where, cols, sums[exist]


def _origins(
    problem: Conv2d, transforms: WinogradTransforms, tiles: Array
) -> tuple[Array, Array, Array]:
    """The image, and the line and column of tiles in it."""
    height, width = transforms.output
    down, across = -(-problem.oh // height), -(-problem.ow // width)
    return tiles // (down * across), tiles // across % down, tiles % across


def _both_sides(down: Matrix, across: Matrix, values: Array) -> Array:
    """The matrices times the first two axes."""
    first, second = (np.array(matrix, np.float64) for matrix in (down, across))
    out: Array = np.einsum("pi,qj,ij...->pq...", first, second, values, optimize=True)
    return out


def _merged(values: Array) -> Array:
    return values.reshape(-1, *values.shape[2:])


def strassen_rows(
    algorithm: BilinearAlgorithm, levels: int, a: Array, places: tuple[Array, ...]
) -> Array:
    """Return the left factors of the products, [point, t, k].

    Args:
        algorithm: of one level.
        levels: how often operands are cut in halves.
        a: as it is stored, the reduction last.
        places: of the rows in A, [t, row of a group]; a negative one is of a row that lacks.
    """
    groups = np.where((places[0] >= 0)[..., None], a[places], 0)

    def sums(groups: Array, levels: int) -> list[Array]:
        if levels == 0:
            return [groups[:, 0]]
        blocks = [b for rows in np.split(groups, 2, axis=1) for b in np.split(rows, 2, axis=2)]
        return [one for row in algorithm.image for one in sums(_sum(row, blocks), levels - 1)]

    return np.stack(sums(groups, levels))


def strassen_columns(algorithm: BilinearAlgorithm, levels: int, b: Array, cols: Array) -> Array:
    """Return the right factors of the products, [point, k, col], of columns of each part of B.

    Args:
        algorithm: of one level.
        levels: how often operands are cut in halves.
        b: [reduction, column].
        cols: of a part.
    """
    parts = b.reshape(len(b), 2**levels, -1)[:, :, cols]

    def sums(parts: Array, levels: int) -> list[Array]:
        if levels == 0:
            return [parts[:, 0]]
        blocks = [b for rows in np.split(parts, 2) for b in np.split(rows, 2, axis=1)]
        return [one for row in algorithm.filter for one in sums(_sum(row, blocks), levels - 1)]

    return np.stack(sums(parts, levels))


def strassen_results(
    algorithm: BilinearAlgorithm,
    levels: int,
    products: Array,
    shape: tuple[int, ...],
    tiles: Array,
    cols: Array,
) -> Sums:
    """Yield the places of C, of a shape, and their sums, of [point, t, col]."""
    group = 2**levels

    def combined(products: Array, levels: int) -> Array:
        """[t, row of a group, part of the columns, column]."""
        if levels == 0:
            return np.expand_dims(products[0], (1, 2))
        inner = [combined(one, levels - 1) for one in np.split(products, algorithm.products)]
        blocks = [_sum(row, inner) for row in algorithm.result]
        lines = [np.concatenate(blocks[2 * y : 2 * y + 2], axis=2) for y in range(2)]
        return np.concatenate(lines, axis=1)

    row = tiles[:, None] * group + np.arange(group)
    exist = row < prod(shape[:-1])
    column = (np.arange(group)[:, None] * (shape[-1] // group) + cols).reshape(-1)
    values = combined(products, levels)[exist].reshape(int(exist.sum()), -1)
    row, column = np.broadcast_arrays(row[exist][:, None], column)
    yield (*np.unravel_index(row, shape[:-1]), column), column, values


def _sum(row: Sequence[Fraction], blocks: Sequence[Array]) -> Array:
    out: Array = np.zeros_like(blocks[0])
    for coefficient, block in zip(row, blocks, strict=True):
        if coefficient:
            out += float(coefficient) * block
    return out
