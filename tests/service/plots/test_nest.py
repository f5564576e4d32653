"""Loop nests as pictures: what copies and loops are called."""

from tilewise.kernels.schedule import (
    Alternate,
    Divide,
    Interleave,
    Pack,
    Parallel,
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
    for said in ("transform B to 1x36x8x32:", "transform A to 36x2x8:", "transform to C 36x2x32:"):
        assert said in drawn
    assert "pack " not in drawn.partition("<title>")[2].partition("</title>")[2]
    direct = nest.draw(problem, Schedule((Pack("B"), Tile("n", 1), Register(2, 32))).to_json())
    assert "pack B to 1x9x8x32:" in direct and "transform" not in direct


def test_parts_of_a_reduction_are_drawn_with_what_adds_them_up():
    problem = "matmul:m=2,n=131,k=101,dtype=f32"
    steps = (Divide("k", 24), Alternate("k"), Stream("k", 8), Register(2, 32), Sweep("n"))
    drawn = nest.draw(problem, Schedule((Parallel("n", 2), *steps)).to_json())
    said = ("threads, 2 trips", "then add 5 parts up to C", "for k in steps of 24",
            "summed apart, 5 trips, from the nearer end", "for k in steps of 8")  # fmt: skip
    places = [drawn.index(one) for one in said]
    assert places == sorted(places)
    assert 'class="nest-loop nest-divide"' in drawn


def test_blocks_from_an_end_and_streams_are_told():
    steps = (Tile("n", 64), Alternate("n"), Stream("k", 8), Register(1, 32), Sweep("n"))
    drawn = nest.draw("matmul:m=1,n=200,k=40,dtype=f32", Schedule(steps).to_json())
    assert "tile, 4 trips, from the nearer end" in drawn and "streams" not in drawn
    plain = Schedule((*steps[:1], *steps[2:], Interleave("k", 4)))
    drawn = nest.draw("matmul:m=1,n=200,k=40,dtype=f32", plain.to_json())
    assert "nearer end" not in drawn.partition(">")[2] and "over 8 of k in 4 streams" in drawn
