from dataclasses import replace
from math import exp

import pytest

from tests.search.engine.fakes import FakeRunner, run
from tests.search.targets import SQUARE, WIDE
from tests.search.transfer.searches import HERE, costs, searched_with, solved
from tilewise.kernels.problem import parse_problem
from tilewise.search.model.amounts import DEFAULT_WEIGHTS
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.records import MOST_SOLVED, Solved, TrialRecord, TuneRequest
from tilewise.search.space.points import TilePoint, point_from_json
from tilewise.search.space.space import Space
from tilewise.search.store import MemoryStore
from tilewise.search.timing.samples import summarise
from tilewise.search.transfer.nearness import (
    MAX_SEARCHES,
    MAX_SEARCHES_OF_A_PROBLEM,
    MAX_SERVING_SEARCHES,
    distance,
    doublings,
    near_searches,
)
from tilewise.search.transfer.starting_points import (
    MAX_STARTING_POINTS,
    adapt,
    starting_points,
    warmed,
)


def test_only_legal_points_come_each_once_and_a_few() -> None:
    tiles = ("4x6", "8x3", "9x3", "6x4", "7x3", "12x2", "5x5", "10x2")
    assert len(tiles) > MAX_STARTING_POINTS
    known = [searched("matmul:m=1024,n=1024,k=900,dtype=f32", dict.fromkeys(tiles, 1.0))]
    space = Space(SQUARE, WIDE)
    points = starting_points(AnalyticalModel.shipped(space), [*known, *known])
    assert len(points) == MAX_STARTING_POINTS
    assert len({space.schedule(p).hash for p in points}) == MAX_STARTING_POINTS
    assert all(space.holds(p) and space.why_illegal(space.schedule(p)) is None for p in points)


def test_only_the_nearest_searches_are_asked() -> None:
    near = [
        solved(f"matmul:m=1024,n=1024,k={900 + i},dtype=f32", tile=TilePoint(5, 5))
        for i in range(4)
    ]
    assert len(near) == MAX_SERVING_SEARCHES
    far = solved("matmul:m=512,n=512,k=512,dtype=f32", tile=TilePoint(8, 3))
    points = starting_points(AnalyticalModel.shipped(Space(SQUARE, WIDE)), [far, *near])
    assert {str(p["tile"]) for p in points} == {"5x5"}


def searched(text: str, factors: dict[str, float], scale: float = 1.0) -> Solved:
    """A search whose times are the model's but for a factor by tile."""
    space = Space(parse_problem(text), WIDE)
    base = prior_points(AnalyticalModel.shipped(space), 1)[0]
    points = [point_from_json(base | {"tile": tile}) for tile in factors]
    timed = [
        (p, scale * exp(AnalyticalModel.shipped(space).log_time(p)) * factors[str(p["tile"])])
        for p in points
    ]
    return Solved(space.problem, WIDE.canonical, tuple(sorted(timed, key=lambda pair: pair[1])))


@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_what_the_model_got_wrong_there_is_expected_here(scale: float) -> None:
    """Whatever the clock: only how the points of one search compare is carried over."""
    factors = dict.fromkeys(("6x4", "8x3", "12x2", "7x3", "9x3"), 1.0) | {"5x5": 0.8, "9x2": 0.7}
    text = "matmul:m=1024,n=1024,k=900,dtype=f32"
    points = starting_points(
        AnalyticalModel.shipped(Space(SQUARE, WIDE)), [searched(text, factors, scale)]
    )
    assert {str(p["tile"]) for p in points[:2]} == {"5x5", "9x2"}


def test_a_slower_point_comes_first_where_the_model_sees_that_it_suits_better() -> None:
    """A winner's tile of 8 rows says little of 5 rows: the model's edges and sizes count."""
    known = searched("matmul:m=64,n=960,k=900,dtype=f32", {"8x3": 0.97, "5x5": 1.0, "6x4": 1.05})
    assert known.points[0][0]["tile"] != TilePoint(5, 5)
    few = Space(parse_problem("matmul:m=15,n=960,k=900,dtype=f32"), WIDE)
    assert starting_points(AnalyticalModel.shipped(few), [known])[0]["tile"] == TilePoint(5, 5)


def test_a_parameter_of_later_times_is_filled_in() -> None:
    known = solved("matmul:m=1024,n=1024,k=1024,dtype=f32", tile=TilePoint(5, 5))
    params = {k: v for k, v in known.points[0][0].items() if k != "prefetch"}
    earlier = Solved(known.problem, known.target, ((params, 1000.0),))
    (point,) = starting_points(AnalyticalModel.shipped(Space(SQUARE, WIDE)), [earlier])
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
    assert point["rows"] == 64
    assert point["tile"] == TilePoint(8, 3)


@pytest.mark.parametrize(("extent", "cols"), [(300, 0), (1000, 0), (1023, 0), (1024, 512)])
def test_a_dim_that_was_not_cut_stays_whole_up_to_twice_as_long(extent: int, cols: int) -> None:
    assert adapted(f"matmul:m=600,n={extent},k=300,dtype=f32", cols=0)["cols"] == cols


def test_a_tile_that_does_not_fit_gives_way_to_one_like_it() -> None:
    point = adapted("matmul:m=512,n=20,k=512,dtype=f32", tile=TilePoint(8, 3))
    assert point["tile"] in [TilePoint(rows, 2) for rows in (8, 10, 12)]


ONE_ROW = "matmul:m=1,n={},k=1000,dtype=f32"


CONVOLUTION = "conv2d:n=1,h=30,w=30,ci=128,co=128,kh={},kw={},dtype=f32"


@pytest.mark.parametrize(
    ("former", "algorithm", "taps", "expected"),
    [
        ((3, 3), "winograd4", (5, 5), "winograd3"),
        ((3, 3), "winograd4", (3, 1), "winograd4"),
        ((5, 5), "winograd3", (3, 3), "winograd4"),
        ((1, 3), "winograd6", (7, 1), "winograd2"),
        ((3, 3), "direct", (5, 5), "direct"),
    ],
)
def test_another_filter_has_the_tiles_most_like_those_of_the_former(
    former: tuple[int, int], algorithm: str, taps: tuple[int, int], expected: str
) -> None:
    spaces = [Space(parse_problem(CONVOLUTION.format(*one)), WIDE) for one in (taps, former)]
    params = {p.name: p.values[0] for p in spaces[1].parameters} | {"algorithm": algorithm}
    point = adapt(*spaces, params)
    assert point is not None and point["algorithm"] == expected


def test_a_problem_that_is_not_filtered_has_no_algorithm_to_adapt() -> None:
    here = Space(parse_problem(CONVOLUTION.format(1, 1)), WIDE)
    there = Space(parse_problem(CONVOLUTION.format(3, 3)), WIDE)
    params = {p.name: p.values[0] for p in there.parameters} | {"algorithm": "winograd4"}
    point = adapt(here, there, params)
    assert point is not None and "algorithm" not in point
    back = adapt(there, here, {p.name: p.values[0] for p in here.parameters})
    assert back is not None and back["algorithm"] == "direct"


def test_a_warm_search_has_both_costs_and_starting_points() -> None:
    model = AnalyticalModel.shipped(
        Space(parse_problem("matmul:m=900,n=1000,k=700,dtype=f32"), WIDE)
    )
    found, starts = warmed(model, MemoryStore(searched_with(costs(1.0, b_rows_from_l2=5))))
    assert found.weights.overlap < DEFAULT_WEIGHTS.overlap
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
    schedule = space.schedule(base)

    def trial(number: int, state: str, seconds: float | None) -> TrialRecord:
        speed = summarise([seconds] * 6, SQUARE.flops) if seconds else None
        return TrialRecord(number, schedule, base, state, "test", measurement=speed)

    trials = [trial(i, "timed", 1e-3 * (100 - i)) for i in range(MOST_SOLVED + 5)]
    trials += [trial(98, "pruned", 1e-6), trial(99, "failed", None)]
    times = [time_us for _, time_us in Solved.of(SQUARE, HERE, trials).points]
    assert times == sorted(t.measurement.time_us for t in trials[:-2])[:MOST_SOLVED]


def test_near_is_a_matter_of_doublings() -> None:
    space = Space(SQUARE, WIDE)
    texts = ["m=1024,n=1024,k=512", "m=512,n=1024,k=512", "m=256,n=512,k=512"]
    apart = [distance(space, solved(f"matmul:{text},dtype=f32")) for text in texts]
    assert apart == sorted(apart)
    assert apart[0] == pytest.approx(1.0)
    assert distance(space, solved("matmul:m=1024,n=1024,k=1024,dtype=f32,epilogue=relu")) < 1


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("matmul:m=1024,n=1024,k=1024,dtype=f64", HERE),
        ("matmul:m=1024,n=1024,k=1024,dtype=f32,transpose_b", HERE),
        ("matmul:m=1024,n=1024,k=1024,dtype=f32,weights=constant", HERE),
        ("matmul:m=1024,n=1024,k=1024,dtype=f32", "cpu:another,threads=1"),
        ("matmul:m=1,n=1,k=1,dtype=f32", HERE),
    ],
)
def test_what_says_nothing_is_not_near(text: str, target: str) -> None:
    assert distance(Space(SQUARE, WIDE), solved(text, target)) is None


def texts(found: list[Solved]) -> list[str]:
    return [one.problem.canonical for one in found]


def test_the_nearest_searches_on_the_processor_are_read_the_nearest_first() -> None:
    far = "matmul:m=2,n=2,k=2,dtype=f32"
    near = [f"matmul:m=1024,n=1024,k={512 + i},dtype=f32" for i in range(MAX_SEARCHES + 3)]
    store = MemoryStore([solved(far), *(solved(text) for text in near)])
    found = near_searches(Space(SQUARE, WIDE), store)
    assert len(found) == MAX_SEARCHES
    apart = [doublings(SQUARE, one.problem) for one in found]
    assert apart == sorted(apart) and far not in texts(found)


def test_what_a_processor_is_like_other_types_and_distant_shapes_tell_too() -> None:
    others = ["matmul:m=2,n=2,k=2,dtype=f32", "matmul:m=1024,n=1024,k=512,dtype=f64"]
    elsewhere = solved("matmul:m=1024,n=1024,k=512,dtype=f32", "cpu:another,threads=1")
    found = near_searches(Space(SQUARE, WIDE), MemoryStore([*map(solved, others), elsewhere]))
    assert sorted(texts(found)) == sorted(parse_problem(t).canonical for t in others)


def test_one_problem_that_was_searched_many_times_does_not_hide_others() -> None:
    """Nor do short searches of it the long ones."""
    short = [solved("matmul:m=1024,n=1024,k=512,dtype=f32", unroll=u) for u in (1, 2, 4, 8)]
    long = [replace(s, slower=s.points * 9) for s in short[:MAX_SEARCHES_OF_A_PROBLEM]]
    other = solved("matmul:m=512,n=512,k=512,dtype=f32")
    found = near_searches(Space(SQUARE, WIDE), MemoryStore([*short, *long, other]))
    assert found == [*long, other]


def test_searches_that_cannot_serve_do_not_crowd_out_those_that_can() -> None:
    others = [
        solved(f"matmul:m=1024,n=1024,k={1024 + i},dtype={dtype}")
        for i in range(MAX_SEARCHES)
        for dtype in ("f64", "f16")
    ]
    serving = solved("matmul:m=512,n=512,k=1024,dtype=f32")
    found = near_searches(Space(SQUARE, WIDE), MemoryStore([*others, serving]))
    assert serving in found and len(found) == MAX_SEARCHES


def test_groups_of_the_same_channels_are_near_however_many_there_are() -> None:
    def layer(channels: int, groups: int) -> str:
        return (
            f"conv2d:n=1,h=28,w=28,ci={channels},co={channels},kh=3,kw=3,groups={groups},dtype=f32"
        )

    space = Space(parse_problem(layer(192, 192)), WIDE)
    assert distance(space, solved(layer(144, 144))) is not None
    assert distance(space, solved(layer(192, 96))) is None
    assert distance(space, solved(layer(192, 1))) is None
