"""Searches decide by what the table of cores says of a processor, not by its name."""

from dataclasses import replace

import pytest

from tests.search.targets import FAR
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import cores
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.space.space import Space

PROBLEMS = (
    "matmul:m=35,n=700,k=2048,dtype=f32",
    "matmul:m=28,n=1024,k=2048,dtype=f32,weights=constant",
    "matmul:m=1024,n=1024,k=1024,dtype=f32",
    "conv2d:n=1,h=7,w=7,ci=512,co=512,kh=3,kw=3,pad=1,dtype=f32,weights=constant",
    "conv2d:n=1,h=56,w=56,ci=128,co=128,kh=3,kw=3,pad=1,dtype=f32",
)


def decided(text: str, cpu: str) -> tuple[object, ...]:
    """The space of a problem, its first points, their times, and what kernels fetch ahead."""
    space = Space(parse_problem(text), replace(FAR, cpu=cpu))
    model = AnalyticalModel.shipped(space)
    points = prior_points(model, 6)
    schedules = [space.schedule(point) for point in points]
    specs = [plan(space.problem, schedule, space.target).kernel.spec for schedule in schedules]
    return space.parameters, points, [model.log_time(point) for point in points], specs


@pytest.mark.parametrize("text", PROBLEMS)
def test_facts_decide(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    far, near = cores.core_of("emeraldrapids")[0], cores.core_of("skylake-avx512")[0]
    assert decided(text, "emeraldrapids") != decided(text, "skylake-avx512")
    known = replace(near, transforms=far.transforms, far_l3=far.far_l3, broadcasts=far.broadcasts)
    monkeypatch.setitem(cores._CORES, "skylake-avx512", known)
    assert decided(text, "skylake-avx512") == decided(text, "emeraldrapids")
