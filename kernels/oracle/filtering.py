"""How far off a convolution by minimal filtering may be (`kernels.minimal_filtering`).

A tile's transforms add and subtract values of the whole tile, so the error of a pixel is bounded
by magnitudes of its neighbours, and not by |A||B| of its own: |A'| (|G||w||G'| * |B'||d||B|) |A|,
element by element, times the rounding of as long a sum. That is the bound of Barabasz, Anderson,
Soodhalter and Gregg (Error Analysis and Improving the Accuracy of Winograd Convolution for Deep
Neural Networks, ACM TOMS 46(4), 2020), with the probabilistic constant of `kernels.oracle`.
"""

import numpy as np

from kernels.minimal_filtering import TAPS, Matrix, minimal_filtering
from kernels.oracle.operands import Array, Operands, operand_type, widened
from kernels.oracle.tolerance import TINY, Expected, error_bound
from kernels.problem import Conv2d, Problem

TRANSFORM_ROUNDINGS = 32
"""At most so many roundings a value meets in the three transforms, along both sides of each."""


def loosened(problem: Problem, operands: Operands, expected: Expected, output: int) -> Expected:
    """What a right result by F(output x output, 3x3) looks like; the same value.

    Args:
        problem: a convolution of floats.
        operands: its image, filter and, where it has one, bias.
        expected: of the direct method.
        output: pixels of a side of a tile.
    """
    assert isinstance(problem, Conv2d) and expected.tolerance is not None
    size = _magnitudes(problem, operands, output)
    unit = error_bound(problem.ci + TRANSFORM_ROUNDINGS, problem.element.accumulator)
    return Expected(expected.value, expected.tolerance + unit * size + TINY)


def _magnitudes(problem: Conv2d, operands: Operands, output: int) -> Array:
    """The sums of magnitudes that each pixel of the result is made of."""
    image, weights = (
        np.abs(widened(operands[name], operand_type(problem, name))) for name in ("A", "B")
    )
    if problem.has_channels_first:
        image, weights = image.transpose(0, 2, 3, 1), weights.transpose(2, 3, 1, 0)
    filtering = minimal_filtering(output)
    tiles = _tiles(problem, image, output, filtering.input)
    transformed = _both_sides(filtering.image, tiles)
    products = np.einsum(
        "ijnyxc,ijcf->ijnyxf", transformed, _both_sides(filtering.filter, weights), optimize=True
    )
    found = _both_sides(filtering.result, products)
    n, down, across = found.shape[2:5]
    lines = found.transpose(2, 3, 0, 4, 1, 5).reshape(n, down * output, across * output, problem.co)
    lines = lines[:, : problem.oh, : problem.ow]
    return lines.transpose(0, 3, 1, 2) if problem.has_channels_first else lines


def _tiles(problem: Conv2d, image: Array, output: int, side: int) -> Array:
    """The tiles' inputs, [side, side, n, down, across, ci], zero beyond the image."""
    down, across = -(-problem.oh // output), -(-problem.ow // output)
    overlap, pad = TAPS - 1, problem.pad
    missing = (
        max(0, down * output + overlap - problem.h - pad),
        max(0, across * output + overlap - problem.w - pad),
    )
    padded = np.pad(image, ((0, 0), (pad, missing[0]), (pad, missing[1]), (0, 0)))
    rows, cols = (np.arange(count) * output for count in (down, across))
    return np.stack(
        [
            np.stack([padded[:, rows[:, None] + i, cols[None, :] + j] for j in range(side)])
            for i in range(side)
        ]
    )


def _both_sides(matrix: Matrix, values: Array) -> Array:
    """Magnitudes of the matrix times the first two axes."""
    size = np.abs(np.array(matrix, np.float64))
    found: Array = np.einsum("pi,qj,ij...->pq...", size, size, values, optimize=True)
    return found
