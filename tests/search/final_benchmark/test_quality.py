"""Which results are noisy, and which of two replaces the other."""

from math import exp
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.replies import finals_reply, in_turn
from tilewise.search.final_benchmark.pairs import time_pair
from tilewise.search.final_benchmark.quality import JudgedSpeed, quality_of
from tilewise.search.records import Measurement
from tilewise.search.runner.protocol import FinalsReply
from tilewise.search.verdicts import Verdict


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


class NoisyRunner:
    """Times that drift from round to round, alike for both, and differ a little by placement."""

    def __init__(self, ratio: float, seed: int, placed: float) -> None:
        self.ratio, self.draw, self.placed, self.renewed = ratio, Random(seed), placed, 0

    def renew(self) -> None:
        self.renewed += 1

    def finals(self, steps: list[Any], rounds: int, *_: Any) -> FinalsReply:
        times: tuple[list[list[float]], list[list[float]]] = ([], [])
        for _placement in range(5):
            here = exp(self.draw.gauss(0, self.placed))
            drift = [1e-3 * exp(self.draw.uniform(0, 0.7)) for _ in range(rounds)]
            noise = [exp(self.draw.gauss(0, 0.01)) for _ in range(rounds)]
            times[0].append(drift)
            times[1].append([t * n * here / self.ratio for t, n in zip(drift, noise, strict=True)])
        numbers = [range(rounds)] * 5
        return finals_reply([in_turn(one, numbers) for one in times])


@given(ratio=st.sampled_from((0.95, 0.97, 1.0, 1.06)), seed=st.integers(0, 2**32))
def test_a_change_beyond_the_tolerance_is_found(ratio: float, seed: int) -> None:
    runner = NoisyRunner(ratio, seed, placed=0.003)
    found = time_pair(runner, [1], [2], tolerance=0.015)  # type: ignore[arg-type]
    wanted = {1.0: Verdict.SAME, 1.06: Verdict.FASTER}.get(ratio, Verdict.SLOWER)
    assert found.verdict(0.015) is wanted
    assert runner.renewed == found.processes - 1 >= 1


@pytest.mark.parametrize("seconds", [None, 0.0])
def test_a_ratio_that_depends_on_the_placement_decides_nothing(seconds: float | None) -> None:
    runner = NoisyRunner(1.0, 1, placed=0.3)
    found = time_pair(runner, [1], [2], 0.015, seconds)  # type: ignore[arg-type]
    assert found.verdict(0.015) is Verdict.UNDECIDED
    assert found.processes == (6 if seconds is None else 2)
