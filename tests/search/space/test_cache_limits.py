from dataclasses import replace

import pytest

from tests.search.targets import NARROW, WIDE
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import (
    Pack,
    Register,
    Schedule,
    Stream,
    Tile,
)
from tilewise.search.space.space import Space, why_too_large


def test_scratch_beyond_the_last_cache_is_turned_away() -> None:
    space = Space(parse_problem("matmul:m=64,n=20000,k=20000,dtype=f64"), NARROW)
    point = {p.name: p.values[-1] for p in space.parameters} | {"cols": 0, "depth": 0}
    reason = space.why_illegal(space.schedule(point | {"pack_b": True}))
    assert reason is not None
    assert "MiB" in reason


@pytest.mark.parametrize(("weights", "says"), [("variable", "packed block of B"), ("constant", "")])
def test_weights_that_are_packed_once_for_all_need_no_cache(weights: str, says: str) -> None:
    problem = parse_problem(f"matmul:m=64,n=20000,k=20000,dtype=f64,weights={weights}")
    schedule = Schedule((Stream("k", 300), Pack("B"), Tile("m", 8), Pack("A"), Register(4, 8)))
    small = replace(WIDE, l3_bytes=1 << 20)
    found = why_too_large(problem, replace(small, l2_bytes=1 << 30), schedule)
    assert (found is None) == (not says)
    assert found is None or (says in found and "45 MiB" in found)
