from math import exp

import pytest

from kernels.problem import parse_problem
from search.model.analytical import Model
from search.model.prior import prior_points
from search.records import MOST_EARLY, MOST_SOLVED, Solved, TrialRecord, TuneRequest
from search.space.space import Space
from search.store import MemoryStore
from search.timing.measure import summarise
from search.transfer.adaptation import adapt
from search.transfer.nearness import MAX_SERVING_SEARCHES
from search.transfer.starting_points import MAX_STARTING_POINTS, starting_points
from tests.search.engine.test_tune import FakeRunner, run
from tests.search.space.test_space import SQUARE, WIDE

HERE = WIDE.canonical


def solved(text: str, target: str = HERE, **changes) -> Solved:
    problem = parse_problem(text)
    point = prior_points(Model.shipped(Space(problem, WIDE)), 1)[0]
    return Solved(problem, target, (((point | changes), 1000.0),))


def adapted(text: str, **changes):
    """A point of another problem, in the space of `text`."""
    known = solved("matmul:m=512,n=512,k=2048,dtype=f32", **changes)
    (params, _), former = known.points[0], Space(known.problem, WIDE)
    return adapt(Space(parse_problem(text), WIDE), former, params)


def test_sizes_are_kept_and_snapped() -> None:
    text = "matmul:m=600,n=4000,k=300,dtype=f32"
    point = adapted(text, depth=512, cols=0, rows=64, tile="8x3")
    assert point["depth"] == 0  # 300 is less than what stayed in the cache
    assert point["cols"] == 512  # it was whole, but a dim of 4000 is another matter
    assert point["rows"] == 64
    assert point["tile"] == "8x3"


@pytest.mark.parametrize(("extent", "cols"), [(300, 0), (1000, 0), (1023, 0), (1024, 512)])
def test_a_dim_that_was_not_cut_stays_whole_up_to_twice_as_long(extent: int, cols: int) -> None:
    assert adapted(f"matmul:m=600,n={extent},k=300,dtype=f32", cols=0)["cols"] == cols


def test_a_tile_that_does_not_fit_gives_way_to_one_like_it() -> None:
    point = adapted("matmul:m=512,n=20,k=512,dtype=f32", tile="8x3")
    assert point["tile"] in ("8x2", "12x2", "10x2")


def test_only_legal_points_come_each_once_and_a_few() -> None:
    tiles = ("4x6", "8x3", "9x3", "6x4", "7x3", "12x2", "5x5", "10x2")
    assert len(tiles) > MAX_STARTING_POINTS
    known = [searched("matmul:m=1024,n=1024,k=900,dtype=f32", dict.fromkeys(tiles, 1.0))]
    space = Space(SQUARE, WIDE)
    points = starting_points(Model.shipped(space), [*known, *known])
    assert len(points) == MAX_STARTING_POINTS
    assert len({space.schedule(p).hash for p in points}) == MAX_STARTING_POINTS
    assert all(space.holds(p) and space.why_illegal(space.schedule(p)) is None for p in points)


def test_only_the_nearest_searches_are_asked() -> None:
    near = [solved(f"matmul:m=1024,n=1024,k={900 + i},dtype=f32", tile="5x5") for i in range(4)]
    assert len(near) == MAX_SERVING_SEARCHES
    far = solved("matmul:m=512,n=512,k=512,dtype=f32", tile="8x3")
    points = starting_points(Model.shipped(Space(SQUARE, WIDE)), [far, *near])
    assert {p["tile"] for p in points} == {"5x5"}


def searched(text: str, factors: dict[str, float], scale: float = 1.0) -> Solved:
    """A search whose times are the model's but for a factor by tile."""
    space = Space(parse_problem(text), WIDE)
    base = prior_points(Model.shipped(space), 1)[0]
    points = [base | {"tile": tile} for tile in factors]
    timed = [
        (p, scale * exp(Model.shipped(space).log_time(p)) * factors[str(p["tile"])]) for p in points
    ]
    return Solved(space.problem, WIDE.canonical, tuple(sorted(timed, key=lambda pair: pair[1])))


@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_what_the_model_got_wrong_there_is_expected_here(scale: float) -> None:
    """Whatever the clock: only how the points of one search compare is carried over."""
    factors = dict.fromkeys(("6x4", "8x3", "12x2", "7x3", "9x3"), 1.0) | {"5x5": 0.8, "9x2": 0.7}
    text = "matmul:m=1024,n=1024,k=900,dtype=f32"
    points = starting_points(Model.shipped(Space(SQUARE, WIDE)), [searched(text, factors, scale)])
    assert {p["tile"] for p in points[:2]} == {"5x5", "9x2"}


def test_a_slower_point_comes_first_where_the_model_sees_that_it_suits_better() -> None:
    """A winner's tile of 8 rows says little of 5 rows: the model's edges and sizes count."""
    known = searched("matmul:m=64,n=960,k=900,dtype=f32", {"8x3": 0.97, "5x5": 1.0, "6x4": 1.05})
    assert known.points[0][0]["tile"] != "5x5"
    few = Space(parse_problem("matmul:m=15,n=960,k=900,dtype=f32"), WIDE)
    assert starting_points(Model.shipped(few), [known])[0]["tile"] == "5x5"


def test_what_is_slow_anyway_says_little_of_how_far_the_model_is_off() -> None:
    """Else whoever tried many slow points would seem to have found the best ones."""
    others = ("8x3", "12x2", "7x3", "9x3", "10x2", "9x2", "4x6", "8x2")
    many_slow = searched(
        "matmul:m=1024,n=1024,k=900,dtype=f32", {"6x4": 1.0} | dict.fromkeys(others[:4], 10.0)
    )
    one_fast = searched(
        "matmul:m=1024,n=1024,k=1900,dtype=f32", {"5x5": 0.4} | dict.fromkeys(others, 1.0)
    )
    first, second, *_ = starting_points(Model.shipped(Space(SQUARE, WIDE)), [many_slow, one_fast])
    assert (first["tile"], second["tile"]) == ("5x5", "6x4")


def test_each_search_has_its_turn() -> None:
    """However much better one of them is thought to suit: its points may fail all together."""
    liked = dict.fromkeys(("6x4", "8x3", "12x2", "7x3", "9x3", "10x2", "9x2"), 0.5)
    usual = dict.fromkeys(("5x5", "4x6"), 1.0)
    one = searched("matmul:m=1024,n=1024,k=900,dtype=f32", liked | {"4x4": 1.0})
    other = searched("matmul:m=1024,n=1024,k=1900,dtype=f32", usual)
    tiles = [p["tile"] for p in starting_points(Model.shipped(Space(SQUARE, WIDE)), [one, other])]
    assert len(tiles) == MAX_STARTING_POINTS
    assert set(tiles[:2]) & set(usual) and set(tiles[2:4]) & set(usual)
    assert set(tiles[:2]) & set(liked) and set(tiles[2:]) - set(usual) <= set(liked)


def test_points_that_the_space_no_longer_has_are_left_out() -> None:
    known = solved("matmul:m=1024,n=1024,k=900,dtype=f32", tile="40x9")
    assert starting_points(Model.shipped(Space(SQUARE, WIDE)), [known]) == []


def test_a_parameter_of_later_times_is_filled_in() -> None:
    known = solved("matmul:m=1024,n=1024,k=1024,dtype=f32", tile="5x5")
    params = {k: v for k, v in known.points[0][0].items() if k != "prefetch"}
    earlier = Solved(known.problem, known.target, ((params, 1000.0),))
    (point,) = starting_points(Model.shipped(Space(SQUARE, WIDE)), [earlier])
    assert point["tile"] == "5x5" and point["prefetch"] is False


def test_of_trials_the_fastest_that_were_timed_to_the_end_are_told() -> None:
    space = Space(SQUARE, WIDE)
    base = prior_points(Model.shipped(space), 1)[0]
    schedule = space.schedule(base)

    def trial(number: int, state: str, seconds: float | None) -> TrialRecord:
        speed = summarise([seconds] * 6, SQUARE.flops) if seconds else None
        return TrialRecord(number, schedule, base, state, "test", measurement=speed)

    trials = [trial(i, "timed", 1e-3 * (100 - i)) for i in range(MOST_SOLVED + 5)]
    trials += [trial(98, "pruned", 1e-6), trial(99, "failed", None)]
    times = [time_us for _, time_us in Solved.of(SQUARE, HERE, trials).points]
    assert times == sorted(t.measurement.time_us for t in trials[:-2])[:MOST_SOLVED]


def test_of_the_slower_those_of_its_first_trials_are_told_and_those_that_were_stopped() -> None:
    point = prior_points(Model.shipped(Space(SQUARE, WIDE)), 1)[0]
    schedule = Space(SQUARE, WIDE).schedule(point)

    def trial(number: int, state: str) -> TrialRecord:
        speed = summarise([1e-3 * (number + 1)] * 6, SQUARE.flops)
        return TrialRecord(number, schedule, point, state, "test", measurement=speed)

    trials = [trial(n, "pruned" if n in (2, 50, MOST_EARLY) else "timed") for n in range(200)]
    known = Solved.of(SQUARE, HERE, trials)
    numbers, slower = (
        [round(time_us / 1e3) - 1 for _, time_us in some] for some in (known.points, known.slower)
    )
    assert numbers == [n for n in range(MOST_SOLVED + 1) if n != 2]
    assert sorted(slower) == [n for n in range(MOST_EARLY) if n > MOST_SOLVED or n == 2]


def test_a_search_begins_with_what_the_store_knows() -> None:
    known = solved("matmul:m=512,n=512,k=500,dtype=f32", tile="7x3", rows=64, depth=128)
    # the same processor name as the fake target of these tests
    known = Solved(known.problem, "cpu:fake,threads=1", known.points)
    result, _, _ = run(TuneRequest(trials=12), MemoryStore([known]), FakeRunner())
    assert [t.origin for t in result.trials[:4]] == ["prior", "prior", "transfer", "prior"]
    assert result.trials[2].params["tile"] == "7x3"
