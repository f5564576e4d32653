import pytest

from tests.search.targets import NARROW, SQUARE, WIDE
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Fuse, Pack, Schedule, Split, loop_nest
from tilewise.kernels.target import Target
from tilewise.kernels.target.machine import described
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.space.space import Space
from tilewise.search.space.tiles import (
    fits,
    register_tiles,
    split_tiles,
    swept_tiles,
)


def test_register_tiles_fit_the_registers() -> None:
    for target in (WIDE, NARROW):
        space = Space(SQUARE, target)
        assert register_tiles(space.workload)
        for rows, vectors in register_tiles(space.workload):
            assert rows * vectors + vectors + 1 <= target.vector_registers
    first = prior_points(AnalyticalModel.shipped(Space(SQUARE, WIDE)), 1)[0]
    assert first["tile"].rows * first["tile"].vectors >= 20  # the registers are there to be used


def test_single_pixels_are_fused_for_matrix_tiles_alone() -> None:
    server = described("sapphirerapids", ("avx512f", "fma", "avx2", "amx-tile", "amx-bf16"))
    text = "conv2d:n=1,h=7,w=7,ci=64,co=64,kh=1,kw=1"
    space = Space(parse_problem(f"{text},dtype=bf16"), server)
    points = prior_points(AnalyticalModel.shipped(space), 4)
    for point in points:
        schedule = space.schedule(point)
        assert isinstance(schedule, Schedule) and schedule.steps[0] == Fuse()
        assert loop_nest(space.problem, schedule).extent("m") == 49
    for problem, target in (
        (f"{text},dtype=f32", server), (f"{text},dtype=bf16", WIDE),
        (f"{text},dtype=bf16,stride=2", server),
    ):  # fmt: skip
        other = Space(parse_problem(problem), target)
        assert not other.workload.fuses and other.workload.problem == other.problem


SMALL_IMAGE = "conv2d:n=1,h=7,w=7,ci=64,co=64,kh=3,kw=3,pad=1,dtype=f32"


def test_tiles_are_as_tall_as_the_method_with_more_rows_allows() -> None:
    """A line has 7 pixels, and 7x7 pixels are 16 tiles of 2x2."""
    for text, most in ((SMALL_IMAGE, 16), (f"{SMALL_IMAGE},accuracy=strict", 7)):
        tiles = register_tiles(Space(parse_problem(text), WIDE).workload)
        assert max(rows for rows, _ in tiles) == most


NARROW_RESULTS = [
    "matmul:m=3072,n=1,k=1024,dtype=f32",
    "matmul:m=2048,n=4,k=512,dtype=i8",
    "matmul:m=1,n=4096,k=4096,dtype=f32,transpose_b",
    "matmul:batch=3,m=4,n=77,k=63,dtype=bf16,transpose_b",
    "matmul:m=1,n=1,k=1,dtype=f64",
]


def splits(schedule: Schedule) -> bool:
    return any(isinstance(step, Split) for step in schedule.steps)


@pytest.mark.parametrize("text", NARROW_RESULTS)
@pytest.mark.parametrize("target", [WIDE, NARROW])
def test_narrow_results_are_offered_splits_of_the_reduction(text: str, target: Target) -> None:
    problem = parse_problem(text)
    space = Space(problem, target)
    if not split_tiles(space.workload):
        assert target is NARROW  # four columns fill its vectors
        return
    first = [splits(space.schedule(p)) for p in prior_points(AnalyticalModel.shipped(space), 12)]
    assert first[0]
    if problem.m * problem.n > 1:
        assert not all(first)  # a script needs one that does not split
    for tile in split_tiles(space.workload):
        assert tile.vectors <= problem.n and tile.rows <= problem.m


@pytest.mark.parametrize(
    "text",
    [
        "matmul:m=1,n=512,k=256,dtype=bf16,b=i4,group=32,transpose_b,weights=constant",
        "matmul:m=1024,n=1024,k=1024,dtype=f32",
        "matmul:m=1,n=4096,k=4096,dtype=f32",
        "matmul:m=64,n=1,k=512,dtype=f32,transpose_a",
        "matmul:m=64,n=9,k=512,dtype=f32",
        # B is packed for many rows, ahead, or for a reduction that is soon over
        "matmul:m=256,n=64,k=512,dtype=f32,transpose_b",
        "matmul:m=8,n=64,k=512,dtype=f32,transpose_b,weights=constant",
        "matmul:m=8,n=64,k=64,dtype=f32,transpose_b",
        "matmul:m=8,n=64,k=512,dtype=f32,transpose_a,transpose_b",
        "conv2d:n=1,h=9,w=9,ci=8,co=1,kh=3,kw=3,dtype=f32",
    ],
)
def test_no_split_is_offered_where_columns_fill_vectors(text: str) -> None:
    assert split_tiles(Space(parse_problem(text), WIDE).workload) == ()


@pytest.mark.parametrize("target", [WIDE, NARROW, WIDE.with_threads(2)], ids=str)
@pytest.mark.parametrize(
    "text",
    [
        "matmul:m=8,n=4096,k=4096,dtype=f32,transpose_b",
        "matmul:m=5,n=33,k=700,dtype=bf16,transpose_b,bias",
        "matmul:batch=3,m=128,n=77,k=512,dtype=i8,transpose_b",
    ],
)
def test_few_rows_may_read_both_factors_along_the_reduction(text: str, target: Target) -> None:
    problem = parse_problem(text)
    space = Space(problem, target)
    tiles = split_tiles(space.workload)
    assert tiles and set(tiles) <= set(space.values("tile"))
    for tile in tiles:
        assert tile.rows <= problem.m and tile.vectors <= problem.n
        assert fits(tile, target.vector_registers)
        loads, products = tile.rows + tile.vectors, tile.rows * tile.vectors
        assert 3 * loads <= 2 * products, "two loads for three products at most"
    found = [space.schedule(point) for point in prior_points(AnalyticalModel.shipped(space), 16)]
    kinds = [splits(schedule) for schedule in found]
    assert any(kinds) and not all(kinds)
    assert not any(Pack("B") in schedule.steps for schedule in found if splits(schedule))


@pytest.mark.parametrize("target", [WIDE, NARROW, WIDE.with_threads(2)], ids=str)
@pytest.mark.parametrize(
    "text",
    [
        "matmul:m=1,n=4096,k=4096,dtype=bf16",
        "matmul:m=1,n=1000,k=1000,dtype=f32,transpose_a",
        "matmul:batch=2,m=8,n=300,k=64,dtype=i8,bias",
        "matmul:m=5,n=4096,k=33,dtype=f64,weights=constant",
        "matmul:m=16,n=512,k=300,dtype=i8",
        "matmul:m=29,n=300,k=64,dtype=f16",
    ],
)
def test_results_of_few_rows_are_offered_sweeps(text: str, target: Target) -> None:
    problem = parse_problem(text)
    space = Space(problem, target)
    offered = swept_tiles(space.workload)
    assert offered and set(offered) <= set(space.values("tile"))
    first = [space.schedule(p) for p in prior_points(AnalyticalModel.shipped(space), 16)]
    swept = [loop_nest(problem, schedule).is_skinny for schedule in first]
    assert any(swept) and not all(swept)
    for tile in offered:
        assert tile.rows <= problem.m and tile.kind == "sweep"
        point = {p.name: p.values[0] for p in space.parameters} | {"tile": tile}
        schedule = space.schedule(point)
        nest = loop_nest(problem, schedule)
        assert nest.is_skinny and nest.k_block is not None
        assert (nest.k_block.step, nest.k_block.streams) == (tile.depth, tile.streams)
        plan(problem, schedule, target)
