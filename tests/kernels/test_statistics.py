"""The order statistics around a median."""

from fractions import Fraction
from math import comb

import pytest

from tilewise.kernels.statistics import median_interval


def exact(count: int) -> tuple[int, int]:
    """The same in rational numbers."""
    tail = Fraction(0)
    for k in range(count // 2):
        tail += Fraction(comb(count, k), 2**count)
        if tail > Fraction(1, 40):
            return max(0, k - 1), count - 1 - max(0, k - 1)
    return max(0, count // 2 - 1), min(count - 1, count - count // 2)


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 20, 71, 300, 997])
def test_the_interval_is_that_of_rational_numbers(count: int) -> None:
    assert median_interval(count) == exact(count)


def test_so_many_samples_that_no_float_holds_their_binomials() -> None:
    low, high = median_interval(10_000)
    assert low + high == 9_999
    # half of 1.96 standard deviations of 10000 fair coins, 50 each
    assert low == pytest.approx(5_000 - 98, abs=2)
