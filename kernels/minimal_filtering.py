"""Minimal filtering: m outputs of an r-tap filter from m + r - 1 products, by three transforms.

    y = A^T ((G g) * (B^T d))

for m + r - 1 neighbours d of the input and the taps g; in two dimensions each transform is applied
along both. That is F(m, r) of Winograd (Arithmetic Complexity of Computations, SIAM, 1980), for
convolutional networks by Lavin and Gray (Fast Algorithms for Convolutional Neural Networks, CVPR
2016). The transforms evaluate polynomials at m + r - 2 points and at infinity, and interpolate
there: Toom's and Cook's algorithm, transposed.

Any points give the exact result; rounding depends on them. Barabasz, Anderson, Soodhalter and Gregg
(Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks, ACM
TOMS 46(4), 2020) bound the error by the norms of the transforms, and choose points by measuring
it; Alam, Anderson, Barabasz and Gregg (Winograd Convolution for Deep Neural Networks: Efficient
Point Selection, ACM TECS 21(6), 2022) search among fractions. The points of F(4, 3) here are
nearer to each other than 0, 1, -1, 2, -2, and f32 holds the image's transform of them exactly.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

Matrix = tuple[tuple[Fraction, ...], ...]

TAPS = 3
POINTS: dict[int, tuple[Fraction, ...]] = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(3, 4), Fraction(-3, 4), Fraction(3, 2), Fraction(-3, 2)),
}
"""The finite points of F(m, 3), by m."""


@dataclass(frozen=True)
class Filtering:
    """F(output, 3), in one dimension.

    Attributes:
        output: outputs of a tile.
        image: B^T, of as many rows and columns as a tile has inputs.
        filter: G, with a row for each of those and a column for each tap.
        result: A^T, with a row for each output.
    """

    output: int
    image: Matrix
    filter: Matrix
    result: Matrix

    @property
    def input(self) -> int:
        """Inputs of a tile, which are also the products."""
        return self.output + TAPS - 1


@functools.cache
def minimal_filtering(output: int) -> Filtering:
    """F(output, 3) at the points of `POINTS`; KeyError where there are none."""
    return filtering_at(POINTS[output])


def filtering_at(points: Sequence[Fraction]) -> Filtering:
    """F(m, 3) for m - 1 + 3 - 1 finite points and infinity, which comes last."""
    output = len(points) + 2 - TAPS
    image = [_from_roots([p for p in points if p != at]) for at in points]
    norms = [prod(at - p for p in points if p != at) for at in points]
    return Filtering(
        output,
        image=(*((*row, Fraction(0)) for row in image), _from_roots(points)),
        filter=(
            *(
                _powers(at, TAPS, Fraction(1) / norm)
                for at, norm in zip(points, norms, strict=True)
            ),
            _last(TAPS),
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
