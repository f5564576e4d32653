"""Loop nests as pictures: what copies are called."""

from kernels.schedule import Pack, Register, Schedule, Tile, Winograd
from service.plots import nest


def test_transforms_are_not_called_packs():
    problem = "conv2d:n=1,h=9,w=9,ci=8,co=32,kh=3,kw=3,dtype=f32"
    steps = (Winograd(4), Pack("B"), Tile("t", 2), Pack("A"), Register(2, 32))
    drawn = nest.draw(problem, Schedule(steps).to_json())
    for said in ("transform B to 1x36x8x32:", "transform A to 36x2x8:", "transform to C 36x2x32:"):
        assert said in drawn
    assert "pack " not in drawn.partition("<title>")[2].partition("</title>")[2]
    direct = nest.draw(problem, Schedule((Pack("B"), Tile("n", 1), Register(2, 32))).to_json())
    assert "pack B to 1x9x8x32:" in direct and "transform" not in direct
