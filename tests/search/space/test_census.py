from itertools import product

import pytest

from tests.search.targets import WIDE
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import Target
from tilewise.search.space.census import count_schedules
from tilewise.search.space.points import TilePoint
from tilewise.search.space.space import Space

TIGHT = Target("tight", vector_bytes=16, vector_registers=16, l2_bytes=20_000, threads=2)


WIDER = [
    ("conv2d:n=2,h=5,w=5,ci=200,co=9,kh=3,kw=3,dtype=f64", TIGHT.with_threads(1)),
    ("conv2d:n=2,h=7,w=5,ci=8,co=40,kh=3,kw=3,pad=1,dtype=f64", TIGHT),
    ("conv2d:n=2,h=9,w=5,ci=8,co=40,kh=3,kw=3,layout=nchw_fchw,dtype=f64", TIGHT),
    ("matmul:m=9,n=64,k=300,dtype=f32,weights=constant", WIDE.with_threads(2)),
    ("matmul:m=4,n=200,k=300,dtype=bf16", WIDE.with_threads(2)),
]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("matmul:m=20,n=40,k=130,dtype=f32", WIDE),
        ("matmul:m=20,n=4,k=130,dtype=i8", TIGHT),
        ("conv2d:n=2,h=5,w=9,ci=40,co=40,kh=3,kw=3,groups=40,dtype=f32", WIDE.with_threads(2)),
        ("conv2d:n=1,h=6,w=32,ci=6,co=12,kh=3,kw=3,groups=6,layout=nchw_fchw,dtype=f64", WIDE),
        *(pytest.param(*one, marks=pytest.mark.full) for one in WIDER),
    ],
)
def test_the_count_is_that_of_listing_everything(text: str, target: Target) -> None:
    space = Space(parse_problem(text), target)
    names = [p.name for p in space.parameters]
    seen = {
        space.schedule(dict(zip(names, values, strict=True)))
        for values in product(*(p.values for p in space.parameters))
    }
    legal = sum(space.why_illegal(schedule) is None for schedule in seen)
    assert legal > 0
    assert count_schedules(space) == legal


def test_what_the_caches_cannot_take_is_not_counted() -> None:
    problem = parse_problem("matmul:m=64,n=2048,k=4096,dtype=f32")
    roomy, tight = (Space(problem, Target("x", l2_bytes=size)) for size in (4 << 20, 256 << 10))
    assert count_schedules(tight) < count_schedules(roomy)
    point = {p.name: p.values[-1] for p in tight.parameters} | {"tile": TilePoint(4, 4), "depth": 0}
    reason = tight.why_illegal(tight.schedule(point | {"pack_b": False}))
    assert reason is None  # 256 KiB just fit
    small = Space(problem, Target("x", l2_bytes=128 << 10))
    reason = small.why_illegal(small.schedule(point))
    assert reason is not None and "second cache" in reason
