"""Minimal filtering in exact arithmetic."""

from fractions import Fraction
from random import Random

import pytest

from kernels.minimal_filtering import POINTS, TAPS, Filtering, filtering_at, minimal_filtering


def filtered(given: Filtering, inputs: list[Fraction], taps: list[Fraction]) -> list[Fraction]:
    """y = A^T ((G g) * (B^T d))."""

    def product(matrix: tuple[tuple[Fraction, ...], ...], x: list[Fraction]) -> list[Fraction]:
        return [sum(map(Fraction.__mul__, row, x), Fraction(0)) for row in matrix]

    products = map(Fraction.__mul__, product(given.filter, taps), product(given.image, inputs))
    return product(given.result, list(products))


@pytest.mark.parametrize("points", [*POINTS.values(), tuple(map(Fraction, (0, 1, -1, 2, -2)))])
def test_any_points_give_the_filter(points: tuple[Fraction, ...]) -> None:
    random = Random(0)
    given = filtering_at(points)
    assert given.input == len(points) + 1 == given.output + TAPS - 1
    for _ in range(20):
        inputs = [Fraction(random.randint(-99, 99), 7) for _ in range(given.input)]
        taps = [Fraction(random.randint(-99, 99), 5) for _ in range(TAPS)]
        expected = [
            sum((inputs[i + j] * taps[j] for j in range(TAPS)), Fraction(0))
            for i in range(given.output)
        ]
        assert filtered(given, inputs, taps) == expected


def test_f32_holds_the_transforms_of_image_and_result() -> None:
    for output in POINTS:
        given = minimal_filtering(output)
        for row in (*given.image, *given.result):
            for value in row:
                assert value.denominator & (value.denominator - 1) == 0
                assert abs(value.numerator) < 1 << 24
