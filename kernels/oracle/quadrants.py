"""How far off a product of matrices by Strassen's method may be (`tilewise.kernels.strassen`).

Sums of quadrants mix elements of several rows and columns, so the error of an element is bounded
by magnitudes of its group of rows and of all parts of the columns, block by block,
|RESULT| (|IMAGE||A| * |FILTER||B|), times the rounding of as long a sum. Higham (Accuracy and
Stability of Numerical Algorithms, 2002, section 23.2.2) bounds the norm so; the constant is that of
`tilewise.kernels.oracle`.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from tilewise.kernels.oracle.operands import Array, Operands
from tilewise.kernels.oracle.tolerance import TINY, Expected, error_bound
from tilewise.kernels.problem import Problem
from tilewise.kernels.strassen import FILTER, IMAGE, PRODUCTS, RESULT

ROWS = 2048
"""Of A that are looked at together: a whole one would need as much memory again."""

ROUNDINGS = 8
"""At most so many a value meets in a level: two terms of A, two of B, four of C."""


def loosened_by_quadrants(
    problem: Problem, operands: Operands, expected: Expected, levels: int
) -> Expected:
    """What a right result by Strassen's method looks like; the same value.

    Args:
        problem: a matmul, or a convolution of single pixels, of floats.
        operands: its factors.
        expected: of the direct method.
        levels: how often the factors are cut in halves.
    """
    assert expected.tolerance is not None
    b = np.abs(operands["B"], dtype=np.float64)
    b = (b.T if problem.has_transposed_b else b).reshape(-1, expected.value.shape[-1])
    a, group = _rows(problem, operands["A"]).reshape(-1, len(b)), 2**levels
    sums = _sums_of_b(b, levels)
    unit = error_bound(len(b) // group + ROUNDINGS * levels, problem.element.accumulator)
    tolerance = expected.tolerance + TINY
    by_row = tolerance.reshape(len(a), -1)
    for first in range(0, len(a), ROWS):
        rows = np.abs(a[first : first + ROWS], dtype=np.float64)
        whole = np.concatenate([rows, np.zeros((-len(rows) % group, len(b)))])
        by_row[first : first + ROWS] += unit * _magnitudes(whole, sums, levels)[: len(rows)]
    return Expected(expected.value, tolerance)


def _rows(problem: Problem, a: Array) -> Array:
    """Those of A that are multiplied: a stride leaves pixels out."""
    step = problem.stride
    return a if step == 1 else a[:, ::step, ::step]


def _magnitudes(a: Array, sums: Sequence[Array], levels: int) -> Array:
    """The sums of magnitudes that each element of the result is made of.

    Args:
        a: magnitudes of the left factor, in whole groups of rows.
        sums: of the right factor's blocks, by `_sums_of_b`.
        levels: how often the factors are cut in halves.
    """
    if levels == 0:
        found: Array = a @ sums[0]
        return found
    half, each = 2 ** (levels - 1), len(sums) // PRODUCTS
    rows = a.reshape(-1, 2, half, a.shape[1])
    of_a = [
        part for y in range(2) for part in np.split(rows[:, y].reshape(-1, a.shape[1]), 2, axis=1)
    ]
    products = [
        _magnitudes(_sum(left, of_a), sums[each * number : each * (number + 1)], levels - 1)
        for number, left in enumerate(IMAGE)
    ]
    of_c = [_sum(terms, products) for terms in RESULT]
    lines = [np.concatenate(of_c[2 * y : 2 * y + 2], axis=1) for y in range(2)]
    width = lines[0].shape[1]
    joined: Array = np.stack([line.reshape(-1, half, width) for line in lines], axis=1)
    return joined.reshape(-1, width)


def _sums_of_b(b: Array, levels: int) -> list[Array]:
    """What is multiplied with sums of blocks of the left factor, product by product.

    They take 7/4 of the factor's memory for each level.
    """
    if levels == 0:
        return [b]
    quadrants = [part for line in np.split(b, 2) for part in np.split(line, 2, axis=1)]
    return [one for right in FILTER for one in _sums_of_b(_sum(right, quadrants), levels - 1)]


def _sum(signs: Sequence[Fraction], parts: Sequence[Array]) -> Array:
    """The sum of the parts that have a sign, whichever: these are magnitudes."""
    first, *others = (part for sign, part in zip(signs, parts, strict=True) if sign)
    found = first.copy()
    for part in others:
        found += part
    return found
