"""The machine's pace: whether it is as usual, and what pace 1 should be.

The first control's time defines pace 1. Where that trial was disturbed, later paces lie below 1,
and all times are too long by as much. So pace 1 follows the quietest paces.
"""

from collections.abc import Sequence
from math import log
from statistics import median

WORTH = 0.93  # of the control's time: more than luck; a candidate as fast takes its place
STEADY = 0.03  # between the ratios of rounds: more than they spread while the pace stays
FASTER = log(1.1)  # of paces below 1, from which they are more than the error of a trial
QUIETEST = 0.1  # of all paces
LEAST_QUIET = 3  # paces that have to agree; fewer may be errors


def quietest(paces: Sequence[float]) -> float:
    """Return the pace of the undisturbed machine as far as paces show it; 1 unless it is lower."""
    if len(paces) < LEAST_QUIET:
        return 1.0
    found = sorted(paces)[max(LEAST_QUIET - 1, int(QUIETEST * len(paces)))]
    return found if -log(found) > FASTER else 1.0


def spread(paces: Sequence[float]) -> float:
    """Return how far paces lie apart, the outer tenths left out, as a logarithm; 0 of few."""
    if len(paces) < LEAST_QUIET:
        return 0.0
    ordered, tail = sorted(paces), int(QUIETEST * len(paces))
    return log(ordered[-1 - tail] / ordered[tail])


def is_usual(pace: float, others: Sequence[float]) -> bool:
    """Whether the machine ran about as it did in most other trials; so it did in the first."""
    return not others or is_near(pace, median(others))


def is_near(pace: float, usual: float) -> bool:
    """Whether two paces differ by no more than rounds do while the pace stays."""
    return abs(log(pace / usual)) < STEADY
