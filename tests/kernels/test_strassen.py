"""The matrices of Strassen's products are exact: they make a product of matrices."""

import numpy as np

from kernels.minimal_filtering import Matrix
from kernels.strassen import FILTER, IMAGE, PRODUCTS, RESULT


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
    assert len(IMAGE) == len(FILTER) == PRODUCTS


def test_every_product_is_needed() -> None:
    for p in range(PRODUCTS):
        less = [np.delete(array(m), p, axis=0) for m in (IMAGE, FILTER)]
        found = np.einsum("cp,pa,pb->cab", np.delete(array(RESULT), p, axis=1), *less)
        assert found.sum() != 8 or (found < 0).any()
