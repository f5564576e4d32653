import pytest

from kernels.problem import parse_problem
from search.prior import prior_points
from search.records import Solved, TuneRequest
from search.space import Space
from search.store import MemoryStore
from search.transfer import MOST, adapt, distance, starting_points
from tests.search.test_space import SQUARE, WIDE
from tests.search.test_tune import FakeRunner, run

HERE = WIDE.canonical


def solved(text: str, target: str = HERE, **changes) -> Solved:
    problem = parse_problem(text)
    point = prior_points(Space(problem, WIDE), 1)[0]
    return Solved(problem, target, point | changes)


def test_near_is_a_matter_of_doublings() -> None:
    space = Space(SQUARE, WIDE)
    texts = ["m=1024,n=1024,k=512", "m=512,n=1024,k=512", "m=256,n=256,k=512"]
    apart = [distance(space, solved(f"matmul:{text},dtype=f32")) for text in texts]
    assert apart == sorted(apart)
    assert apart[0] == pytest.approx(1.0)
    assert distance(space, solved("matmul:m=1024,n=1024,k=1024,dtype=f32,epilogue=relu")) < 1


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("matmul:m=1024,n=1024,k=1024,dtype=f64", HERE),
        ("matmul:m=1024,n=1024,k=1024,dtype=f32,transpose_b", HERE),
        ("matmul:m=1024,n=1024,k=1024,dtype=f32", "cpu:another,threads=1"),
        ("matmul:m=1,n=1,k=1,dtype=f32", HERE),
    ],
)
def test_what_says_nothing_is_not_near(text: str, target: str) -> None:
    assert distance(Space(SQUARE, WIDE), solved(text, target)) is None


def test_sizes_are_kept_and_snapped() -> None:
    known = solved("matmul:m=512,n=512,k=2048,dtype=f32", depth=512, cols=0, rows=64, tile="8x3")
    point = adapt(Space(parse_problem("matmul:m=600,n=4000,k=300,dtype=f32"), WIDE), known)
    assert point["depth"] == 0  # 300 is less than what stayed in the cache
    assert point["cols"] == 512  # it was whole, but a dim of 4000 is another matter
    assert point["rows"] == 64
    assert point["tile"] == "8x3"


def test_a_tile_that_does_not_fit_gives_way_to_one_like_it() -> None:
    known = solved("matmul:m=512,n=512,k=512,dtype=f32", tile="8x3")
    point = adapt(Space(parse_problem("matmul:m=512,n=20,k=512,dtype=f32"), WIDE), known)
    assert point["tile"] in ("8x2", "12x2", "10x2")


def test_the_nearest_come_first_and_only_legal_ones() -> None:
    near = solved("matmul:m=1024,n=1024,k=900,dtype=f32", tile="5x5")
    others = [
        solved(f"matmul:m={m},n=1024,k=900,dtype=f32", tile=tile)
        for m, tile in ((256, "4x6"), (300, "8x3"), (350, "9x3"), (400, "6x4"), (200, "7x3"))
    ]
    space = Space(SQUARE, WIDE)
    points = starting_points(space, MemoryStore([*others, near, near]))
    assert points[0]["tile"] == "5x5"
    assert len(points) == MOST
    assert all(space.holds(p) and space.why_illegal(space.schedule(p)) is None for p in points)


def test_a_search_begins_with_what_the_store_knows() -> None:
    known = solved("matmul:m=512,n=512,k=500,dtype=f32", tile="7x3", rows=64, depth=128)
    # the same processor name as the fake target of these tests
    known = Solved(known.problem, "cpu:fake,threads=1", known.params)
    result, _, _ = run(TuneRequest(trials=12), MemoryStore([known]), FakeRunner())
    assert [t.origin for t in result.trials[:3]] == ["prior", "transfer", "prior"]
    assert result.trials[1].params["tile"] == "7x3"
