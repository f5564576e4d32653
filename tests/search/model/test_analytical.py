"""What the analytical model prefers."""

from search.model.analytical import Model
from search.space.space import Space
from tests.search.space.test_space import SQUARE, WIDE


def test_the_model_prefers_what_uses_the_registers() -> None:
    space = Space(SQUARE, WIDE)
    point = {p.name: p.values[-1] for p in space.parameters} | {"outer": "cols", "unroll": 2}
    few, many = (Model.shipped(space).log_time(point | {"tile": tile}) for tile in ("8x1", "8x3"))
    assert many < few
