"""The matrices of Strassen's products are exact: they make a product of matrices."""

import numpy as np
import pytest

from tilewise.kernels.fast_algorithms import LEVELS, STRASSEN, Matrix

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
