from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.strategies import problems
from tests.search.targets import NARROW, SQUARE, WIDE
from tilewise.kernels.nest import count
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import loop_nest
from tilewise.search.model.analytical import AnalyticalModel, amounts
from tilewise.search.model.prior import prior_points
from tilewise.search.space.points import TilePoint
from tilewise.search.space.space import Space


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems, st.sampled_from([WIDE, NARROW, WIDE.with_threads(6)]), st.integers(0, 2**31))
def test_one_schedule_has_one_modelled_time(problem, target, seed) -> None:
    space, random = Space(problem, target), Random(seed)
    for point in [
        *(space.draw(random) for _ in range(3)),
        *prior_points(AnalyticalModel.shipped(space), 1),
    ]:
        schedule, time = space.schedule(point), AnalyticalModel.shipped(space).log_time(point)
        for other in space.neighbours(point):
            if space.schedule(other) == schedule:
                assert AnalyticalModel.shipped(space).log_time(other) == pytest.approx(time)


def test_a_prefetch_of_no_other_block_costs_what_none_does() -> None:
    space = Space(SQUARE, WIDE)
    model = AnalyticalModel.shipped(space)
    whole = {p.name: p.values[0] for p in space.parameters} | {"pack_b": True, "depth": 0}
    for cols, alike in ((0, True), (64, False)):
        with_it, without = (whole | {"cols": cols, "prefetch": choice} for choice in (True, False))
        assert (space.schedule(with_it) == space.schedule(without)) == alike
        assert (model.log_time(with_it) == model.log_time(without)) == alike


def test_the_model_knows_what_a_dilated_filter_packs_of_an_image() -> None:
    modelled, counted = [], []
    for dilation in (1, 3):  # padded to outputs as many
        text = f"n=1,h=56,w=56,ci=64,co=64,kh=3,kw=3,pad={dilation},dilation={dilation},dtype=f32"
        space = Space(parse_problem(f"conv2d:{text}"), WIDE)
        point = {p.name: p.values[0] for p in space.parameters}
        point |= {"pack_a": True, "cols": 0, "image_rows": 2}
        nest = loop_nest(space.problem, space.schedule(point))
        modelled.append(amounts(space, point)["packed_a"])
        counted.append(count(nest).packed_bytes["A"])
    assert modelled[1] / modelled[0] == pytest.approx(counted[1] / counted[0], rel=0.1)


def test_the_model_prefers_what_uses_the_registers() -> None:
    space = Space(SQUARE, WIDE)
    point = {p.name: p.values[-1] for p in space.parameters} | {"outer": "cols", "unroll": 2}
    few, many = (
        AnalyticalModel.shipped(space).log_time(point | {"tile": TilePoint(8, vectors)})
        for vectors in (1, 3)
    )
    assert many < few
