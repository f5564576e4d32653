import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.problem import parse_problem
from search.model.analytical import Model
from search.model.prior import prior_points
from search.space.space import Space
from tests.kernels.strategies import problems
from tests.search.targets import NARROW, WIDE


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems, st.sampled_from([WIDE, NARROW]))
def test_the_prior_proposes_different_points_of_the_space(problem, target) -> None:
    space = Space(problem, target)
    points = prior_points(Model.shipped(space), 16)
    assert points
    hashes = [space.schedule(p).hash for p in points]
    assert len(set(hashes)) == len(hashes)
    for point in points:
        assert all(point[p.name] in p.values for p in space.parameters)


@pytest.mark.parametrize("dtype", ["bf16", "i8", "f32"])
def test_panels_packed_ahead_are_streamed_beside_all_rows_first(dtype: str) -> None:
    space = Space(parse_problem(f"matmul:m=16,n=4096,k=4096,dtype={dtype},weights=constant"), WIDE)
    model = Model.shipped(space)
    first = prior_points(model, 1)[0]
    assert first["tile"] == "16x1" and space.schedule(first).prefetches
    without = first | {"prefetch": False}
    assert model.log_time(first) < model.log_time(without)
    assert model.log_time(without | {"tile": "8x2"}) < model.log_time(without)
