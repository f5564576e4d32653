from dataclasses import replace

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


@pytest.mark.parametrize(
    ("text", "is_first"),
    [
        ("m=16,n=4096,k=4096,dtype=i8", True),
        ("m=13,n=4096,k=4096,dtype=bf16", True),
        ("m=4,n=4096,k=4096,dtype=i8", False),  # swept
        ("m=16,n=4096,k=4096,dtype=i8,transpose_b", False),
        ("m=128,n=4096,k=4096,dtype=i8", False),
    ],
)
def test_words_are_joined_in_small_blocks_for_few_rows_first(text: str, is_first: bool) -> None:
    target = replace(WIDE, features=frozenset({"avx512bf16", "avx512vnni"}))
    space = Space(parse_problem(f"matmul:{text}"), target)
    first = prior_points(Model.shipped(space), 1)[0]
    is_joined = first["tile"] == "4x4" and first["depth"] == 64
    assert (is_joined and space.schedule(first).prefetches) == is_first
    assert (64 in space.values("depth")) == ("m=4," in text or is_first)
