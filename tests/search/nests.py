"""The loop nest that a point of a space means."""

from tilewise.kernels.nest import Nest
from tilewise.kernels.schedule import loop_nest
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space


def nest_at(space: Space, point: Point) -> Nest:
    return loop_nest(space.problem, space.schedule(point))
