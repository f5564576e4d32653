from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.strategies import problems
from tests.search.targets import NARROW, WIDE
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import check_legal, loop_nest
from tilewise.kernels.target import Target
from tilewise.search.samplers.registry import GridSampler
from tilewise.search.space.space import Space


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems, st.sampled_from([WIDE, NARROW, WIDE.with_threads(6)]), st.integers(0, 2**31))
def test_every_point_of_every_space_is_a_legal_schedule(problem, target, seed) -> None:
    space = Space(problem, target)
    random = Random(seed)
    for _ in range(5):
        point = {p.name: random.choice(p.values) for p in space.parameters}
        check_legal(problem, space.schedule(point))


def test_size_counts_the_points() -> None:
    space = Space(parse_problem("matmul:m=2,n=20,k=3,dtype=f32"), WIDE)
    seen = {tuple(sorted(_point(space, i).items())) for i in range(space.size)}
    assert len(seen) == space.size


def _point(space: Space, index: int) -> dict[str, object]:
    point = {}
    for p in space.parameters:
        index, digit = divmod(index, len(p.values))
        point[p.name] = p.values[digit]
    return point


def test_the_grid_walk_visits_every_point_once() -> None:
    space = Space(parse_problem("matmul:m=2,n=20,k=70,dtype=f32"), WIDE)
    walks = [GridSampler(space, seed) for seed in (3, 4)]
    points = [[tuple(walk.propose().items()) for _ in range(space.size)] for walk in walks]
    assert [len(set(walked)) for walked in points] == [space.size] * 2
    assert points[0][0] != points[1][0], "the seed says where it begins"


def test_what_is_kept_about_points_is_what_they_mean(monkeypatch) -> None:
    monkeypatch.setattr("tilewise.search.space.space.MAX_KEPT_HASHES", 8)
    poor = Target("poor", vector_bytes=16, vector_registers=16, l2_bytes=64 << 10)
    problem = parse_problem("matmul:m=4096,n=4096,k=4096,dtype=f32")
    space, random = Space(problem, poor), Random(2)
    points = [space.draw(random) for _ in range(40)]
    points += points
    schedules = [space.schedule(point) for point in points]
    illegal = [space.why_illegal(schedule) is not None for schedule in schedules]
    assert any(illegal) and not all(illegal)
    for point, schedule, is_illegal in zip(points, schedules, illegal, strict=True):
        assert space.legal_hash(point) == (None if is_illegal else schedule.hash)


@pytest.mark.parametrize(
    ("rates", "op", "depth"),
    [((1.0, 2.0), "x86.avx512.vdpbf16ps", 2), ((2.0, 1.0), "x86.avx512.fma.f32", 1)],
    ids=["dot product", "fma"],
)
@pytest.mark.parametrize("shape", ["m=96,n=96,k=96", "m=4,n=96,k=96", "m=96,n=1,k=96"])
def test_schedules_name_the_instruction_that_was_measured_to_be_fastest(
    shape: str, rates: tuple[float, float], op: str, depth: int
) -> None:
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
