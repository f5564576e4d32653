"""Tiles that begin at the nearer end: who is offered them, and what they mean."""

from dataclasses import replace
from itertools import product

import pytest

from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Alternate, Divide, Parallel, Tile, check_legal
from tilewise.kernels.target import Target
from tilewise.search.model.analytical import Model
from tilewise.search.model.prior import prior_points
from tilewise.search.space.census import count_schedules
from tilewise.search.space.ends import BLOCKS
from tilewise.search.space.parameters import RegisterTile
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space
from tilewise.search.space.tiles import tile_shape

TARGET = Target(
    "znver4",
    features=frozenset({"fma", "avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx512bf16"}),
    vector_bytes=64,
    vector_registers=32,
    l2_bytes=1 << 20,
    l3_bytes=32 << 20,
)


def at_ends(space: Space) -> list[Point]:
    """A point of each such tile."""
    base = {p.name: p.values[0] for p in space.parameters}
    tiles = [tile for tile in space.values("tile") if tile_shape(tile).ends]
    return [base | {"tile": tile} for tile in tiles]


@pytest.mark.parametrize(
    ("text", "dim"),
    [
        ("m=1,n=1000,k=1000,dtype=f32", "k"),
        ("m=4,n=512,k=2048,dtype=bf16", "k"),
        ("m=1,n=2000,k=1000,dtype=f32,weights=constant", "k"),
        ("m=1000,n=1,k=1000,dtype=f32", "m"),
        ("m=3001,n=1,k=1000,dtype=i8", "m"),
        ("m=1,n=1000,k=1000,dtype=f32,transpose_b", "n"),
    ],
)
def test_a_matrix_that_a_cache_keeps_a_part_of_is_begun_at_either_end(text: str, dim: str) -> None:
    space = Space(parse_problem(f"matmul:{text}"), TARGET)
    offered = at_ends(space)
    assert offered
    for point in offered:
        schedule = space.schedule(point)
        first, second = schedule.steps[:2]
        check_legal(space.problem, schedule)
        plan(space.problem, schedule, TARGET)
        assert second == Alternate(dim) and isinstance(first, Divide if dim == "k" else Tile)
        line = max(s.total for s in space.workload.stored.values()) / space.workload.extents[dim]
        share = first.size * line * BLOCKS / TARGET.l2_bytes
        assert 0.5 < share < 2 or schedule.depth == first.size
    for cpu in ("znver4", "emeraldrapids"):  # trials of the latter have shown what it gains
        own = Space(space.problem, replace(TARGET, cpu=cpu))
        first = [tile_shape(p["tile"]).ends for p in prior_points(Model.shipped(own), 16)]
        assert any(first) and not all(first) and first[0] == (cpu == "emeraldrapids")
    made = {space.schedule(point) for point in offered}
    assert count_schedules(space) >= len(made) > 1


@pytest.mark.parametrize(
    "text",
    [
        "m=1,n=300,k=500,dtype=f32",  # the second cache has all of it
        "m=1,n=4096,k=4096,dtype=f32",  # and hardly any of this
        "batch=2,m=1,n=1000,k=1000,dtype=f32",  # the other product comes between
        "m=1,n=2000,k=2000,dtype=i8",  # bytes whose sums are corrected as a whole
        "m=64,n=1000,k=1000,dtype=f32",  # not read once
    ],
)
def test_others_have_one_order(text: str) -> None:
    assert not at_ends(Space(parse_problem(f"matmul:{text}"), TARGET))


@pytest.mark.parametrize("features", [frozenset({"neon"}), frozenset({"fp-armv8"})])
def test_no_end_is_nearer_where_no_clock_is_read(features: frozenset[str]) -> None:
    """There a kernel would sum parts apart, and always begin with the first."""
    target = replace(TARGET, cpu="neoverse-v2", features=features, vector_bytes=16)
    for text in ("m=1,n=1000,k=1000,dtype=f32", "m=1000,n=1,k=1000,dtype=f32"):
        space = Space(parse_problem(f"matmul:{text}"), target)
        assert not at_ends(space)
        assert at_ends(Space(space.problem, replace(target, features=frozenset())))


def test_each_thread_has_a_cache() -> None:
    problem, two = parse_problem("matmul:m=1,n=2000,k=1500,dtype=f32"), replace(TARGET, threads=2)
    assert not at_ends(Space(problem, TARGET))
    space = Space(problem, two)
    for point in at_ends(space):
        schedule = space.schedule(point | {"parallel": "n=2"})
        assert [type(step) for step in schedule.steps[:3]] == [Parallel, Divide, Alternate]
        check_legal(problem, schedule)
    assert at_ends(space)


@pytest.mark.parametrize(
    "text", ["m=9,n=1,k=2000,dtype=f32", "m=1,n=9,k=2000,dtype=f32,transpose_b"]
)
def test_a_part_of_one_block_is_counted_once(text: str) -> None:
    """Some threads' parts are one block: the schedule of the tile without the mark."""
    target = replace(TARGET, threads=2, l2_bytes=1 << 14)
    space = Space(parse_problem(f"matmul:{text}"), target)
    names = [parameter.name for parameter in space.parameters]
    values = product(*(parameter.values for parameter in space.parameters))
    points: list[Point] = [dict(zip(names, chosen, strict=True)) for chosen in values]
    made = {space.schedule(point) for point in points}
    assert at_ends(space)
    assert count_schedules(space) == sum(space.why_illegal(schedule) is None for schedule in made)


def test_the_end_is_a_number_of_its_own() -> None:
    """A model that takes 16 rows from the nearer end for 8 in order has two times for one tile."""
    tile = Space(parse_problem("matmul:m=1,n=1000,k=1000,dtype=f32"), TARGET).parameter("tile")
    assert isinstance(tile, RegisterTile)
    codes = {tile_shape(value): tile.encode(value) for value in tile.values}
    for shape, code in codes.items():
        assert code[:-1] == codes[shape._replace(ends=False)][:-1]
        assert (code[-1] > 0) == shape.ends
    whole = Space(parse_problem("matmul:m=1,n=300,k=500,dtype=f32"), TARGET).parameter("tile")
    assert whole and all(len(whole.encode(value)) == 3 for value in whole.values)
