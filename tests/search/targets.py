"""Targets and a problem that the tests of a search share, and the nests of points."""

from dataclasses import replace

from tilewise.kernels.nest import Nest
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import loop_nest
from tilewise.kernels.target import Target
from tilewise.kernels.target.features import implied
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space

WIDE = Target("big", vector_bytes=64, vector_registers=32, l1_bytes=48 << 10, l2_bytes=1 << 20,
              l3_bytes=32 << 20)  # fmt: skip
FAR = Target("emeraldrapids", vector_bytes=64, vector_registers=32, l1_bytes=48 << 10,
             l2_bytes=2 << 20, l3_bytes=260 << 20)  # fmt: skip
AMX = replace(WIDE, features=implied("emeraldrapids"), l2_bytes=2 << 20)
NARROW = Target("small", vector_bytes=16, vector_registers=16)
SQUARE = parse_problem("matmul:m=1024,n=1024,k=1024,dtype=f32")


def nest_at(space: Space, point: Point) -> Nest:
    return loop_nest(space.problem, space.schedule(point))
