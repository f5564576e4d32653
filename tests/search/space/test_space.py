import json
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.strategies import problems
from tests.search.targets import NARROW, SQUARE, WIDE
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Stream, Tile, check_legal, loop_nest
from tilewise.kernels.target import Target
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.samplers.registry import GridSampler
from tilewise.search.space import points
from tilewise.search.space.parameters import Size, step_aside
from tilewise.search.space.points import WHOLE, TilePoint, point_from_json, scalars_of
from tilewise.search.space.space import Space, why_too_large


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems, st.sampled_from([WIDE, NARROW, WIDE.with_threads(6)]), st.integers(0, 2**31))
def test_every_point_of_every_space_is_a_legal_schedule(problem, target, seed) -> None:
    space = Space(problem, target)
    random = Random(seed)
    for _ in range(5):
        point = {p.name: random.choice(p.values) for p in space.parameters}
        schedule = space.schedule(point)
        check_legal(problem, schedule)
        plan(problem, schedule, target)


def test_the_grid_walk_visits_every_point_once() -> None:
    space = Space(parse_problem("matmul:m=2,n=20,k=70,dtype=f32"), WIDE)
    walks = [GridSampler(space, seed) for seed in (3, 4)]
    points = [[tuple(walk.propose().items()) for _ in range(space.size)] for walk in walks]
    assert [len(set(walked)) for walked in points] == [space.size] * 2
    assert points[0][0] != points[1][0], "the seed says where it begins"


@pytest.mark.parametrize(("rates", "op", "depth"), [
    ((1.0, 2.0), "x86.avx512.vdpbf16ps", 2), ((2.0, 1.0), "x86.avx512.fma.f32", 1),
], ids=["dot product", "fma"])  # fmt: skip
@pytest.mark.parametrize("shape", ["m=96,n=96,k=96", "m=4,n=96,k=96", "m=96,n=1,k=96"])
def test_schedules_name_the_instruction_that_was_measured_to_be_fastest(shape, rates, op, depth):
    measured = tuple(zip(("x86.avx512.fma.f32", "x86.avx512.vdpbf16ps"), rates, strict=True))
    has_both = replace(WIDE, features=frozenset({"fma", "avx512bf16"}), rates=measured)
    space = Space(parse_problem(f"matmul:{shape},dtype=bf16"), has_both)
    assert space.workload.arithmetic.depth == depth
    random = Random(5)
    drawn = [space.schedule(space.draw(random)) for _ in range(20)]
    nests = [loop_nest(space.problem, schedule) for schedule in drawn]
    assert {nest.compute.instruction for nest in nests} == {op}
    wide = Space(parse_problem(f"matmul:{shape},dtype=f32"), has_both)
    plain = loop_nest(wide.problem, wide.schedule(wide.draw(random)))
    assert plain.compute.instruction is None, "there is one way alone"


@settings(max_examples=40, deadline=None, derandomize=True)
@given(problems, st.sampled_from([WIDE, NARROW, WIDE.with_threads(4)]))
def test_values_know_their_neighbours_and_numbers(problem, target) -> None:
    for parameter in Space(problem, target).parameters:
        width = len(parameter.encode(parameter.values[0]))
        encoded = {parameter.encode(value) for value in parameter.values}
        assert len(encoded) == len(parameter.values), "different values have different numbers"
        for value in parameter.values:
            assert len(parameter.encode(value)) == width
            for near in parameter.neighbours(value):
                assert near in parameter.values and near != value
                assert value in parameter.neighbours(near), "nearness goes both ways"


def test_every_tile_can_be_reached_from_every_other() -> None:
    tile = Space(SQUARE, WIDE).parameter("tile")
    reached, frontier = {tile.values[0]}, [tile.values[0]]
    while frontier:
        for near in tile.neighbours(frontier.pop()):
            if near not in reached:
                reached.add(near)
                frontier.append(near)
    assert reached == set(tile.values)


def test_a_size_is_as_large_as_its_dim_at_most() -> None:
    depth = Size("depth", (96, 128, 512, WHOLE), 600)
    assert depth.size(WHOLE) == 600
    assert depth.nearest(600) == depth.nearest(5000) == WHOLE
    assert depth.nearest(110) in (96, 128) and depth.nearest(500) == 512
    assert depth.encode(512) < depth.encode(WHOLE)


@pytest.mark.parametrize("seed", range(4))
def test_a_step_aside_changes_one_parameter_to_a_neighbour(seed: int) -> None:
    space = Space(SQUARE, WIDE)
    point = prior_points(AnalyticalModel.shipped(space), 1)[0]
    moved = step_aside(space.parameters, point, Random(seed))
    (name,) = [n for n in point if point[n] != moved[n]]
    assert moved[name] in space.parameter(name).neighbours(point[name])


TILES = {
    "6x4": (TilePoint(6, 4), "6 rows x 4 vectors"),
    "1x1": (TilePoint(1, 1), "1 row x 1 vector"),
    "2x3s4": (TilePoint(2, 3, "split", partial_sums=4), "2 rows x 3 columns, 4 partial sums"),
    "8x2w32": (TilePoint(8, 2, "sweep", depth=32), "8 rows x 2 vectors, k-block 32"),
    "1x4w8i8": (TilePoint(1, 4, "sweep", depth=8, streams=8),
                "1 row x 4 vectors, k-block 8, 8 k-streams"),
}  # fmt: skip


@pytest.mark.parametrize("text", TILES)
def test_a_tile_is_read_from_its_text_and_from_its_fields(text: str) -> None:
    tile, description = TILES[text]
    point = {"tile": tile, "unroll": 2, "pack_a": True}
    assert point_from_json({**point, "tile": text}) == point
    assert point_from_json(json.loads(json.dumps(points.point_to_json(point)))) == point
    assert scalars_of(point) == {**point, "tile": text}
    assert tile.description == description


@pytest.mark.parametrize("text", ["2x2w8e", "6x4e", "0x4", "6x", "6x4s", "6x4w8i", "", "6x4 "])
def test_a_text_that_is_no_tile_stays_and_no_space_holds_it(text: str) -> None:
    space = Space(parse_problem("matmul:m=64,n=64,k=64,dtype=f32"), replace(WIDE, kind="iree"))
    point = {p.name: p.values[0] for p in space.parameters}
    assert space.holds(point)
    stored = point_from_json(point | {"tile": text})
    assert stored["tile"] == text and not space.holds(stored)


@pytest.mark.parametrize("fields", [
    {}, {"rows": 6}, {"rows": 6, "vectors": 0}, {"rows": "6", "vectors": 4},
    {"rows": True, "vectors": 4}, {"rows": 6, "vectors": 4, "kind": "other"},
    {"rows": 6, "vectors": 2**31}, {"rows": 6, "vectors": 4, "colour": 1},
    {"rows": 6, "vectors": 4, "depth": -1},
])  # fmt: skip
def test_an_object_that_is_no_tile_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no register tile"):
        point_from_json({"tile": fields})


def test_every_tile_of_a_space_is_read_from_its_text() -> None:
    """Whatever the kind; trials stored until now have these texts."""
    small = parse_problem("matmul:m=1,n=4096,k=4096,dtype=f32")
    narrow = parse_problem("matmul:m=64,n=1,k=1024,dtype=f32")
    kinds = set()
    for space in (Space(small, WIDE), Space(narrow, WIDE)):
        for tile in space.values("tile"):
            kinds.add(tile.kind)
            assert point_from_json({"tile": str(tile)})["tile"] == tile
    assert kinds == {"outer", "split", "sweep"}
    tile = TilePoint(12, 32, "iree")
    assert point_from_json({"tile": "12x32", "inner": "rows"})["tile"] == tile
    assert str(tile) == "12x32" and tile.description == "12 rows x 32 columns"
    levels = Space(parse_problem("matmul:m=64,n=64,k=64,dtype=f32"), replace(WIDE, kind="iree"))
    for tile in levels.values("tile"):
        assert point_from_json({"tile": str(tile), "inner": "rows"})["tile"] == tile


def test_what_the_caches_cannot_take_is_illegal() -> None:
    problem = parse_problem("matmul:m=64,n=2048,k=4096,dtype=f32")
    tight = Space(problem, Target("x", l2_bytes=256 << 10))
    point = {p.name: p.values[-1] for p in tight.parameters} | {"tile": TilePoint(4, 4), "depth": 0}
    schedule = tight.schedule(point | {"pack_b": False})
    assert tight.why_illegal(schedule) is None, "256 KiB just fit"
    small = Space(problem, Target("x", l2_bytes=128 << 10))
    reason = small.why_illegal(small.schedule(point))
    assert reason is not None and "second cache" in reason


@pytest.mark.parametrize(("weights", "says"), [("variable", "packed block of B"), ("constant", "")])
def test_weights_that_are_packed_once_for_all_need_no_cache(weights: str, says: str) -> None:
    problem = parse_problem(f"matmul:m=64,n=20000,k=20000,dtype=f64,weights={weights}")
    schedule = Schedule((Stream("k", 300), Pack("B"), Tile("m", 8), Pack("A"), Register(4, 8)))
    small = replace(WIDE, l3_bytes=1 << 20)
    found = why_too_large(problem, replace(small, l2_bytes=1 << 30), schedule)
    assert (found is None) == (not says)
    assert found is None or (says in found and "45 MiB" in found)
