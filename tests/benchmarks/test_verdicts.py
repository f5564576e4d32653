"""Planted delays."""

import pytest

from benchmarks.measuring.verdicts import drawn, timed
from tilewise.search.verdicts import Verdict


@pytest.mark.full
def test_a_planted_delay_is_found() -> None:
    (problem,) = drawn(1, seed=3)
    assert timed(problem, 0.3, tolerance=0.03).verdict(0.03) is Verdict.SLOWER
