"""How far off a convolution by Winograd transforms may be (`tilewise.kernels.winograd`).

A tile's transforms add and subtract values of the whole tile, so the error of a pixel is bounded
by magnitudes of its neighbours, and not by |A||B| of its own: |A'| (|G||w||G'| * |B'||d||B|) |A|,
element by element, times the rounding of as long a sum. That is the bound of Barabasz, Anderson,
Soodhalter and Gregg (Error Analysis and Improving the Accuracy of Winograd Convolution for Deep
Neural Networks, ACM TOMS 46(4), 2020), with the probabilistic constant of
`tilewise.kernels.oracle`.
"""

from math import prod

import numpy as np

from tilewise.kernels.oracle.operands import Array, Operands, operand_type, widened
from tilewise.kernels.oracle.tolerance import TINY, Expected, error_bound
from tilewise.kernels.problem import Problem
from tilewise.kernels.winograd import CookToom, Matrix, WinogradTransforms, winograd_transforms


def loosened(problem: Problem, operands: Operands, expected: Expected, output: int) -> Expected:
    """What a right result by Winograd transforms looks like; the same value.

    Args:
        problem: a convolution of floats.
        operands: its image, filter and, where it has one, bias.
        expected: of the direct method.
        output: pixels of a tile along the filter.
    """
    assert expected.tolerance is not None
    transforms = winograd_transforms(output, problem.window, problem.stride)
    size = _magnitudes(problem, operands, transforms)
    channels = problem.depth // prod(problem.window)
    unit = error_bound(channels + _roundings(transforms), problem.element.accumulator)
    return Expected(expected.value, expected.tolerance + unit * size + TINY)


def _roundings(transforms: WinogradTransforms) -> int:
    """At most so many roundings a value meets in the three transforms, along both sides of each.

    One for each term of a row, and one more for those constants of the filter's transform that a
    float does not hold.
    """
    sides = (transforms.down, transforms.across)
    return sum(2 * side.input + side.taps + 1 for side in sides if side.taps > 1)


def _magnitudes(problem: Problem, operands: Operands, transforms: WinogradTransforms) -> Array:
    """The sums of magnitudes that each pixel of the result is made of; line of tiles by line."""
    image, weights = (
        np.abs(widened(operands[name], operand_type(problem, name))) for name in ("A", "B")
    )
    shape = problem.operand_shapes["C"]
    if problem.has_channels_first:
        image, weights = image.transpose(0, 2, 3, 1), weights.transpose(2, 3, 1, 0)
        shape = (shape[0], *shape[2:], shape[1])
    images, height, width, outputs = shape
    down, across = transforms.down, transforms.across
    tiles = -(-width // across.output)
    transformed = _both_sides(down.filter, across.filter, weights)
    found = np.empty(shape)
    for n in range(images):
        for first in range(0, height, down.output):
            size = (down.input, (tiles - 1) * across.step + across.input)
            inputs = _tiles(_band(problem, image[n], first, size), across, tiles)
            products = np.einsum(
                "ijxc,ijcf->ijxf",
                _both_sides(down.image, across.image, inputs),
                transformed,
                optimize=True,
            )
            pixels = _both_sides(down.result, across.result, products).transpose(0, 2, 1, 3)
            lines = pixels.reshape(down.output, tiles * across.output, outputs)
            last = min(first + down.output, height)
            found[n, first:last] = lines[: last - first, :width]
    return found.transpose(0, 3, 1, 2) if problem.has_channels_first else found


def _band(problem: Problem, image: Array, first: int, shape: tuple[int, int]) -> Array:
    """The lines under a line of tiles from output `first` on, zero beyond the image."""
    height, width, channels = image.shape
    band = np.zeros((*shape, channels))
    top, pad = first * problem.stride - problem.pad, problem.pad
    begin, end = max(top, 0), min(top + shape[0], height)
    width = min(width, shape[1] - pad)
    if begin < end and width > 0:
        band[begin - top : end - top, pad : pad + width] = image[begin:end, :width]
    return band


def _tiles(band: Array, across: CookToom, tiles: int) -> Array:
    """The inputs of each tile of a band: [inputs down, inputs across, tiles, ci]."""
    cols = np.arange(tiles) * across.step
    return np.stack([band[:, cols + j] for j in range(across.input)], axis=1)


def _both_sides(down: Matrix, across: Matrix, values: Array) -> Array:
    """Magnitudes of the matrices times the first two axes."""
    sizes = [np.abs(np.array(matrix, np.float64)) for matrix in (down, across)]
    found: Array = np.einsum("pi,qj,ij...->pq...", *sizes, values, optimize=True)
    return found
