"""What earlier searches teach: costs of the model, and points to start from."""

from dataclasses import replace
from itertools import product
from math import exp
from random import Random

import numpy as np
import pytest

from benchmarks.memory_store import MemoryStore
from tests.cases import some
from tests.search.engine.fakes import FakeRunner, run
from tests.search.targets import SQUARE, WIDE
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.target.costs import Costs
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.records import MOST_SOLVED, Solved, TrialRecord, TuneRequest
from tilewise.search.space.points import Point, TilePoint, point_from_json
from tilewise.search.space.space import Space
from tilewise.search.timing.samples import summarise
from tilewise.search.transfer import nearness
from tilewise.search.transfer.calibration import MIN_TRIALS, calibrate
from tilewise.search.transfer.nearness import MAX_SEARCHES, distance, doublings, near_searches
from tilewise.search.transfer.starting_points import MAX_STARTING_POINTS, adapt, warmed
from tilewise.search.transfer.starting_points import starting_points as points_for

HERE, SHIPPED = WIDE.canonical, WIDE.core.costs


def solved(text: str, target: str = HERE, **changes) -> Solved:
    problem = parse_problem(text)
    point = prior_points(AnalyticalModel.shipped(Space(problem, WIDE)), 1)[0]
    return Solved(problem, target, (((point | changes), 1000.0),))


SHAPES = ("m=1000,n=1000,k=700", "m=100,n=2000,k=500", "m=300,n=300,k=300", "m=24,n=1500,k=900")


def costs(overlap: float = SHIPPED.overlap, **factors: float) -> Costs:
    """The shipped costs, some of them so many times as high."""
    higher = {name: getattr(SHIPPED, name) * factor for name, factor in factors.items()}
    return replace(SHIPPED, overlap=overlap, **higher)


def searched_with(true: Costs, noise=0.02, clock=1.0, seed: int = 1) -> list[Solved]:
    """Searches on a processor whose costs are `true`: half the prior's, half random ones."""
    random, found, trials = Random(seed), [], 64
    for shape in SHAPES:
        space = Space(parse_problem(f"matmul:{shape},dtype=f32"), WIDE)
        points = prior_points(AnalyticalModel.shipped(space), trials // 2)
        points += [space.draw(random) for _ in range(trials - len(points))]
        there = AnalyticalModel(space, true)
        timed = [(p, clock * exp(there.log_time(p) + random.gauss(0, noise))) for p in points]
        timed.sort(key=lambda pair: pair[1])
        known = Solved(space.problem, WIDE.canonical, tuple(timed[:32]), tuple(timed[32:]))
        found.append(known)
    return found


NEW = "matmul:m=400,n=800,k=600,dtype=f32"


def rank_errors(model: AnalyticalModel, true: Costs) -> float:
    """How wrong the model is about random points: deviation of the logarithms' errors."""
    random, there = Random(2), AnalyticalModel(model.space, true)
    points = [model.space.draw(random) for _ in range(100)]
    return float(np.std([model.log_time(p) - there.log_time(p) for p in points]))


def corrected(model: AnalyticalModel, searches: list[Solved]) -> AnalyticalModel:
    return AnalyticalModel(model.space, calibrate(model, searches))


@pytest.mark.parametrize(
    ("true", "clock"),
    some([(costs(overlap=1.0), 1.0),
          (costs(packed_b=8, packed_b_far=8, fetched_b=8), 1.0),
          (costs(overlap=1.0, b_rows_from_l2=5, b_rows_from_l3=5), 1e-3)], of=2),
)  # fmt: skip
def test_another_processor_is_learnt_from_its_searches(true: Costs, clock: float) -> None:
    model = AnalyticalModel.shipped(Space(parse_problem(NEW), WIDE))
    found = corrected(model, searched_with(true, clock=clock))
    assert rank_errors(found, true) < 0.4 * rank_errors(model, true)
    first, shipped_first = (prior_points(m, 1)[0] for m in (found, model))
    there = AnalyticalModel(model.space, true)
    assert there.log_time(first) <= there.log_time(shipped_first) + 0.01


@pytest.mark.parametrize(("true", "noise", "seed"), [
    *product([SHIPPED, costs(packed_a=1.1, loads=0.9)], [0.02, 0.05], [1]),
    *product([SHIPPED], [0.3], range(4)),
])  # fmt: skip
def test_what_the_shipped_costs_or_no_costs_explain_moves_nothing(true, noise, seed) -> None:
    model = AnalyticalModel.shipped(Space(parse_problem(NEW), WIDE))
    assert calibrate(model, searched_with(true, noise=noise, seed=seed)) == SHIPPED


def test_a_few_trials_or_those_of_another_target_teach_nothing() -> None:
    model = AnalyticalModel.shipped(Space(SQUARE, WIDE))
    known = searched_with(costs(1.0))
    few = [replace(s, points=s.points[: MIN_TRIALS - 1], slower=()) for s in known]
    assert calibrate(model, few) is model.costs
    assert calibrate(model, []) is model.costs
    threads = [replace(s, target="cpu:wide,threads=2") for s in searched_with(costs(1.0))]
    assert calibrate(model, threads) is model.costs


def test_what_a_store_says_is_held_to_the_costs_of_the_processor() -> None:
    known = [replace(s, target="cpu:cascadelake,threads=1") for s in searched_with(costs(1.0))]
    model = AnalyticalModel.shipped(Space(SQUARE, replace(WIDE, cpu="cascadelake")))
    true = costs(1.0)
    found = corrected(model, known)
    assert found.costs != model.costs
    assert rank_errors(found, true) < rank_errors(model, true)
    same = [replace(s, target="cpu:cascadelake,threads=1") for s in searched_with(model.costs)]
    assert calibrate(model, same) == model.costs


def starting_points(known: list[Solved], problem: Problem = SQUARE) -> list[Point]:
    return points_for(AnalyticalModel.shipped(Space(problem, WIDE)), known)


def test_only_legal_points_come_each_once_and_a_few() -> None:
    tiles = ("4x6", "8x3", "9x3", "6x4", "7x3", "12x2", "5x5", "10x2")
    assert len(tiles) > MAX_STARTING_POINTS
    known = [searched("matmul:m=1024,n=1024,k=900,dtype=f32", dict.fromkeys(tiles, 1.0))]
    space = Space(SQUARE, WIDE)
    points = starting_points([*known, *known])
    assert len(points) == MAX_STARTING_POINTS
    assert len({space.schedule(p).hash for p in points}) == MAX_STARTING_POINTS
    assert all(space.holds(p) and space.why_illegal(space.schedule(p)) is None for p in points)


def test_only_the_nearest_searches_are_asked() -> None:
    texts = [f"matmul:m=1024,n=1024,k={900 + i},dtype=f32" for i in range(4)]
    near = [solved(text, tile=TilePoint(5, 5)) for text in texts]
    assert len(near) == nearness.MAX_SERVING_SEARCHES
    far = solved("matmul:m=512,n=512,k=512,dtype=f32", tile=TilePoint(8, 3))
    points = starting_points([far, *near])
    assert {str(p["tile"]) for p in points} == {"5x5"}


def searched(text: str, factors: dict[str, float], scale: float = 1.0) -> Solved:
    """A search whose times are the model's but for a factor by tile."""
    space = Space(parse_problem(text), WIDE)
    base = prior_points(AnalyticalModel.shipped(space), 1)[0]
    points = [point_from_json(base | {"tile": tile}) for tile in factors]
    model = AnalyticalModel.shipped(space)
    timed = [(p, scale * exp(model.log_time(p)) * factors[str(p["tile"])]) for p in points]
    return Solved(space.problem, WIDE.canonical, tuple(sorted(timed, key=lambda pair: pair[1])))


@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_what_the_model_got_wrong_there_is_expected_here(scale: float) -> None:
    """Whatever the clock: only how the points of one search compare is carried over."""
    factors = dict.fromkeys(("6x4", "8x3", "12x2", "7x3", "9x3"), 1.0) | {"5x5": 0.8, "9x2": 0.7}
    text = "matmul:m=1024,n=1024,k=900,dtype=f32"
    points = starting_points([searched(text, factors, scale)])
    assert {str(p["tile"]) for p in points[:2]} == {"5x5", "9x2"}


def test_a_slower_point_comes_first_where_the_model_sees_that_it_suits_better() -> None:
    """A winner's tile of 8 rows says little of 5 rows: the model's edges and sizes count."""
    known = searched("matmul:m=64,n=960,k=900,dtype=f32", {"8x3": 0.97, "5x5": 1.0, "6x4": 1.05})
    assert known.points[0][0]["tile"] != TilePoint(5, 5)
    few = parse_problem("matmul:m=15,n=960,k=900,dtype=f32")
    assert starting_points([known], few)[0]["tile"] == TilePoint(5, 5)


def test_a_parameter_of_later_times_is_filled_in() -> None:
    known = solved("matmul:m=1024,n=1024,k=1024,dtype=f32", tile=TilePoint(5, 5))
    params = {k: v for k, v in known.points[0][0].items() if k != "prefetch"}
    earlier = Solved(known.problem, known.target, ((params, 1000.0),))
    (point,) = starting_points([earlier])
    assert point["tile"] == TilePoint(5, 5) and point["prefetch"] is False


def adapted(text: str, **changes):
    """A point of another problem, in the space of `text`."""
    known = solved("matmul:m=512,n=512,k=2048,dtype=f32", **changes)
    (params, _), former = known.points[0], Space(known.problem, WIDE)
    return adapt(Space(parse_problem(text), WIDE), former, params)


def test_sizes_are_kept_and_snapped() -> None:
    text = "matmul:m=600,n=4000,k=300,dtype=f32"
    point = adapted(text, depth=512, cols=0, rows=64, tile=TilePoint(8, 3))
    assert point["depth"] == 0  # 300 is less than what stayed in the cache
    assert point["cols"] == 512  # it was whole, but a dim of 4000 is another matter
    assert (point["rows"], point["tile"]) == (64, TilePoint(8, 3))
    narrow = adapted("matmul:m=512,n=20,k=512,dtype=f32", tile=TilePoint(8, 3))
    assert narrow["tile"] in [TilePoint(rows, 2) for rows in (8, 10, 12)], "one like it"


@pytest.mark.parametrize(("extent", "cols"), [(300, 0), (1000, 0), (1023, 0), (1024, 512)])
def test_a_dim_that_was_not_cut_stays_whole_up_to_twice_as_long(extent: int, cols: int) -> None:
    assert adapted(f"matmul:m=600,n={extent},k=300,dtype=f32", cols=0)["cols"] == cols


CONVOLUTION = "conv2d:n=1,h=30,w=30,ci=128,co=128,kh={},kw={},dtype=f32"


@pytest.mark.parametrize(("former", "algorithm", "taps", "expected"), [
    ((3, 3), "winograd4", (5, 5), "winograd3"), ((3, 3), "winograd4", (3, 1), "winograd4"),
    ((5, 5), "winograd3", (3, 3), "winograd4"), ((1, 3), "winograd6", (7, 1), "winograd2"),
    ((3, 3), "direct", (5, 5), "direct"), ((3, 3), "winograd4", (1, 1), None),
    ((1, 1), None, (3, 3), "direct"),
])  # fmt: skip
def test_another_filter_has_tiles_like_those_of_the_former(former, algorithm, taps, expected):
    spaces = [Space(parse_problem(CONVOLUTION.format(*one)), WIDE) for one in (taps, former)]
    params = {p.name: p.values[0] for p in spaces[1].parameters}
    point = adapt(*spaces, params | ({"algorithm": algorithm} if algorithm else {}))
    assert point is not None and point.get("algorithm") == expected


def test_a_warm_search_has_both_costs_and_starting_points() -> None:
    model = AnalyticalModel.shipped(Space(parse_problem(NEW), WIDE))
    found, starts = warmed(model, MemoryStore(searched_with(costs(1.0, b_rows_from_l2=5))))
    assert found.costs.overlap < SHIPPED.overlap
    assert starts and all(model.space.holds(point) for point in starts)
    assert warmed(model, MemoryStore()) == (model, [])


def test_a_search_begins_with_what_the_store_knows() -> None:
    known = solved("matmul:m=512,n=512,k=500,dtype=f32", tile=TilePoint(7, 3), rows=64, depth=128)
    # the same processor name as the fake target of these tests
    known = Solved(known.problem, "cpu:fake,threads=1", known.points)
    result, _, _ = run(TuneRequest(trials=12), MemoryStore([known]), FakeRunner())
    assert [t.origin for t in result.trials[:4]] == ["prior", "prior", "transfer", "prior"]
    assert result.trials[2].params["tile"] == TilePoint(7, 3)


def test_of_trials_the_fastest_that_were_timed_to_the_end_are_told() -> None:
    space = Space(SQUARE, WIDE)
    base = prior_points(AnalyticalModel.shipped(space), 1)[0]

    def trial(number: int, state: str, seconds: float | None) -> TrialRecord:
        speed = summarise([seconds] * 6, SQUARE.flops) if seconds else None
        return TrialRecord(number, space.schedule(base), base, state, "", measurement=speed)

    trials = [trial(i, "timed", 1e-3 * (100 - i)) for i in range(MOST_SOLVED + 5)]
    trials += [trial(98, "pruned", 1e-6), trial(99, "failed", None)]
    times = [time_us for _, time_us in Solved.of(SQUARE, HERE, trials).points]
    assert times == sorted(t.measurement.time_us for t in trials[:-2])[:MOST_SOLVED]


def test_near_is_a_matter_of_doublings() -> None:
    space = Space(SQUARE, WIDE)
    texts = ["m=1024,n=1024,k=512", "m=512,n=1024,k=512", "m=256,n=512,k=512"]
    apart = [distance(space, solved(f"matmul:{text},dtype=f32")) for text in texts]
    assert apart == sorted(apart) and apart[0] == pytest.approx(1.0)
    assert distance(space, solved("matmul:m=1024,n=1024,k=1024,dtype=f32,epilogue=relu")) < 1


@pytest.mark.parametrize(("text", "target"), [
    ("matmul:m=1024,n=1024,k=1024,dtype=f64", HERE),
    ("matmul:m=1024,n=1024,k=1024,dtype=f32,transpose_b", HERE),
    ("matmul:m=1024,n=1024,k=1024,dtype=f32,weights=constant", HERE),
    ("matmul:m=1024,n=1024,k=1024,dtype=f32", "cpu:another,threads=1"),
    ("matmul:m=1,n=1,k=1,dtype=f32", HERE),
])  # fmt: skip
def test_what_says_nothing_is_not_near(text: str, target: str) -> None:
    assert distance(Space(SQUARE, WIDE), solved(text, target)) is None


def test_the_nearest_searches_on_the_processor_are_read_the_nearest_first() -> None:
    far = "matmul:m=2,n=2,k=2,dtype=f32"
    near = [f"matmul:m=1024,n=1024,k={512 + i},dtype=f32" for i in range(MAX_SEARCHES + 3)]
    store = MemoryStore([solved(far), *(solved(text) for text in near)])
    found = near_searches(Space(SQUARE, WIDE), store)
    assert len(found) == MAX_SEARCHES
    apart = [doublings(SQUARE, one.problem) for one in found]
    assert apart == sorted(apart) and far not in [one.problem.canonical for one in found]


def test_what_a_processor_is_like_other_types_and_distant_shapes_tell_too() -> None:
    others = ["matmul:m=2,n=2,k=2,dtype=f32", "matmul:m=1024,n=1024,k=512,dtype=f64"]
    elsewhere = solved("matmul:m=1024,n=1024,k=512,dtype=f32", "cpu:another,threads=1")
    found = near_searches(Space(SQUARE, WIDE), MemoryStore([*map(solved, others), elsewhere]))
    told = sorted(str(one.problem) for one in found)
    assert told == sorted(str(parse_problem(text)) for text in others)


def test_one_problem_that_was_searched_many_times_does_not_hide_others() -> None:
    """Nor do short searches of it the long ones."""
    short = [solved("matmul:m=1024,n=1024,k=512,dtype=f32", unroll=u) for u in (1, 2, 4, 8)]
    long = [replace(s, slower=s.points * 9) for s in short[: nearness.MAX_SEARCHES_OF_A_PROBLEM]]
    other = solved("matmul:m=512,n=512,k=512,dtype=f32")
    found = near_searches(Space(SQUARE, WIDE), MemoryStore([*short, *long, other]))
    assert found == [*long, other]


def test_searches_that_cannot_serve_do_not_crowd_out_those_that_can() -> None:
    pairs = product(range(MAX_SEARCHES), ("f64", "f16"))
    others = [solved(f"matmul:m=1024,n=1024,k={1024 + i},dtype={dtype}") for i, dtype in pairs]
    serving = solved("matmul:m=512,n=512,k=1024,dtype=f32")
    found = near_searches(Space(SQUARE, WIDE), MemoryStore([*others, serving]))
    assert serving in found and len(found) == MAX_SEARCHES


def test_groups_of_the_same_channels_are_near_however_many_there_are() -> None:
    def layer(co: int, groups: int) -> str:
        return f"conv2d:n=1,h=28,w=28,ci={co},co={co},kh=3,kw=3,groups={groups},dtype=f32"

    space = Space(parse_problem(layer(192, 192)), WIDE)
    assert distance(space, solved(layer(144, 144))) is not None
    assert distance(space, solved(layer(192, 96))) is None
    assert distance(space, solved(layer(192, 1))) is None
