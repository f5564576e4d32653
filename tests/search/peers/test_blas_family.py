"""OpenBLAS held to another family of kernels computes the same products."""

import os
import subprocess
import sys

import numpy as np
import pytest

from tilewise.kernels.target import detect
from tilewise.search.peers.openblas import better_family, libraries, product_of

FAMILY = better_family(detect())
needs_family = pytest.mark.skipif(
    FAMILY is None,
    reason="there is a second copy of OpenBLAS only where NumPy's own chose slower kernels",
)


@needs_family
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [1, 7])
@pytest.mark.parametrize("n", [1, 9])
@pytest.mark.parametrize("k", [1, 5])
def test_products_of_every_order(dtype: type, m: int, n: int, k: int) -> None:
    assert FAMILY is not None
    rng = np.random.default_rng(m * 100 + n * 10 + k)
    for stack in ((), (3,)):
        for swap_a in (False, True):
            for swap_b in (False, True):
                a = rng.random((*stack, k, m) if swap_a else (*stack, m, k)).astype(dtype)
                b = rng.random((*stack, n, k) if swap_b else (*stack, k, n)).astype(dtype)
                a = a.swapaxes(-1, -2) if swap_a else a
                b = b.swapaxes(-1, -2) if swap_b else b
                c = np.full((*stack, m, n), np.nan, dtype)
                run = product_of(a, b, c, FAMILY)
                assert run is not None
                run()
                np.testing.assert_allclose(c, a @ b, rtol=1e-5)


@needs_family
def test_a_matrix_that_meets_a_whole_stack() -> None:
    assert FAMILY is not None
    rng = np.random.default_rng(0)
    a, b = rng.random((4, 5)), rng.random((3, 5, 6))
    c = np.empty((3, 4, 6))
    run = product_of(a, b, c, FAMILY)
    assert run is not None
    run()
    np.testing.assert_allclose(c, a @ b)


@pytest.mark.full
@pytest.mark.skipif(
    FAMILY is not None,
    reason="this machine has a second family: the tests above ran in this process",
)
@pytest.mark.skipif(
    "avx512f" not in detect().features, reason="only AVX-512 cores have a better family"
)
@pytest.mark.skipif(not libraries(None), reason="OpenBLAS is reached in a NumPy from a wheel only")
def test_the_same_where_numpy_is_made_to_choose_slower_kernels() -> None:
    """So that machines whose kernels NumPy's library knows run the tests above too."""
    slower = os.environ | {"OPENBLAS_CORETYPE": "Prescott"}
    above = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(above, env=slower, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "17 passed" in done.stdout, done.stdout
