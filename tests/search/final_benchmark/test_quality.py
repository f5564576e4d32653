"""Which results are noisy, and which of two replaces the other."""

import pytest

from tilewise.search.final_benchmark.quality import JudgedSpeed, quality_of
from tilewise.search.records import Measurement


def speed(gflops: float, low: float, high: float) -> Measurement:
    return Measurement(gflops, (low, high), 1e3 / gflops)


@pytest.mark.parametrize(
    ("measurement", "samples", "quality"),
    [
        (speed(77.8, 41.7, 176.7), 30, "noisy"),  # the report of issue 44
        (speed(149.0, 146.0, 152.0), 30, "good"),
        (speed(149.0, 146.0, 152.0), 0, "good"),  # an older result does not say how many
        (speed(59.8, 59.8, 59.8), 1, "noisy"),  # no width, for want of samples
        (speed(149.0, 146.0, 152.0), 5, "noisy"),
        (speed(149.0, 146.0, 152.0), 6, "good"),
        (speed(100.0, 60.0, 102.0), 30, "noisy"),
    ],
)
def test_a_wide_interval_or_too_few_samples_are_noisy(measurement, samples, quality):
    assert quality_of(measurement, samples) == quality


GOOD, FASTER = speed(100.0, 98.0, 102.0), speed(110.0, 108.0, 112.0)
WIDE, WIDER = speed(150.0, 100.0, 160.0), speed(170.0, 50.0, 180.0)


@pytest.mark.parametrize(
    ("new", "old", "replaces"),
    [
        (FASTER, GOOD, True),
        (GOOD, FASTER, False),
        (GOOD, GOOD, True),
        (GOOD, WIDER, True),  # a good one, however fast the noisy one seems
        (WIDER, GOOD, False),
        (WIDE, WIDER, True),  # of two noisy ones the one that says more
        (WIDER, WIDE, False),
    ],
)
def test_the_better_result_is_kept(new, old, replaces):
    mine, theirs = (JudgedSpeed(one, quality_of(one)) for one in (new, old))
    assert mine.supersedes(theirs) == replaces
