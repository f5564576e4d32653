"""How much the transforms at some points round, beside sums that are taken directly."""

from fractions import Fraction

import pytest

from benchmarks.kernels import points
from tilewise.kernels.fast_algorithms import POINTS, ZERO
from tilewise.kernels.oracle.accuracy import KINDS, MOST_TIMES


def test_the_points_that_are_used_were_among_those_tried() -> None:
    for (output, taps), used in POINTS.items():
        tried = list(points.sets(output, taps))
        assert used in tried
        assert all(len(set(one)) == output + taps - 2 for one in tried)


@pytest.mark.parametrize("is_square", [False, True])
def test_points_far_apart_round_more(is_square: bool) -> None:
    strip = points.Strip(4, 3, is_square, channels=16)
    near = strip.errors(POINTS[4, 3])
    far = strip.errors((ZERO, *(Fraction(p) for p in (1, -1, 3, -3))))
    assert set(near) == set(KINDS) == set(far)
    assert max(near.values()) < MOST_TIMES
    assert near["gaussian"] < far["gaussian"] and near["relu"] < far["relu"]
    assert "3/4 -3/4" in points.line(POINTS[4, 3], near)
