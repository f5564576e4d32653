"""Points of Winograd transforms, by how much these round.

    python -m benchmarks.kernels.points OUTPUT TAPS [--square] [--channels 16] [--shown 8]
        [--pairs 1/2 1 2]

Every set of pairs p and -p of `CANDIDATES`, with zero where the form has an odd number of points,
computes a strip of tiles in f32 with F(OUTPUT, TAPS), along one axis or with --square along both;
with --pairs that set alone. Printed are the best sets: the rms errors against float64, in those of
the direct method in f32, on each kind of operands that `accuracy=standard` asks about
(`tilewise.kernels.oracle.accuracy`). The products are summed one by one, as a micro-kernel does,
and the transforms row by row. The points of `tilewise.kernels.fast_algorithms` were found so.
"""

import argparse
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np

from tilewise.kernels.fast_algorithms import ZERO, CookToom, Matrix, cook_toom, cook_toom_at
from tilewise.kernels.oracle.accuracy import KINDS, operands_of_kind, rms_error
from tilewise.kernels.oracle.operands import Array, Operands
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import Conv2d

CANDIDATES = tuple(
    Fraction(eighths, 8) for eighths in (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24)
)
TILES, FILTERS = 16, 16

Points = tuple[Fraction, ...]
Errors = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=int)
    parser.add_argument("taps", type=int)
    parser.add_argument("--square", action="store_true")
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--shown", type=int, default=8)
    parser.add_argument("--pairs", nargs="+", type=Fraction, help="positive points of the only set")
    options = parser.parse_args()
    strip = Strip(options.output, options.taps, options.square, options.channels)
    chosen = options.pairs or CANDIDATES
    found = [
        (points, strip.errors(points)) for points in sets(options.output, options.taps, chosen)
    ]
    found.sort(key=lambda item: max(item[1].values()))
    print("".join(f"{kind:>10}" for kind in KINDS) + "  points")
    for points, errors in found[: options.shown]:
        print(line(points, errors))


def sets(output: int, taps: int, positive: Sequence[Fraction] = CANDIDATES) -> Iterator[Points]:
    """The sets of finite points that F(output, taps) may have."""
    count = output + taps - 2
    for chosen in combinations(positive, count // 2):
        pairs = tuple(sign * one for one in chosen for sign in (1, -1))
        yield (ZERO, *pairs) if count % 2 else pairs


class Strip:
    """Tiles side by side: operands of each kind, what is exact, and what the direct method has."""

    def __init__(self, output: int, taps: int, is_square: bool, channels: int) -> None:
        height = taps if is_square else 1
        self.output, self.taps, self.is_square = output, taps, is_square
        self.problem = Conv2d(
            n=1,
            h=(output if is_square else 1) + height - 1,
            w=TILES * output + taps - 1,
            ci=channels,
            co=FILTERS,
            kh=height,
            kw=taps,
            dtype="f32",
        )
        self.operands = {kind: operands_of_kind(self.problem, kind) for kind in KINDS}
        self.exact = {
            kind: reference(self.problem, given).value for kind, given in self.operands.items()
        }

    def errors(self, points: Points) -> Errors:
        """The rms errors at these points, in those of the direct method."""
        across = cook_toom_at(points, self.taps)
        down = across if self.is_square else cook_toom(1, 1)
        return {
            kind: rms_error(self._filtered(down, across, given), self.exact[kind])
            / rms_error(self._direct(given), self.exact[kind])
            for kind, given in self.operands.items()
        }

    def _filtered(self, down: CookToom, across: CookToom, given: Operands) -> Array:
        """The strip in f32, by Winograd transforms."""
        image, weights = given["A"][0], given["B"]
        starts = np.arange(TILES) * self.output
        tiles = np.stack([image[:, starts + j] for j in range(across.input)], axis=1)
        left = both_sides(down.image, across.image, tiles)
        right = both_sides(down.filter, across.filter, weights)
        products = np.zeros((*left.shape[:3], FILTERS), np.float32)
        for channel in range(self.problem.ci):
            added(products, left[..., channel, None], right[:, :, None, channel])
        pixels = both_sides(down.result, across.result, products).transpose(0, 2, 1, 3)
        return pixels.reshape(1, self.problem.oh, self.problem.ow, FILTERS)

    def _direct(self, given: Operands) -> Array:
        """The strip in f32, product by product."""
        image, weights = given["A"], given["B"]
        sums = np.zeros((1, self.problem.oh, self.problem.ow, FILTERS), np.float32)
        for i, j, channel in np.ndindex(weights.shape[:3]):
            seen = image[:, i : i + self.problem.oh, j : j + self.problem.ow, channel, None]
            added(sums, seen, weights[i, j, channel])
        return sums


def added(sums: Array, left: Array, right: Array) -> None:
    """Add products to f32 sums, rounded once as a fused multiply-add does."""
    sums[...] = sums + left.astype(np.float64) * right


def both_sides(down: Matrix, across: Matrix, values: Array) -> Array:
    """The matrices times the first two axes, in f32."""
    return np.swapaxes(one_side(across, np.swapaxes(one_side(down, values), 0, 1)), 0, 1)


def one_side(matrix: Matrix, values: Array) -> Array:
    """A matrix times the first axis, term by term in f32."""
    found = np.zeros((len(matrix), *values.shape[1:]), np.float32)
    for row, total in zip(matrix, found, strict=True):
        for factor, value in zip(row, values, strict=True):
            if factor:
                added(total, np.float32(factor), value)
    return found


def line(points: Points, errors: Errors) -> str:
    return "".join(f"{errors[kind]:>10.2f}" for kind in KINDS) + "  " + " ".join(map(str, points))


if __name__ == "__main__":
    main()
