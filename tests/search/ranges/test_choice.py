from dataclasses import replace
from itertools import combinations, product
from math import exp, inf, log
from statistics import fmean

import numpy as np
import pytest

from tests.cases import some
from tests.search.engine.fakes import finals_reply, in_turn
from tilewise.kernels.problem import parse_problem, parse_range
from tilewise.kernels.schedule import (
    Pack,
    Parallel,
    Register,
    Schedule,
    Skinny,
    Strassen,
    Stream,
    Tile,
    Unroll,
)
from tilewise.kernels.target import detect, resolve
from tilewise.search.errors import RangeError
from tilewise.search.ranges import choice, samples, timing, tune
from tilewise.search.ranges.choice import RangeCandidate, assigned, choose
from tilewise.search.ranges.result import RangeResult, SampleTimes, estimated_us
from tilewise.search.ranges.tune import check_served, tile_along, tune_range
from tilewise.search.records import TuneRequest
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.runner.runner import Runner

RANGE = parse_range("matmul:m=1..24,n=64,k=64,dtype=f32")
SAMPLES = ((1,), (3,), (8,), (24,))


def candidate(number, times, served=RANGE.sizes, tile=1, packed=None, parts=1) -> RangeCandidate:
    schedule = Schedule((Register(rows=number + 1, cols=16),))
    own = {size: float(t) for size, t in zip(SAMPLES, times, strict=True) if size in served}
    return RangeCandidate(schedule, frozenset(served), (tile,), own, packed, parts)


def cost(subset: list[RangeCandidate], found: list[RangeCandidate]) -> float:
    """What `choose` is to minimise, spelled out size by size."""
    is_short = any(all(size not in one.served for one in subset) for size in RANGE.sizes)
    if is_short or len({one.parts for one in subset}) > 1:
        return inf
    losses = [
        log(min(one.time_us(size) for one in subset) / min(one.time_us(size) for one in found))
        for size in samples.judged_sizes(RANGE, SAMPLES)
    ]
    formats = len({one.packed_format for one in subset})
    extra = choice.LEAST_GAIN * (len(subset) - 1) + choice.LEAST_GAIN_OF_FORMAT * (formats - 1)
    return fmean(losses) + choice.WORST_SHARE * max(losses) + extra


@pytest.mark.parametrize("seed", range(12))
def test_the_choice_is_the_best_of_all_subsets(seed):
    rng = np.random.default_rng(seed)
    served = [RANGE.sizes, RANGE.sizes[:3], RANGE.sizes[2:], RANGE.sizes, RANGE.sizes[7:], ((1,),)]
    found = [
        candidate(i, np.sort(rng.uniform(1, 9, 4)), of, *rng.integers([1, 0, 1], [9, 2, 3]))
        for i, of in enumerate(served)
    ]
    most = int(rng.integers(1, 5))
    subsets = [list(s) for n in range(1, most + 1) for s in combinations(found, n)]
    best = min(cost(subset, found) for subset in subsets)
    chosen = choose(RANGE, found, most)
    known = {one.schedule: one for one in found}
    assert cost([known[one] for one in chosen.variants], found) <= best + 1e-12
    for size in RANGE.sizes:  # each size has the fastest of the chosen
        fastest = min(known[one].time_us(size) for one in chosen.variants)
        assert known[chosen.at(size)].time_us(size) == fastest < inf


def test_a_further_variant_or_format_has_to_gain():
    slow = candidate(0, (2.0, 2.0, 2.0, 2.0), packed="a")
    for factor, packed, count in ((0.997, "a", 1), (0.98, "a", 2), (0.98, "b", 1), (0.9, "b", 2)):
        half = candidate(1, (9.0, 2 * factor, 2 * factor, 2 * factor), packed=packed)
        assert len(choose(RANGE, [slow, half]).variants) == count, (factor, packed)


def test_what_nothing_serves_is_named():
    with pytest.raises(RangeError, match="none of the schedules that were timed serves m=24"):
        choose(RANGE, [candidate(0, (1, 1, 1, 1), RANGE.sizes[:23])])
    halves = [candidate(0, (1, 1, 1, 1), RANGE.sizes[:9])]
    halves += [candidate(1, (1, 1, 1, 1), RANGE.sizes[9:])]
    with pytest.raises(RangeError, match="no 1 of the schedules"):
        choose(RANGE, halves, 1)


def test_times_between_samples_are_linear_in_tiles():
    times = {1: 10.0, 8: 14.0, 16: 20.0, 40: 62.0}
    # Tiles of 8: sizes 1 and 8 take one, 16 takes two, 40 takes five; beyond, each takes as much.
    expected = {1: 10, 5: 12, 8: 14, 9: 20, 16: 20, 17: 34, 24: 34, 33: 62, 48: 62.0 * 6 / 5}
    known = {(size,): taken for size, taken in times.items()}
    for size, taken in expected.items():
        assert estimated_us(known, (8,), (size,)) == pytest.approx(taken), size
    assert estimated_us(known, (1,), (12,)) == pytest.approx(17.0)


def test_times_of_two_dims_are_linear_along_each():
    def time_us(batch, rows):
        return 5.0 + batch * (2.0 + 3.0 * -(-rows // 4))

    times = {size: time_us(*size) for size in ((1, 4), (1, 8), (1, 64), (8, 4), (8, 8), (8, 64))}
    for batch, rows in product(range(1, 9), range(1, 65)):
        assert estimated_us(times, (1, 4), (batch, rows)) == pytest.approx(time_us(batch, rows))
    above = {size: taken for size, taken in times.items() if size[0] == 8}
    assert estimated_us(above, (1, 4), (2, 8)) == pytest.approx(time_us(8, 8) / 4)


def test_the_loss_is_over_the_samples():
    parts = [candidate(0, (1, 2, 4, 8)), candidate(1, (9, 9, 3, 6))]
    schedule = assigned(RANGE, parts)
    known = [
        SampleTimes(size, "0", best, tuple(one.times_us[size] for one in parts))
        for size, best in zip(SAMPLES, (1.0, 1.0, 3.0, 5.0), strict=True)
    ]
    result = RangeResult(schedule, ((1,), (1,)), tuple(known))
    assert result.loss.worst == pytest.approx(1.0)
    assert result.loss.geometric_mean == pytest.approx(exp((log(2.0) + log(1.2)) / 4) - 1)
    written = result.to_json()
    assert written["tiles"] == [1, 1] and written["samples"][1]["size"] == 3
    again = RangeResult.from_json(RANGE, written)
    assert again == result
    assert again.time_us((3,)) == 2.0


@pytest.mark.parametrize(
    "text",
    ["1..256", "1..4096", "8..512:8", "1..5", "100..200", "3..4",
     "1..64,batch=1..8", "100..140,batch=1..2", "2..64,batch=2..64"],
)  # fmt: skip
def test_samples_have_all_corners_and_are_of_the_range(text):
    problems = parse_range(f"matmul:m={text},n=64,k=64,dtype=f32")
    found = samples.sample_sizes(problems)
    corners = set(product(*((values[0], values[-1]) for values in problems.ranges)))
    assert len(found) <= samples.MOST_SAMPLES and list(found) == sorted(set(found))
    assert len(found) >= min(4, len(problems.sizes))
    assert set(found) <= set(samples.judged_sizes(problems, found)) <= set(problems.sizes)
    assert corners <= set(samples.sample_sizes(problems, 3)) & set(found)
    assert ("batch=2" in text) == ({12} == {size[0] for size in set(found) - corners}), "a tie"


def test_finalists_have_different_register_tiles():
    ranked = [
        Schedule((*packs, Register(rows=rows, cols=16), *unrolled))
        for rows in range(1, samples.FINALISTS + 3)
        for packs in ((), (Pack("A"),))
        for unrolled in ((), (Unroll(4),))
    ]
    assert samples.finalists_of(ranked) == ranked[: 4 * samples.FINALISTS : 4]


OF_ROWS = parse_range("matmul:m=1..40,n=32,k=24,dtype=f32,weights=constant")
TILED = Schedule((Register(rows=4, cols=16),))
PACKED = Schedule((Pack("B"), Register(rows=6, cols=16)))
SKINNY = Schedule((Stream("k", 8), Register(rows=1, cols=16), Skinny("n")))
BOTH = parse_range("matmul:batch=1..3,m=1..40,n=32,k=24,dtype=f32")
EACH = Schedule((Tile("batch", 1), Register(rows=4, cols=16)))
OF_BOTH = {(1, 1): [SKINNY], (1, 40): [TILED], (3, 1): [EACH], (3, 40): [EACH]}
OF_RANGE = {(1,): [SKINNY, TILED], (13,): [TILED, PACKED], (40,): [PACKED]}


@pytest.mark.parametrize(
    ("problems", "finalists"), some([(BOTH, OF_BOTH), (OF_ROWS, OF_RANGE)], of=2)
)
def test_a_small_range_is_tuned_for_real(problems, finalists, monkeypatch):
    monkeypatch.setattr(timing, "ROUNDS_S", 0.02)
    result = tune_range(problems, resolve("host"), TuneRequest(), finalists)
    result.schedule.check_legal()
    assert [sample.size for sample in result.samples] == list(finalists)
    assert set(result.schedule.variants) <= {one for some in finalists.values() for one in some}
    for sample in result.samples:
        variant = result.schedule.choice[problems.sizes.index(sample.size)]
        assert sample.times_us[variant] >= sample.best_us > 0
    assert -1e-9 <= result.loss.geometric_mean <= result.loss.worst


def test_a_tile_of_blocks_is_of_all_of_them():
    problem = parse_problem("matmul:m=100,n=192,k=64,dtype=f32")
    direct = (Pack("B"), Pack("A"), Register(rows=6, cols=32))
    assert tile_along(problem, Schedule(direct), ("batch", "m", "n")) == (1, 6, 32)
    assert tile_along(problem, Schedule((Strassen(2), *direct)), ("m", "n")) == (24, 128)


class Wrong(Runner):
    """A runner in which one schedule computes something else at a size."""

    def __enter__(self):
        return self

    def time_finalists(self, schedules, rounds, peers, placements=1, budget_s=None):
        if self.problem.m == 13 and (packed := list(PACKED.to_json())) in schedules:
            index = schedules.index(packed) if len(schedules) < 3 else None
            raise CandidateFailureError("wrong", "far off", index)
        speed = {SKINNY.hash: 1e-5, TILED.hash: 3e-5, PACKED.hash: 1e-5}
        hashes = [Schedule.from_json(steps).hash for steps in schedules]
        times = [[speed[one] * self.problem.m] * rounds for one in hashes]
        return finals_reply([in_turn([some], [list(range(rounds))]) for some in times])


def test_a_schedule_that_is_wrong_at_one_sample_serves_none():
    host, make = resolve("host"), lambda problem, target, _request: Wrong(problem, target)
    result = tune_range(OF_ROWS, host, TuneRequest(), OF_RANGE, make_runner=make)
    assert set(result.schedule.variants) == {SKINNY, TILED}
    assert result.schedule.at((1,)) == SKINNY and result.schedule.at((2,)) == TILED


def test_a_stopped_run_gives_nothing_and_looks_at_no_sizes(monkeypatch):
    monkeypatch.setattr(tune, "served_sizes", None)
    with pytest.raises(RangeError, match="stopped before"):
        tune_range(OF_ROWS, resolve("host"), TuneRequest(), OF_RANGE, should_stop=lambda: True)


def test_schedules_of_one_part_are_completed_where_a_row_has_no_more() -> None:
    problems, target = parse_range("matmul:m=1..9,n=16,k=64,dtype=f32"), detect().with_threads(2)
    halves = Schedule((Parallel("m", 2), Register(rows=1, cols=16)))
    known = tune._candidates(problems, target, [SKINNY, halves, TILED])
    known[SKINNY] = replace(known[SKINNY], served=frozenset({(1,)}))
    whole = known.pop(TILED)
    spare = tune._spare(problems, target, known.values()).values()
    ones = [one.served for one in spare if one.parts == 1]
    assert set(problems.sizes) == set().union(*ones, {(1,)})
    assert not tune._spare(problems, target, [*known.values(), whole])


def test_a_range_without_a_common_code_is_refused_before_any_search() -> None:
    target = detect()
    for dims, advice in (("m=8..16,n=24..80:8,k=33", "n.*give transpose_b"),
                         ("m=9,n=32,k=24..80:8", "k.*give transpose_a"),
                         ("m=24..80:8,n=32,k=33,transpose_a", "m.*leave .*_a out")):  # fmt: skip
        with pytest.raises(RangeError, match=f"no code serves two sizes of {advice}"):
            check_served(parse_range(f"matmul:{dims},dtype=f64"), target)
    for served in (
        "matmul:m=9,n=24..80:8,k=33,dtype=f64,transpose_b",
        "matmul:batch=1..8,m=8..64,n=32,k=32,dtype=f32",
        "matmul:batch=1..2,m=8..64,n=32,k=32,dtype=f32",
        "matmul:m=1..64,n=96,k=128,dtype=f32,weights=constant",
        "conv2d:n=1..4,h=9,w=9,ci=8,co=32,kh=3,kw=3,pad=1,dtype=f32",
    ):
        check_served(parse_range(served), target)
