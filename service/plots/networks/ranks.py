"""The first half of a layered drawing: which rank each box is in, and in which order.

The method is Sugiyama's (1981): ranks by longest paths, a point in each rank that a long edge
crosses, and orders by medians of neighbours (Gansner and others, 1993).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

SWEEPS = 8

Link = tuple[int, int]
"""Numbers of an upper point and of a lower one, in ranks that follow each other."""


@dataclass(frozen=True)
class Ranked:
    """Points in ranks: the boxes by their numbers, then one for each rank that an edge crosses.

    Attributes:
        ranks: numbers of points from the left, of each rank from the top.
        chains: of each edge its points, from source to target.
    """

    ranks: tuple[tuple[int, ...], ...]
    chains: tuple[tuple[int, ...], ...]

    @property
    def links(self) -> tuple[Link, ...]:
        """Parts of edges between two ranks."""
        return tuple(link for chain in self.chains for link in pairwise(chain))


def ranked(count: int, edges: Sequence[Link]) -> Ranked:
    """Boxes in ranks, so that every edge leads down, and few of them cross.

    Args:
        count: of boxes.
        edges: source and target of each.

    Raises:
        ValueError: the edges make a circle.
    """
    rank_of = _ranks(count, edges)
    ranks: list[list[int]] = [[] for _ in range(max(rank_of, default=-1) + 1)]
    for box in range(count):
        ranks[rank_of[box]].append(box)
    following, chains = count, []
    for source, target in edges:
        chain = [source]
        for rank in range(rank_of[source] + 1, rank_of[target]):
            ranks[rank].append(following)
            chain.append(following)
            following += 1
        chains.append((*chain, target))
    links = [link for chain in chains for link in pairwise(chain)]
    return Ranked(tuple(map(tuple, _ordered(ranks, links))), tuple(chains))


def _ranks(count: int, edges: Sequence[Link]) -> list[int]:
    """Longest paths; then what is read more often than it reads moves down to its readers."""
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        above[target].append(source)
        below[source].append(target)
    order = list(_topological(count, above, below))
    if len(order) < count:
        raise ValueError("the plan's nodes wait for each other in a circle")
    rank = [0] * count
    for box in order:
        rank[box] = max((rank[source] + 1 for source in above[box]), default=0)
    for box in reversed(order):
        if len(above[box]) < len(below[box]):
            rank[box] = min(rank[target] for target in below[box]) - 1
    return rank


def _topological(
    count: int, above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]
) -> Iterator[int]:
    waiting = [len(sources) for sources in above]
    ready = [box for box in range(count) if not waiting[box]]
    while ready:
        box = ready.pop()
        yield box
        for target in below[box]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)


def _ordered(ranks: list[list[int]], links: Sequence[Link]) -> list[list[int]]:
    """The orders of least crossings among those that sweeps down and up come by."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for upper, lower in links:
        above.setdefault(lower, []).append(upper)
        below.setdefault(upper, []).append(lower)
    best, least = [list(rank) for rank in ranks], _crossings(ranks, below)
    for sweep in range(SWEEPS):
        if not least:
            break
        if sweep % 2:
            for number in range(len(ranks) - 2, -1, -1):
                ranks[number] = _sorted(ranks[number], ranks[number + 1], below)
        else:
            for number in range(1, len(ranks)):
                ranks[number] = _sorted(ranks[number], ranks[number - 1], above)
        found = _crossings(ranks, below)
        if found < least:
            best, least = [list(rank) for rank in ranks], found
    return best


def _sorted(rank: list[int], fixed: list[int], neighbours: dict[int, list[int]]) -> list[int]:
    """A rank by the means of its neighbours' places; who has none stays where it is."""
    places = {point: place for place, point in enumerate(fixed)}

    def wanted(place: int) -> float:
        found = [places[point] for point in neighbours.get(rank[place], ())]
        return sum(found) / len(found) if found else place

    return [rank[place] for place in sorted(range(len(rank)), key=wanted)]


def _crossings(ranks: Sequence[Sequence[int]], below: dict[int, list[int]]) -> int:
    total = 0
    for upper, lower in pairwise(ranks):
        places = {point: place for place, point in enumerate(lower)}
        ends: list[int] = []  # of the links from further left
        for point in upper:
            own = [places[target] for target in below.get(point, ())]
            total += sum(end > other for end in ends for other in own)
            ends += own
    return total
