"""Verdicts on a change, from intervals of ratios and of speeds."""

import pytest

from tilewise.search.verdicts import Verdict, verdict, verdict_of_speeds


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.90, 0.96, Verdict.SLOWER),
        (0.90, 0.98, Verdict.UNDECIDED),
        (0.98, 1.02, Verdict.SAME),
        (1.01, 1.06, Verdict.UNDECIDED),
        (1.04, 1.20, Verdict.FASTER),
        (0.50, 1.50, Verdict.UNDECIDED),
    ],
)
def test_the_whole_interval_decides(low: float, high: float, expected: Verdict) -> None:
    assert verdict(low, high, tolerance=0.03) is expected


def test_the_new_speed_is_over_the_old_one() -> None:
    assert verdict_of_speeds((99, 101), (89, 91), 0.03) is Verdict.SLOWER
    assert verdict_of_speeds((89, 91), (99, 101), 0.03) is Verdict.FASTER
    assert verdict_of_speeds((99, 101), (99.5, 100.5), 0.03) is Verdict.SAME
    assert verdict_of_speeds((90, 110), (90, 110), 0.03) is Verdict.UNDECIDED


def test_single_samples_decide_nothing() -> None:
    assert verdict_of_speeds((100, 100), (49, 51), 0.03) is Verdict.UNDECIDED
    assert verdict_of_speeds((99, 101), (50, 50), 0.03) is Verdict.UNDECIDED
