from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.strategies import problems
from tests.search.targets import NARROW, SQUARE, WIDE
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.space.parameters import RegisterTile, Size, step_aside
from tilewise.search.space.points import WHOLE
from tilewise.search.space.space import Space


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
    assert isinstance(tile, RegisterTile)
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
    assert depth.nearest(110) == 96 or depth.nearest(110) == 128
    assert depth.nearest(500) == 512
    assert depth.encode(512) < depth.encode(WHOLE)


@pytest.mark.parametrize("seed", range(4))
def test_a_step_aside_changes_one_parameter_to_a_neighbour(seed: int) -> None:
    space = Space(SQUARE, WIDE)
    point = prior_points(AnalyticalModel.shipped(space), 1)[0]
    moved = step_aside(space.parameters, point, Random(seed))
    (name,) = [n for n in point if point[n] != moved[n]]
    assert moved[name] in space.parameter(name).neighbours(point[name])
