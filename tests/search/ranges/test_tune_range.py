import pytest

from tests.cases import some
from tests.search.replies import finals_reply, in_turn
from tilewise.kernels.problem import parse_problem, parse_range
from tilewise.kernels.schedule import Pack, Register, Schedule, Strassen, Stream, Sweep, Tile
from tilewise.kernels.target import detect, resolve
from tilewise.search.errors import RangeError
from tilewise.search.ranges import timing
from tilewise.search.ranges.tune import check_served, tile_along, tune_range
from tilewise.search.records import TuneRequest
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.runner.runner import Runner

RANGE = parse_range("matmul:m=1..40,n=32,k=24,dtype=f32,weights=constant")
TILED = Schedule((Register(rows=4, cols=16),))
PACKED = Schedule((Pack("B"), Register(rows=6, cols=16)))
SKINNY = Schedule((Stream("k", 8), Register(rows=1, cols=16), Sweep("n")))
BOTH = parse_range("matmul:batch=1..3,m=1..40,n=32,k=24,dtype=f32")
EACH = Schedule((Tile("batch", 1), Register(rows=4, cols=16)))
OF_BOTH = {(1, 1): [SKINNY], (1, 40): [TILED], (3, 1): [EACH], (3, 40): [EACH]}
FINALISTS = {(1,): [SKINNY, TILED], (13,): [TILED, PACKED], (40,): [PACKED]}


@pytest.mark.parametrize(
    ("problems", "finalists"), some([(BOTH, OF_BOTH), (RANGE, FINALISTS)], of=2)
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

    def close(self):
        pass

    def finals(self, schedules, rounds, peers, placements=1, budget_s=None):
        if self.problem.m == 13 and list(PACKED.to_json()) in schedules:
            raise CandidateFailureError("wrong", "far off", schedules.index(list(PACKED.to_json())))
        speed = {SKINNY.hash: 1e-5, TILED.hash: 3e-5, PACKED.hash: 1e-5}
        hashes = [Schedule.from_json(steps).hash for steps in schedules]
        numbers = list(range(rounds))
        times = [[speed[one] * self.problem.m] * rounds for one in hashes]
        return finals_reply([in_turn([some], [numbers]) for some in times])


def test_a_schedule_that_is_wrong_at_one_sample_serves_none():
    def runner(problem, target, request):
        return Wrong(problem, target)

    result = tune_range(RANGE, resolve("host"), TuneRequest(), FINALISTS, make_runner=runner)
    assert set(result.schedule.variants) == {SKINNY, TILED}
    assert result.schedule.at((1,)) == SKINNY and result.schedule.at((2,)) == TILED


def test_a_stopped_run_gives_nothing():
    with pytest.raises(RangeError, match="stopped before"):
        tune_range(RANGE, resolve("host"), TuneRequest(), FINALISTS, should_stop=lambda: True)


def test_a_range_without_a_common_code_is_refused_before_any_search() -> None:
    target = detect()
    with pytest.raises(RangeError, match=r"no code serves two sizes of n.*give transpose_b"):
        check_served(parse_range("matmul:m=9,n=24..80:8,k=33,dtype=f64"), target)
    with pytest.raises(RangeError, match="no code serves two sizes of n"):
        check_served(parse_range("matmul:m=8..16,n=24..80:8,k=33,dtype=f64"), target)
    check_served(parse_range("matmul:m=9,n=24..80:8,k=33,dtype=f64,transpose_b"), target)
    check_served(parse_range("matmul:batch=1..8,m=8..64,n=32,k=32,dtype=f32"), target)
    check_served(parse_range("matmul:batch=1..2,m=8..64,n=32,k=32,dtype=f32"), target)
    check_served(parse_range("matmul:m=1..64,n=96,k=128,dtype=f32,weights=constant"), target)
    check_served(parse_range("conv2d:n=1..4,h=9,w=9,ci=8,co=32,kh=3,kw=3,pad=1,dtype=f32"), target)
