import random
from itertools import combinations, pairwise

import pytest

from tilewise.service.plots.networks.placement import APART, placed, ranked

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


def test_a_network_of_blocks_has_a_straight_spine() -> None:
    edges = [(0, 1)]
    for block in range(12):
        first = 1 + 4 * block
        edges += [(first, first + 1), (first + 1, first + 2), (first + 2, first + 3),
                  (first + 3, first + 4), (first, first + 4)]  # fmt: skip
    found = placed([BOX] * 50, edges)
    lefts = [x for x, _ in found.corners]
    assert max(lefts) - min(lefts) < 1.0
    assert found.width < 2 * BOX[0] + APART


def test_two_branches_do_not_cross() -> None:
    # Two chains whose boxes are numbered in turn, the later ones in the other order.
    edges = [(0, 1), (0, 2), (1, 4), (2, 3), (4, 5), (3, 6), (5, 8), (6, 7)]
    order = ranked(9, edges).ranks
    places = {box: place for rank in order for place, box in enumerate(rank)}
    assert {tuple(places[box] for box in branch) for branch in ((1, 4, 5, 8), (2, 3, 6, 7))} == {
        (0, 0, 0, 0), (1, 1, 1, 1)}  # fmt: skip


def test_what_is_read_late_stands_near_its_reader() -> None:
    # An argument that only the last of a chain reads.
    assert ranked(6, [(0, 1), (1, 2), (2, 3), (3, 4), (5, 4)]).ranks[3] in ((3, 5), (5, 3))


def test_a_circle_is_refused() -> None:
    with pytest.raises(ValueError, match="circle"):
        placed([BOX] * 3, [(0, 1), (1, 2), (2, 1)])


def test_nothing_is_a_drawing_of_no_size() -> None:
    assert (placed([], []).width, placed([], []).height) == (0.0, 0.0)
    alone = placed([BOX], [])
    assert (alone.corners, alone.width, alone.height) == (((0.0, 0.0),), *BOX)
