"""The machine's pace: whether it is as usual."""

from collections.abc import Sequence
from math import log
from statistics import median

WORTH = 0.93  # of the control's time: more than luck; a candidate as fast takes its place
STEADY = 0.03  # between the ratios of rounds: more than they spread while the pace stays


def is_usual(pace: float, others: Sequence[float]) -> bool:
    """Whether the machine ran about as it did in most other trials; so it did in the first."""
    return not others or is_near(pace, median(others))


def is_near(pace: float, usual: float) -> bool:
    """Whether two paces differ by no more than rounds do while the pace stays."""
    return abs(log(pace / usual)) < STEADY
