"""Verdicts on changes, which results are noisy, and contenders compared by rounds."""

from math import exp, log
from random import Random
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.engine.fakes import finals_reply, in_turn
from tilewise.search.final_benchmark.pairs import time_pair
from tilewise.search.final_benchmark.quality import JudgedSpeed, quality_of
from tilewise.search.final_benchmark.rounds import (
    PLACEMENT_ROUNDS,
    WINDOW,
    Rounds,
    lasting,
    lower_third,
    over_undisturbed,
)
from tilewise.search.records import Measurement
from tilewise.search.runner.protocol import FinalistsReply
from tilewise.search.timing.samples import summarise
from tilewise.search.verdicts import Verdict, verdict, verdict_of_speeds


@pytest.mark.parametrize(("low", "high", "expected"), [
    (0.90, 0.96, Verdict.SLOWER), (0.90, 0.98, Verdict.UNDECIDED), (0.98, 1.02, Verdict.SAME),
    (1.01, 1.06, Verdict.UNDECIDED), (1.04, 1.20, Verdict.FASTER), (0.50, 1.50, Verdict.UNDECIDED),
])  # fmt: skip
def test_the_whole_interval_decides(low: float, high: float, expected: Verdict) -> None:
    assert verdict(low, high, tolerance=0.03) is expected


def test_the_new_speed_is_over_the_old_one() -> None:
    assert verdict_of_speeds((99, 101), (89, 91), 0.03) is Verdict.SLOWER
    assert verdict_of_speeds((89, 91), (99, 101), 0.03) is Verdict.FASTER
    assert verdict_of_speeds((99, 101), (99.5, 100.5), 0.03) is Verdict.SAME
    assert verdict_of_speeds((90, 110), (90, 110), 0.03) is Verdict.UNDECIDED
    # Single samples decide nothing.
    assert verdict_of_speeds((100, 100), (49, 51), 0.03) is Verdict.UNDECIDED
    assert verdict_of_speeds((99, 101), (50, 50), 0.03) is Verdict.UNDECIDED


def speed(gflops: float, low: float, high: float) -> Measurement:
    return Measurement(gflops, (low, high), 1e3 / gflops)


@pytest.mark.parametrize(("measurement", "samples", "quality"), [
    (speed(77.8, 41.7, 176.7), 30, "noisy"),  # the report of issue 44
    (speed(149.0, 146.0, 152.0), 30, "good"),
    (speed(149.0, 146.0, 152.0), 0, "good"),  # an older result does not say how many
    (speed(59.8, 59.8, 59.8), 1, "noisy"),  # no width, for want of samples
    (speed(149.0, 146.0, 152.0), 5, "noisy"),
    (speed(149.0, 146.0, 152.0), 6, "good"),
    (speed(100.0, 60.0, 102.0), 30, "noisy"),
])  # fmt: skip
def test_a_wide_interval_or_too_few_samples_are_noisy(measurement, samples, quality):
    assert quality_of(measurement, samples) == quality


GOOD, FASTER = speed(100.0, 98.0, 102.0), speed(110.0, 108.0, 112.0)
WIDE, WIDER = speed(150.0, 100.0, 160.0), speed(170.0, 50.0, 180.0)


@pytest.mark.parametrize(("new", "old", "replaces"), [
    (FASTER, GOOD, True),
    (GOOD, FASTER, False),
    (GOOD, GOOD, True),
    (GOOD, WIDER, True),  # a good one, however fast the noisy one seems
    (WIDER, GOOD, False),
    (WIDE, WIDER, True),  # of two noisy ones the one that says more
    (WIDER, WIDE, False),
])  # fmt: skip
def test_the_better_result_is_kept(new, old, replaces):
    mine, theirs = (JudgedSpeed(one, quality_of(one)) for one in (new, old))
    assert mine.supersedes(theirs) == replaces


class NoisyRunner:
    """Times that drift from round to round, alike for both, and differ a little by placement."""

    def __init__(self, ratio: float, seed: int, placed: float, placements: int = 5) -> None:
        self.ratio, self.draw, self.placed, self.renewed = ratio, Random(seed), placed, 0
        self.placements = placements  # one of slow calls, with the two rounds that are the least

    def renew(self) -> None:
        self.renewed += 1

    def time_finalists(self, steps: list[Any], rounds: int, *_: Any) -> FinalistsReply:
        times: tuple[list[list[float]], list[list[float]]] = ([], [])
        rounds = rounds if self.placements > 1 else 2
        for _placement in range(self.placements):
            here = exp(self.draw.gauss(0, self.placed))
            drift = [1e-3 * exp(self.draw.uniform(0, 0.7)) for _ in range(rounds)]
            noise = [exp(self.draw.gauss(0, 0.01)) for _ in range(rounds)]
            times[0].append(drift)
            times[1].append([t * n * here / self.ratio for t, n in zip(drift, noise, strict=True)])
        return finals_reply([in_turn(one, [range(rounds)] * self.placements) for one in times])


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


def test_slow_calls_are_decided_by_a_placement_in_each_of_three_processes() -> None:
    runner = NoisyRunner(0.8, 1, placed=0.003, placements=1)
    found = time_pair(runner, [1], [2], 0.015, seconds=0.0)  # type: ignore[arg-type]
    assert (found.verdict(0.015), found.processes) == (Verdict.SLOWER, 3)


FLOPS = 1_000_000


def rounds(costs: list[float], levels: list[float], rng: Random) -> Rounds:
    """Contenders of these costs in rounds of these levels, with 1% of noise."""

    def times(cost: float) -> dict[int, float]:
        return {at: cost * level * rng.lognormvariate(0, 0.01) for at, level in enumerate(levels)}

    return Rounds(tuple(map(times, costs)))


def test_contenders_are_compared_within_rounds() -> None:
    """Two that differ by 1% on a machine that is up to a few times as slow in some rounds."""
    rng = Random(2)
    by_standing = by_median = 0
    for _ in range(200):
        levels = [1.0 + rng.expovariate(2.0) for _ in range(15)]
        found = rounds([1.00, 1.01], levels, rng)
        first, second = found.standings
        by_standing += first < second
        by_median += median(found.contenders[0].values()) < median(found.contenders[1].values())
    assert by_standing == 200 > 170 > by_median


def test_few_rounds_are_those_of_the_medians() -> None:
    found = Rounds(({0: 1.0, 1: 3.0, 2: 2.0}, {0: 1.5, 1: 1.5, 2: 1.5}))
    assert found.standings[0] > found.standings[1]
    pooled = summarise([1.0, 2.0, 3.0], FLOPS)
    assert found.measurement(0, FLOPS).interval == pytest.approx(pooled.interval)


def test_what_is_quoted_is_the_median_of_quiet_rounds() -> None:
    rng = Random(4)
    levels = [1.0] * 12 + [1.6] * 28
    found = rounds([1e-3, 1.1e-3], levels, rng)
    assert found.undisturbed == set(range(12)) and found.disturbed == 28
    measured = found.measurement(0, FLOPS)
    assert measured.time_us == pytest.approx(1e3, rel=0.02)
    assert set(found.undisturbed_times(1)) == set(range(12))
    low, high = measured.interval
    assert low < measured.gflops / 1.55, "what a disturbed process measures is in the interval"
    assert high < 1.1 * measured.gflops, "and nothing was faster than in quiet"
    found = rounds([1e-3, 1.1e-3, 1.2e-3], [1.0] * 90, rng)
    low, high = found.measurement(0, FLOPS).interval
    assert found.disturbed <= 2 and high / low < 1.06, "on a calm machine nearly all count"


def test_a_pace_of_this_or_an_earlier_search_is_in_the_interval() -> None:
    found = rounds([1e-3, 1.1e-3], [1.0] * 40, Random(6))
    slow, fast = ([log(pace)] * 20 + [0.0] * 40 for pace in (1.5, 0.8))
    own = found.measurement(0, FLOPS)
    low, _ = found.measurement(0, FLOPS, slow).interval
    _, high = found.measurement(0, FLOPS, fast).interval
    assert low < own.gflops / 1.5 < own.interval[0]
    assert high > own.gflops / 0.8 > own.interval[1]
    single = found.measurement(0, FLOPS, [0.0] * 30 + [log(1.5)] + [0.0] * 30)
    assert single.interval == pytest.approx(own.interval, rel=1e-3), "one of many trials is not"
    earlier = over_undisturbed([3.0] * 30 + [4.5] * 20)
    low, high = found.measurement(0, FLOPS, [0.0] * 60, earlier).interval
    assert low < own.gflops / 1.47 < own.interval[0]
    assert high > own.gflops * 1.47, "now may have been the bad time"
    _, high = found.measurement(0, FLOPS, [0.0] * 60, earlier, 1.2 * own.gflops).interval
    assert high == 1.2 * own.gflops, "but nothing beats the peak"
    both = [0.0] * 30 + [log(1.5)] * 30
    _, high = found.measurement(0, FLOPS, both, earlier).interval
    assert high == pytest.approx(own.interval[1], rel=1e-2), "who has seen both knows"
    calm = over_undisturbed([1.0] * 5000)
    low, _ = found.measurement(0, FLOPS, [log(1.5)] * 20, calm).interval
    assert low < own.gflops / 1.5, "a long calm does not outweigh the present"
    assert over_undisturbed([]) == [] and over_undisturbed([2.0]) == [0.0]


def test_the_interval_holds_the_median_of_a_further_process() -> None:
    """Processes that differ by 1% with samples that spread by 0.2%: 95% by design."""
    rng = Random(5)
    held = 0
    for _ in range(300):
        centres = [rng.lognormvariate(0.0, 0.01) for _ in range(7)]
        groups = [[one * (1 + abs(rng.gauss(0, 0.002))) for _ in range(9)] for one in centres]
        own = {
            placement * PLACEMENT_ROUNDS + at: seconds
            for placement, times in enumerate(groups[:6])
            for at, seconds in enumerate(times)
        }
        low, high = Rounds((own,)).measurement(0, FLOPS).interval
        held += low <= FLOPS / median(groups[6]) / 1e9 <= high
    assert held / 300 >= 0.93


def test_a_lasting_pace_is_one_of_several_in_a_row_and_ranks_are_of_the_lower_third() -> None:
    assert lasting([1.0, 9.0]) == [5.0]
    assert lasting([1.0] * 4 + [9.0] + [1.0] * 4) == [1.0] * (10 - WINDOW)
    assert max(lasting([1.0] * 4 + [9.0] * 3 + [1.0] * 4)) == 9.0
    assert lower_third([9.0, *map(float, range(1, 9))]) == 3.0 and lower_third([2.0]) == 2.0
