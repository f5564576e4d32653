"""Sums of quadrants on NumPy arrays: of A's, of B's, and of the products that make C."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from tilewise.kernels.nest.arrays import Array
from tilewise.kernels.strassen import FILTER, IMAGE, PRODUCTS, RESULT


def groups_of_rows(a: Array, rows: int, group: int) -> Array:
    """Return rows of A in groups, [t, group, k], zero where the last group lacks some."""
    depth = a.shape[-1]
    padded = np.zeros((-(-rows // group) * group, depth))
    padded[:rows] = a.reshape(rows, depth)
    return padded.reshape(-1, group, depth)


def sums_of_a(groups: Array, levels: int) -> list[Array]:
    """Return the left factor, [t, k], of each product."""
    if levels == 0:
        return [groups[:, 0]]
    half = groups.shape[1] // 2
    halves = (groups[:, :half], groups[:, half:])
    quadrants = [part for rows in halves for part in np.split(rows, 2, axis=2)]
    return [one for left in IMAGE for one in sums_of_a(_sum(left, quadrants), levels - 1)]


def sums_of_b(b: Array, levels: int) -> list[Array]:
    """Return the right factor, [k, col], of each product."""
    if levels == 0:
        return [b]
    quadrants = [part for line in np.split(b, 2) for part in np.split(line, 2, axis=1)]
    return [one for right in FILTER for one in sums_of_b(_sum(right, quadrants), levels - 1)]


def combine(
    products: Array, levels: int, shape: tuple[int, ...], tiles: Array, cols: Array
) -> Iterator[tuple[tuple[Array, ...], Array, Array]]:
    """Yield the places of C of a shape, its columns, and their sums."""
    group, rows = 2**levels, int(np.prod(shape[:-1]))
    sums = _combined(list(products), levels)  # [t, row of group, part of cols, col]
    row = tiles[:, None] * group + np.arange(group)
    exist = row < rows
    column = (np.arange(group)[:, None] * (shape[-1] // group) + cols).reshape(-1)
    values = sums[exist].reshape(int(exist.sum()), -1)
    row, column = np.broadcast_arrays(row[exist][:, None], column)
    yield (*np.unravel_index(row, shape[:-1]), column), column, values


def _combined(products: list[Array], levels: int) -> Array:
    """[t, rows of a group, parts of the columns, columns of a part]."""
    if levels == 0:
        return products[0][:, None, None]
    each = len(products) // PRODUCTS
    inner = [_combined(products[each * i : each * (i + 1)], levels - 1) for i in range(PRODUCTS)]
    quadrants = [_sum(signs, inner) for signs in RESULT]
    lines = [np.concatenate(quadrants[2 * y : 2 * y + 2], axis=2) for y in range(2)]
    return np.concatenate(lines, axis=1)


def _sum(signs: Sequence[Fraction], parts: Sequence[Array]) -> Array:
    terms = [float(sign) * part for sign, part in zip(signs, parts, strict=True) if sign]
    out: Array = np.sum(terms, axis=0)
    return out
