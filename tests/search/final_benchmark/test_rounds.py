"""Contenders by rounds: who stands best, which rounds are quiet, what the interval holds."""

import random
from math import log
from statistics import median

import pytest

from tilewise.search.final_benchmark.rounds import (
    PLACEMENT_ROUNDS,
    WINDOW,
    Rounds,
    lasting,
    lower_third,
    over_undisturbed,
)
from tilewise.search.timing.samples import summarise

FLOPS = 1_000_000
Levels = list[float]


def rounds(costs: list[float], levels: Levels, rng: random.Random, kept: float = 1.0) -> Rounds:
    """Contenders of these costs in rounds of these levels, with 1% of noise, some preempted."""
    return Rounds(
        tuple(
            {
                at: cost * level * rng.lognormvariate(0, 0.01)
                for at, level in enumerate(levels)
                if rng.random() < kept
            }
            for cost in costs
        )
    )


def test_contenders_are_compared_within_rounds() -> None:
    """Two that differ by 2% on a machine that is half as fast in every other round."""
    rng = random.Random(2)
    by_standing = by_median = 0
    for _ in range(200):
        levels = [2.0 if rng.random() < 0.5 else 1.0 for _ in range(30)]
        found = rounds([1.00, 1.02], levels, rng, kept=0.9)
        first, second = found.standings
        by_standing += first < second
        by_median += median(found.contenders[0].values()) < median(found.contenders[1].values())
    assert by_standing == 200
    assert by_median < 190


def test_few_rounds_are_those_of_the_medians() -> None:
    found = Rounds(({0: 1.0, 1: 3.0, 2: 2.0}, {3: 1.5}))
    first, second = found.standings
    assert first > second
    pooled = summarise([1.0, 2.0, 3.0], FLOPS)
    assert found.measurement(0, FLOPS).interval == pytest.approx(pooled.interval)
    assert Rounds(()).standings == []
    with pytest.raises(ValueError, match="no times"):
        Rounds(({},)).measurement(0, FLOPS)


def test_what_is_quoted_is_the_median_of_quiet_rounds() -> None:
    rng = random.Random(4)
    levels = [1.0] * 12 + [1.6] * 28
    found = rounds([1e-3, 1.1e-3], levels, rng)
    assert found.undisturbed == set(range(12)) and found.disturbed == 28
    measured = found.measurement(0, FLOPS)
    assert measured.time_us == pytest.approx(1e3, rel=0.02)
    assert set(found.undisturbed_times(1)) == set(range(12))
    low, high = measured.interval
    assert low < measured.gflops / 1.55, "what a disturbed process measures is in the interval"
    assert high < 1.1 * measured.gflops, "and nothing was faster than in quiet"


def test_on_a_calm_machine_nearly_all_rounds_count() -> None:
    rng = random.Random(5)
    found = rounds([1e-3, 1.1e-3, 1.2e-3], [1.0] * 90, rng)
    assert found.disturbed <= 2
    low, high = found.measurement(0, FLOPS).interval
    assert high / low < 1.06


def test_a_pace_of_the_search_that_the_finals_did_not_meet_is_in_the_interval() -> None:
    rng = random.Random(6)
    found = rounds([1e-3, 1.1e-3], [1.0] * 40, rng)
    slow = [log(1.5)] * 20 + [0.0] * 40
    fast = [log(0.8)] * 20 + [0.0] * 40
    own = found.measurement(0, FLOPS)
    low, _ = found.measurement(0, FLOPS, slow).interval
    _, high = found.measurement(0, FLOPS, fast).interval
    assert low < own.gflops / 1.5 < own.interval[0]
    assert high > own.gflops / 0.8 > own.interval[1]
    single = found.measurement(0, FLOPS, [0.0] * 30 + [log(1.5)] + [0.0] * 30)
    assert single.interval == pytest.approx(own.interval, rel=1e-3), "one of many trials is not"


def test_what_the_machine_did_before_is_in_the_interval() -> None:
    rng = random.Random(8)
    found = rounds([1e-3, 1.1e-3], [1.0] * 40, rng)
    own = found.measurement(0, FLOPS)
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
    rng = random.Random(5)
    held = 0
    for _ in range(300):
        groups = []
        for _ in range(7):
            centre = rng.lognormvariate(0.0, 0.01)
            groups.append([centre * (1 + abs(rng.gauss(0, 0.002))) for _ in range(9)])
        own = {
            placement * PLACEMENT_ROUNDS + at: seconds
            for placement, times in enumerate(groups[:6])
            for at, seconds in enumerate(times)
        }
        low, high = Rounds((own,)).measurement(0, FLOPS).interval
        held += low <= FLOPS / median(groups[6]) / 1e9 <= high
    assert held / 300 >= 0.93


def test_who_is_in_no_round_is_last_whatever_the_others_take() -> None:
    others = ({at: 3.0 + 0.01 * at for at in range(8)} for _ in range(3))
    found = Rounds((*others, {900: 2.0}))
    assert found.standings[3] > max(found.standings[:3])
    assert found.undisturbed_times(3) == {900: 2.0}


def test_a_lasting_pace_is_one_of_several_in_a_row() -> None:
    assert lasting([]) == []
    assert lasting([1.0, 9.0]) == [5.0]
    assert lasting([1.0] * 4 + [9.0] + [1.0] * 4) == [1.0] * (10 - WINDOW)
    assert max(lasting([1.0] * 4 + [9.0] * 3 + [1.0] * 4)) == 9.0


def test_who_stands_where_is_told_by_the_lower_third() -> None:
    assert lower_third([9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]) == 3.0
    assert lower_third([2.0]) == 2.0
