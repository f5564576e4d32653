import pytest

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.schedule import (
    Interleave,
    Pack,
    Register,
    Schedule,
    Stream,
    Sweep,
    Tile,
    Winograd,
)
from tilewise.service.plots import nest


def test_transforms_are_not_called_packs():
    problem = "conv2d:n=1,h=9,w=9,ci=8,co=32,kh=3,kw=3,dtype=f32"
    steps = (Winograd(4), Pack("B"), Tile("t", 2), Pack("A"), Register(2, 32))
    drawn = nest.draw(problem, Schedule(steps).to_json())
    bars = ("transform B to 1x36x8x32:", "transform A to 36x2x8:", "to C, of 2x32 at all points")
    for said in bars:
        assert said in drawn
    assert "pack " not in drawn.partition("<title>")[2].partition("</title>")[2]
    direct = nest.draw(problem, Schedule((Pack("B"), Tile("n", 1), Register(2, 32))).to_json())
    assert "pack B to 1x9x8x32:" in direct and "transform" not in direct


def test_streams_are_named():
    steps = (Tile("n", 64), Stream("k", 8), Register(1, 32), Sweep("n"), Interleave("k", 4))
    drawn = nest.draw("matmul:m=1,n=200,k=40,dtype=f32", Schedule(steps).to_json())
    assert "tile, 4 trips" in drawn and "over 8 of k in 4 streams" in drawn
    plain = nest.draw("matmul:m=1,n=200,k=40,dtype=f32", Schedule(steps[:-1]).to_json())
    assert "streams" not in plain


def test_a_configuration_of_irees_has_no_nest_of_ours():
    problem = "matmul:m=64,n=96,k=40,dtype=f32"
    steps = [{"step": "pipeline", "passes": "DoubleTilingExpert", "remainders": "masked"}]
    assert nest.drawn(problem, steps) == ""
    with pytest.raises(ScheduleError, match=r"'pipeline', .* no step of a schedule for a target"):
        nest.draw(problem, steps)
