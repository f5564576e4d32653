"""Fast bilinear algorithms: Winograd's transforms for convolutions, Strassen's matrix product.

A bilinear algorithm multiplies sums of its inputs, and sums the products: three matrices,

    y = result ((filter g) * (image d))

Winograd's F(m, r) computes m outputs of an r-tap filter g from m + r - 1 products, for m + r - 1
neighbours d of the input (Winograd, Arithmetic Complexity of Computations, SIAM, 1980); in two
dimensions each transform is applied along both (Lavin and Gray, Fast Algorithms for Convolutional
Neural Networks, CVPR 2016). The transforms evaluate polynomials at m + r - 2 points and at
infinity, and interpolate there: Toom's and Cook's algorithm, transposed.

A filter of stride 2 reads the even pixels with its even taps and the odd pixels with its odd ones:
two filters of stride 1, whose results are added (`strided_cook_toom`). A tile of m outputs has
2 m + r - 2 inputs then, and as many products.

Any points give the exact result; rounding depends on them. Barabasz, Anderson, Soodhalter and Gregg
(Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks, ACM
TOMS 46(4), 2020) bound the error by the norms of the transforms, and choose points by measuring
it; Alam, Anderson, Barabasz and Gregg (Winograd Convolution for Deep Neural Networks: Efficient
Point Selection, ACM TECS 21(6), 2022) search among fractions. So were the points here found
(`benchmarks.kernels.points`): pairs p and -p, which share instructions, with or without zero, and
of fractions whose transforms of image and result f32 holds exactly.

Strassen's algorithm computes a product of matrices of two by two blocks from seven products of
blocks instead of eight (Gaussian Elimination is not Optimal, Numerische Mathematik 13, 1969). With
two levels the products of blocks are computed likewise, and 49 stand for 64. Winograd's variant has
15 additions in place of 18, but longer sums and larger errors (Higham, Accuracy and Stability of
Numerical Algorithms, 2002, chapter 23); as all sums of a value are computed while it is in
registers, fewer additions gain little here.

Blocks are in the order (first, first), (first, second), (second, first), (second, second) of the
two axes of their operand. Which rows are in the first half does not matter: here those are the
even rows, so that the rows of a group are contiguous and a last group of fewer needs no copy.
Columns and the reduction are cut in the middle. Huang, Smith, Henry and van de Geijn (Strassen's
Algorithm Reloaded, SC 2016) add while they pack, as is done here, and so need no memory for whole
sums of operands.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Self

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class BilinearAlgorithm:
    """Three matrices: y = result ((filter g) * (image d)).

    Attributes:
        image: a row for each product, a column for each input (B^T of Winograd's F(m, r)).
        filter: a row for each product, a column for each value of the other operand (G).
        result: a row for each output, a column for each product (A^T).
    """

    image: Matrix
    filter: Matrix
    result: Matrix

    @property
    def products(self) -> int:
        """Return the number of multiplications."""
        return len(self.image)

    @property
    def roundings(self) -> int:
        """Return the most roundings of a value: one for each term of a row of each matrix."""
        matrices = (self.image, self.filter, self.result)
        return sum(max(sum(x != 0 for x in row) for row in matrix) for matrix in matrices)

    def magnitudes(self) -> Self:
        """Return the algorithm with the magnitudes of all coefficients."""
        image, filters, result = (
            tuple(tuple(map(abs, row)) for row in matrix)
            for matrix in (self.image, self.filter, self.result)
        )
        return replace(self, image=image, filter=filters, result=result)


def _pairs(*positive: str) -> tuple[Fraction, ...]:
    """Each of these points and its negative."""
    return tuple(sign * Fraction(one) for one in positive for sign in (1, -1))


ZERO = Fraction(0)
POINTS: dict[tuple[int, int], tuple[Fraction, ...]] = {
    (2, 3): (ZERO, *_pairs("1")),
    (3, 3): _pairs("3/8", "5/4"),
    (4, 3): (ZERO, *_pairs("3/4", "3/2")),
    (6, 3): (ZERO, *_pairs("1/2", "1", "2")),
    (2, 5): (ZERO, *_pairs("3/4", "3/2")),
    (3, 5): _pairs("1/4", "7/8", "7/4"),
    (4, 5): (ZERO, *_pairs("1/2", "1", "2")),
    (2, 7): (ZERO, *_pairs("1/2", "1", "2")),
}
"""The finite points of F(m, r), by m and r."""

PART_POINTS: dict[tuple[int, int], tuple[Fraction, ...]] = {
    (2, 2): _pairs("1"),
    (3, 2): (ZERO, *_pairs("1")),
}
"""The same of filters that are a part of one of stride 2 alone."""

SIDES = tuple(sorted({taps for _, taps in POINTS}))
"""The taps, along an axis, of the filters that there are points for."""

STRIDES = (1, 2)
"""Of filters that there are tiles for."""

MOST_PRODUCTS = 49
"""Of a tile. F(4x4,5x5) and F(2x2,7x7) have 64, and round five times as much as direct sums."""


@dataclass(frozen=True)
class CookToom(BilinearAlgorithm):
    """F(output, taps), in one dimension.

    Attributes:
        stride: pixels from what an output reads to what the next one does.
    """

    stride: int = 1

    @property
    def output(self) -> int:
        """Return the outputs of a tile."""
        return len(self.result)

    @property
    def taps(self) -> int:
        """Return the taps of the filter."""
        return len(self.filter[0])

    @property
    def input(self) -> int:
        """Return the inputs of a tile, which are also the products."""
        return len(self.image)

    @property
    def step(self) -> int:
        """Return the pixels of the image from a tile's first one to that of the next tile."""
        return self.output * self.stride

    @property
    def roundings(self) -> int:
        """Return the most roundings of a value: one for each term of a row.

        There is one more for those constants of the filter's transform that a float does not hold,
        and none for a single tap.
        """
        return 2 * self.input + self.taps + 1 if self.taps > 1 else 0


@dataclass(frozen=True)
class WinogradTransforms:
    """The transforms of a tile of pixels, down and across.

    Where a filter has a single tap along an axis, F(1, 1) leaves the axis as it is, and a tile is
    one pixel wide.
    """

    down: CookToom
    across: CookToom

    @property
    def output(self) -> tuple[int, int]:
        """Return the pixels of the result, down and across."""
        return self.down.output, self.across.output

    @property
    def input(self) -> tuple[int, int]:
        """Return the pixels of the image, down and across."""
        return self.down.input, self.across.input

    @property
    def step(self) -> tuple[int, int]:
        """Return the pixels of the image from a tile to the next, down and across."""
        return self.down.step, self.across.step

    @property
    def products(self) -> int:
        """Return the products: one for each pair of points, as many as the tile has inputs."""
        return self.down.input * self.across.input

    @property
    def roundings(self) -> int:
        """Return the most roundings of a value, along both sides of each transform."""
        return self.down.roundings + self.across.roundings

    def magnitudes(self) -> "WinogradTransforms":
        """Return the transforms with the magnitudes of all coefficients."""
        return WinogradTransforms(self.down.magnitudes(), self.across.magnitudes())


@functools.cache
def winograd_transforms(output: int, taps: tuple[int, int], stride: int = 1) -> WinogradTransforms:
    """Return F(output x output, taps), with one pixel along an axis with a single tap.

    Raises:
        KeyError: `outputs_for` does not have the output.
    """
    if output not in outputs_for(taps, stride):
        raise KeyError((output, taps, stride))
    return WinogradTransforms(*(cook_toom(output, count, stride) for count in taps))


@functools.cache
def outputs_for(taps: tuple[int, int], stride: int = 1) -> tuple[int, ...]:
    """Return the outputs along each axis of the tiles of a filter, by its taps down and across."""
    if set(taps) == {1} or stride not in STRIDES:
        return ()
    return tuple(
        output
        for output in sorted({output for output, _ in POINTS})
        if all(count == 1 or _has_points(output, count, stride) for count in taps)
        and prod(stride * (output - 1) + count for count in taps if count > 1) <= MOST_PRODUCTS
    )


def _has_points(output: int, taps: int, stride: int) -> bool:
    if stride == 1:
        return (output, taps) in POINTS
    parts = (output, taps - taps // 2), (output, taps // 2)
    return (output, taps) in POINTS and all(
        count == 1 or (size, count) in POINTS | PART_POINTS for size, count in parts
    )


@functools.cache
def cook_toom(output: int, taps: int, stride: int = 1) -> CookToom:
    """Return F(output, taps) at `POINTS`, or F(1, 1) for one tap; KeyError without points.

    Args:
        output: outputs of a tile; for a single tap it does not count.
        taps: of the filter.
        stride: of the filter, 1 or 2.
    """
    if taps == 1:
        return replace(cook_toom_at((), 1), stride=stride)
    if stride == 1:
        return cook_toom_at(POINTS[output, taps], taps)
    return strided_cook_toom(*(_part(output, count) for count in (taps - taps // 2, taps // 2)))


def _part(output: int, taps: int) -> CookToom:
    """F(output, taps) of every second pixel; a single tap multiplies each of them."""
    if taps > 1:
        return cook_toom_at((POINTS | PART_POINTS)[output, taps], taps)
    one = tuple(tuple(Fraction(int(i == j)) for j in range(output)) for i in range(output))
    return CookToom(one, ((Fraction(1),),) * output, one)


def strided_cook_toom(even: CookToom, odd: CookToom) -> CookToom:
    """Return a filter of stride 2: `even` of the pixels 0, 2, 4 and so on, `odd` of those between.

    The products of the even pixels come first.
    """
    sides = ((even, 0), (odd, 1))
    inputs, taps = even.input + odd.input, even.taps + odd.taps
    return CookToom(
        image=tuple(_spread(row, at, inputs) for part, at in sides for row in part.image),
        filter=tuple(_spread(row, at, taps) for part, at in sides for row in part.filter),
        result=tuple(
            (*first, *second) for first, second in zip(even.result, odd.result, strict=True)
        ),
        stride=2,
    )


def _spread(row: Sequence[Fraction], first: int, count: int) -> tuple[Fraction, ...]:
    """`count` values of which every second one, from `first` on, is the row's."""
    found = [Fraction(0)] * count
    found[first::2] = row
    return tuple(found)


def cook_toom_at(points: Sequence[Fraction], taps: int) -> CookToom:
    """Return F(m, taps) for m + taps - 2 finite points and infinity, which comes last."""
    output = len(points) + 2 - taps
    image = [_from_roots([p for p in points if p != at]) for at in points]
    norms = [prod(at - p for p in points if p != at) for at in points]
    return CookToom(
        image=(*((*row, Fraction(0)) for row in image), _from_roots(points)),
        filter=(
            *(
                _powers(at, taps, Fraction(1) / norm)
                for at, norm in zip(points, norms, strict=True)
            ),
            _last(taps),
        ),
        result=_transposed([*(_powers(at, output) for at in points), _last(output)]),
    )


def _from_roots(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """The coefficients of the monic polynomial with these roots, the constant one first."""
    found = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *found]
        found = [
            high - root * low for high, low in zip(shifted, [*found, Fraction(0)], strict=True)
        ]
    return tuple(found)


def _powers(at: Fraction, count: int, factor: Fraction = Fraction(1)) -> tuple[Fraction, ...]:
    return tuple(factor * at**power for power in range(count))


def _last(count: int) -> tuple[Fraction, ...]:
    """The value of a polynomial at infinity: its leading coefficient."""
    return (*(Fraction(0) for _ in range(count - 1)), Fraction(1))


def _transposed(rows: Sequence[Sequence[Fraction]]) -> Matrix:
    return tuple(zip(*rows, strict=True))


def signs(*rows: str) -> Matrix:
    """Return a matrix of 1, -1 and 0, a row for each text of `+`, `-` and `.`."""
    values = {"+": Fraction(1), "-": Fraction(-1), ".": Fraction(0)}
    return tuple(tuple(values[sign] for sign in row) for row in rows)


STRASSEN = BilinearAlgorithm(
    image=signs("+..+", "..++", "+...", "...+", "++..", "-.+.", ".+.-"),
    filter=signs("+..+", "+...", ".+.-", "-.+.", "...+", "++..", "..++"),
    result=signs("+..+-.+", "..+.+..", ".+.+...", "+-+..+."),
)
"""Of the blocks of A (`image`), of B (`filter`), and of the products to the blocks of C."""

LEVELS = (1, 2)
"""How often operands are cut in halves: with 2, the products of blocks are computed likewise."""
