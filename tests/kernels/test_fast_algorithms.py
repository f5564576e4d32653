"""Matrices of fast algorithms in exact arithmetic: Winograd transforms and Strassen products."""

from fractions import Fraction
from itertools import product
from random import Random

import numpy as np
import pytest

from tilewise.kernels.fast_algorithms import (
    LEVELS,
    MOST_PRODUCTS,
    PART_POINTS,
    POINTS,
    SIDES,
    STRASSEN,
    STRIDES,
    CookToom,
    Matrix,
    cook_toom,
    cook_toom_at,
    outputs_for,
    winograd_transforms,
)


def filtered(given: CookToom, inputs: list[Fraction], taps: list[Fraction]) -> list[Fraction]:
    """y = A^T ((G g) * (B^T d))."""

    def times(matrix: tuple[tuple[Fraction, ...], ...], x: list[Fraction]) -> list[Fraction]:
        return [sum(map(Fraction.__mul__, row, x), Fraction(0)) for row in matrix]

    products = map(Fraction.__mul__, times(given.filter, taps), times(given.image, inputs))
    return times(given.result, list(products))


@pytest.mark.parametrize(
    ("points", "taps"),
    [
        *((points, taps) for (_, taps), points in POINTS.items()),
        (tuple(map(Fraction, (0, 1, -1, 2, -2))), 3),
        (tuple(map(Fraction, (0, 1, 5))), 2),
        ((), 1),
    ],
)
def test_any_points_give_the_filter(points: tuple[Fraction, ...], taps: int) -> None:
    random = Random(0)
    given = cook_toom_at(points, taps)
    assert given.taps == taps
    assert given.input == len(points) + 1 == given.output + taps - 1
    for _ in range(20):
        inputs = [Fraction(random.randint(-99, 99), 7) for _ in range(given.input)]
        weights = [Fraction(random.randint(-99, 99), 5) for _ in range(taps)]
        expected = [
            sum((inputs[i + j] * weights[j] for j in range(taps)), Fraction(0))
            for i in range(given.output)
        ]
        assert filtered(given, inputs, weights) == expected


STRIDED = [
    (output, taps)
    for taps in (3, 5, 7)
    for output in range(1, 8)
    if output in outputs_for((1, taps), stride=2)
]


def test_points_are_those_of_their_form() -> None:
    assert not POINTS.keys() & PART_POINTS.keys()
    for (output, taps), points in (POINTS | PART_POINTS).items():
        assert len(set(points)) == len(points) == output + taps - 2
        assert cook_toom_at(points, taps).output == output


def test_f32_holds_the_transforms_of_image_and_result() -> None:
    whole = [cook_toom(output, taps) for output, taps in POINTS]
    for given in (*whole, *(cook_toom(*form, stride=2) for form in STRIDED)):
        for row in (*given.image, *given.result):
            for value in row:
                assert value.denominator & (value.denominator - 1) == 0
                assert abs(value.numerator) < 1 << 24


def test_outputs_are_those_of_both_axes() -> None:
    for taps in ((1, 1), (1, 2), (4, 3), (9, 9)):
        assert outputs_for(taps) == ()
        with pytest.raises(KeyError):
            winograd_transforms(2, taps)
    assert outputs_for((3, 3), stride=2) == (2, 3)
    assert outputs_for((5, 5), stride=2) == (2,)
    assert outputs_for((3, 3), stride=3) == outputs_for((7, 7), stride=2) == ()
    assert winograd_transforms(2, (3, 3), stride=2).products == 25
    sides = sorted({taps for _, taps in POINTS})
    for down in (1, *sides):
        for across in (1, *sides):
            for output in outputs_for((down, across)):
                assert winograd_transforms(output, (down, across)).products <= MOST_PRODUCTS
                assert output in outputs_for((across, down))
            refused = down == across and down in (1, 7)
            assert refused or 2 in outputs_for((down, across))


@pytest.mark.parametrize("stride", STRIDES)
def test_values_within_tiles_are_at_most_160_times_as_large(stride: int) -> None:
    """Of the image, and of sums of magnitudes of products: docs/accuracy.md."""
    for taps in product((1, *SIDES), repeat=2):
        for output in outputs_for(taps, stride=stride):
            found = winograd_transforms(output, taps, stride)
            image, result = 1.0, 1.0
            for side in (found.down, found.across):
                of_image, of_filter, of_result = (
                    np.abs(np.array(matrix, np.float64))
                    for matrix in (side.image, side.filter, side.result)
                )
                sums = of_filter.sum(1) * of_image.sum(1)
                image *= of_image.sum(1).max()
                result *= (of_result @ sums).max() / side.taps
            assert max(image, result) <= 160


IMAGE, FILTER, RESULT = STRASSEN.image, STRASSEN.filter, STRASSEN.result


def array(matrix: Matrix) -> np.ndarray:
    return np.array([[int(x) for x in row] for row in matrix])


def test_seven_products_make_every_quadrant() -> None:
    """Term by term: quadrant (i, j) of C has A(i, k) B(k, j) once for each k, and nothing else."""
    found = np.einsum("cp,pa,pb->cab", array(RESULT), array(IMAGE), array(FILTER))
    wanted = np.zeros((4, 4, 4), int)
    for i in range(2):
        for j in range(2):
            for k in range(2):
                wanted[2 * i + j, 2 * i + k, 2 * k + j] = 1
    assert np.array_equal(found, wanted)
    assert len(IMAGE) == len(FILTER) == STRASSEN.products


def test_every_product_is_needed() -> None:
    for p in range(STRASSEN.products):
        less = [np.delete(array(m), p, axis=0) for m in (IMAGE, FILTER)]
        found = np.einsum("cp,pa,pb->cab", np.delete(array(RESULT), p, axis=1), *less)
        assert found.sum() != 8 or (found < 0).any()


@pytest.mark.parametrize("levels", LEVELS)
def test_values_within_are_at_most_36_times_as_large(levels: int) -> None:
    """Of A, and of sums of magnitudes of products: docs/accuracy.md.

    A point multiplies sums over half of the reduction at each level.
    """
    image, filters, result = (np.abs(array(matrix)) for matrix in (IMAGE, FILTER, RESULT))
    of_products = image.sum(1) * filters.sum(1) / 2
    within = max(image.sum(1).max(), of_products.max(), (result @ of_products).max())
    assert within**levels <= 36
