from hypothesis import given, settings
from hypothesis import strategies as st

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
