"""Which earlier searches are read, and how near a problem is to another."""

from dataclasses import replace

import pytest

from tests.search.targets import SQUARE, WIDE
from tests.search.transfer.searches import HERE, solved
from tilewise.kernels.problem import parse_problem
from tilewise.search.records import Solved
from tilewise.search.space.space import Space
from tilewise.search.store import MemoryStore
from tilewise.search.transfer.nearness import (
    MAX_SEARCHES,
    MAX_SEARCHES_OF_A_PROBLEM,
    distance,
    doublings,
    near_searches,
)


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
