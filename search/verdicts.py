"""Verdicts on a change of speed: faster, slower, same or undecided."""

from enum import StrEnum

TOLERANCE = 0.03  # of the speed: a change that is none


class Verdict(StrEnum):
    """The verdict of an interval of ratios on a change."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNDECIDED = "undecided"


def verdict(low: float, high: float, tolerance: float) -> Verdict:
    """Return the verdict on an interval of ratios (new speed over old speed)."""
    if high < 1 - tolerance:
        return Verdict.SLOWER
    if low > 1 + tolerance:
        return Verdict.FASTER
    is_close = low >= 1 - tolerance and high <= 1 + tolerance
    return Verdict.SAME if is_close else Verdict.UNDECIDED


def verdict_of_speeds(
    base: tuple[float, float], new: tuple[float, float], tolerance: float
) -> Verdict:
    """Return the verdict on two speeds by their intervals.

    The interval of a single sample is the speed itself: its spread is unknown, so nothing is
    decided.
    """
    if base[0] == base[1] or new[0] == new[1]:
        return Verdict.UNDECIDED
    return verdict(new[0] / base[1], new[1] / base[0], tolerance)
