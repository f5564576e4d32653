import random
from itertools import combinations, pairwise

import pytest

from tilewise.service.plots.networks.placement import APART, placed

BOX = (100.0, 40.0)


def random_graph(seed: int) -> tuple[int, list[tuple[int, int]]]:
    made = random.Random(seed)
    count = made.randrange(2, 40)
    edges = {
        (made.randrange(max(0, target - 6), target), target)
        for target in range(1, count)
        for _ in range(made.randrange(0, 3))
    }
    return count, sorted(edges)


@pytest.mark.parametrize("seed", range(25))
def test_boxes_keep_apart_and_edges_lead_down(seed: int) -> None:
    count, edges = random_graph(seed)
    made = random.Random(seed)
    sizes = [(made.uniform(60, 300), made.uniform(20, 90)) for _ in range(count)]
    found = placed(sizes, edges)
    spans = [(x, x + w, y, y + h) for (x, y), (w, h) in zip(found.corners, sizes, strict=True)]
    for one, other in combinations(spans, 2):
        beside = one[1] + APART - 1e-6 <= other[0] or other[1] + APART - 1e-6 <= one[0]
        assert beside or one[3] < other[2] or other[3] < one[2]
    assert min(min(x, y) for x, _, y, _ in spans) > -1e-6
    assert max(right for _, right, _, _ in spans) < found.width + 1e-6
    assert max(bottom for _, _, _, bottom in spans) < found.height + 1e-6
    for (source, target), route in zip(edges, found.routes, strict=True):
        left, right, _, bottom = spans[source]
        assert route[0][1] == pytest.approx(bottom) and left < route[0][0] < right
        left, right, top, _ = spans[target]
        assert route[-1][1] == pytest.approx(top) and left < route[-1][0] < right
        assert len(route) % 2 == 0
        assert all(above[1] <= below[1] + 1e-6 for above, below in pairwise(route))


@pytest.mark.parametrize("seed", range(25))
def test_no_edge_runs_through_a_box(seed: int) -> None:
    count, edges = random_graph(seed)
    found = placed([BOX] * count, edges)
    for (source, target), route in zip(edges, found.routes, strict=True):
        # Vertical parts pass ranks; bends are between ranks, where no box is.
        for (x, top), (_, bottom) in zip(route[::2], route[1::2], strict=True):
            for box, (left, y) in enumerate(found.corners):
                if box not in (source, target) and y < bottom and top < y + BOX[1]:
                    assert not left < x < left + BOX[0]


def test_a_circle_is_refused() -> None:
    with pytest.raises(ValueError, match="circle"):
        placed([BOX] * 3, [(0, 1), (1, 2), (2, 1)])


def test_nothing_is_a_drawing_of_no_size() -> None:
    assert (placed([], []).width, placed([], []).height) == (0.0, 0.0)
    alone = placed([BOX], [])
    assert (alone.corners, alone.width, alone.height) == (((0.0, 0.0),), *BOX)
