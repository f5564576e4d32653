"""Arrange the boxes of a network in ranks."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, pairwise

RANK_PASSES = 8

Link = tuple[int, int]
"""Numbers of an upper point and of a lower one, in ranks that follow each other."""


@dataclass(frozen=True)
class Ranked:
    """Points in ranks: the boxes, then one for each rank that an edge crosses.

    `ranks` list points from left to right; `chains` are the points of each edge.
    """

    ranks: tuple[tuple[int, ...], ...]
    chains: tuple[tuple[int, ...], ...]

    @property
    def links(self) -> tuple[Link, ...]:
        """Parts of edges between two ranks."""
        return tuple(link for chain in self.chains for link in pairwise(chain))


def ranked(count: int, edges: Sequence[Link]) -> Ranked:
    """Rank boxes so that every edge leads down and few cross; raise ValueError for a cycle."""
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
    try:
        order = list(TopologicalSorter(dict(enumerate(above))).static_order())
    except CycleError as error:
        raise ValueError("the plan's nodes wait for each other in a circle") from error
    rank = [0] * count
    for box in order:
        rank[box] = max((rank[source] + 1 for source in above[box]), default=0)
    for box in reversed(order):
        if len(above[box]) < len(below[box]):
            rank[box] = min(rank[target] for target in below[box]) - 1
    return rank


def _ordered(ranks: list[list[int]], links: Sequence[Link]) -> list[list[int]]:
    """The orders of least crossings among those that sweeps down and up come by."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for upper, lower in links:
        above.setdefault(lower, []).append(upper)
        below.setdefault(upper, []).append(lower)
    best, least = [list(rank) for rank in ranks], _crossings(ranks, below)
    for sweep in range(RANK_PASSES):
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


PLACE_PASSES = 11
APART = 22.0  # between two boxes of a rank
PORT = 84.0  # between two edges that end at a box, for a label to have room
EDGE = 16.0  # that an edge's end keeps from a box's corner, and half of what it takes of a rank
GAP, STEEPNESS, WIDEST_GAP = 30.0, 0.14, 74.0  # between ranks, by how far edges go sideways
MAIN, LONG, SIDE = 1e4, 1e2, 1.0  # how much an edge wants to be straight

Point = tuple[float, float]
Size = tuple[float, float]


@dataclass(frozen=True)
class PlacedPlan:
    """A finished arrangement in pixels.

    `corners` are the left and top of each box. Routes are vertical from the first point to the
    second, bend to the third, are vertical to the fourth, and so on.
    """

    corners: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


@dataclass(frozen=True)
class _Tie:
    """A link as one of its ends sees it: straight if this end is `shift` right of the other."""

    other: int
    shift: float
    weight: float


Ties = Mapping[int, Sequence[_Tie]]


def placed(sizes: Sequence[Size], edges: Sequence[Link]) -> PlacedPlan:
    """Return where each box goes; raise ValueError for a cycle."""
    if not sizes:
        return PlacedPlan((), (), 0.0, 0.0)
    found = ranked(len(sizes), edges)
    mains = _mains(found)
    leaves = _ports(found, sizes, mains, end=0)
    enters = _ports(found, sizes, mains, end=-1)
    centres = _centres(found, sizes, _ties(found, leaves, enters, mains))
    left = min(x - _half(point, sizes) for point, x in centres.items())
    centres = {point: x - left for point, x in centres.items()}
    bands = _bands(found, sizes, centres)
    band_of = {point: bands[i] for i, rank in enumerate(found.ranks) for point in rank}
    corners = tuple(
        (centres[i] - width / 2, sum(band_of[i]) / 2 - height / 2)
        for i, (width, height) in enumerate(sizes)
    )
    routes = []
    for number, chain in enumerate(found.chains):
        xs = [centres[point] for point in chain]
        xs[0] += leaves[number]
        xs[-1] += enters[number]
        ys = [y for point in chain for y in band_of[point]]
        ys[0], ys[-1] = corners[chain[0]][1] + sizes[chain[0]][1], corners[chain[-1]][1]
        routes.append(tuple(zip((x for x in xs for _ in range(2)), ys, strict=True)))
    width = max(x + _half(point, sizes) for point, x in centres.items())
    return PlacedPlan(corners, tuple(routes), width, bands[-1][1])


def _half(point: int, sizes: Sequence[Size]) -> float:
    return sizes[point][0] / 2 if point < len(sizes) else EDGE / 2


def _mains(found: Ranked) -> list[bool]:
    """Which edges are to be straight: of each box's the shortest that enters it.

    What is computed last stands right above who reads it, and the spine of a network is one line.
    """
    shortest: dict[int, int] = {}
    for number, chain in enumerate(found.chains):
        best = shortest.setdefault(chain[-1], number)
        if len(chain) < len(found.chains[best]):
            shortest[chain[-1]] = number
    return [shortest[chain[-1]] == number for number, chain in enumerate(found.chains)]


def _ports(
    found: Ranked, sizes: Sequence[Size], mains: Sequence[bool], end: int
) -> dict[int, float]:
    """How far from a box's centre each edge leaves it (`end` 0) or enters it (`end` -1).

    The main edge has the centre, the others are left and right of it as their neighbours are.
    """
    place = {point: i for rank in found.ranks for i, point in enumerate(rank)}
    ends: dict[int, list[int]] = defaultdict(list)
    for number, chain in enumerate(found.chains):
        ends[chain[end]].append(number)
    shifts: dict[int, float] = {}
    for box, numbers in ends.items():
        beside = 1 if end == 0 else -2
        numbers.sort(key=lambda number: place[found.chains[number][beside]])
        middle = next((i for i, number in enumerate(numbers) if mains[number]), len(numbers) // 2)
        most = max(middle, len(numbers) - 1 - middle, 1)
        step = min(PORT, (sizes[box][0] / 2 - EDGE) / most)
        shifts |= {number: (i - middle) * step for i, number in enumerate(numbers)}
    return shifts


def _ties(
    found: Ranked, leaves: Mapping[int, float], enters: Mapping[int, float], mains: Sequence[bool]
) -> tuple[Ties, Ties]:
    """What ties each point to those above it, and to those below."""
    above: dict[int, list[_Tie]] = defaultdict(list)
    below: dict[int, list[_Tie]] = defaultdict(list)
    for number, chain in enumerate(found.chains):
        last = len(chain) - 2
        for i, (upper, lower) in enumerate(pairwise(chain)):
            shift = leaves[number] * (i == 0) - enters[number] * (i == last)
            is_whole = i == 0 == last
            weight = SIDE if i in (0, last) and not is_whole else LONG
            if is_whole:
                weight = MAIN if mains[number] and not leaves[number] else SIDE
            above[lower].append(_Tie(upper, shift, weight))
            below[upper].append(_Tie(lower, -shift, weight))
    return above, below


def _centres(found: Ranked, sizes: Sequence[Size], ties: tuple[Ties, Ties]) -> dict[int, float]:
    """Sweeps down and up; the last leads down, so that spines are straight."""
    above, below = ties
    offsets = [_offsets(rank, sizes) for rank in found.ranks]
    centres = {
        point: offset - (own[0] + own[-1]) / 2
        for rank, own in zip(found.ranks, offsets, strict=True)
        for point, offset in zip(rank, own, strict=True)
    }
    numbers = range(len(found.ranks))
    for sweep in range(PLACE_PASSES):
        seen = below if sweep % 2 else above
        for number in reversed(numbers) if sweep % 2 else numbers:
            rank = found.ranks[number]
            wants = [_wanted(point, seen.get(point, ()), centres) for point in rank]
            centres |= zip(rank, _settled(wants, offsets[number]), strict=True)
    return centres


def _offsets(rank: Sequence[int], sizes: Sequence[Size]) -> list[float]:
    """Where each point would stand if all stood as close as they may."""
    steps = (_half(a, sizes) + APART + _half(b, sizes) for a, b in pairwise(rank))
    return list(accumulate(steps, initial=0.0))


def _wanted(point: int, ties: Sequence[_Tie], centres: Mapping[int, float]) -> tuple[float, float]:
    """Where a point wants to stand, and how much: the weighted median of its neighbours."""
    if not ties:
        return centres[point], SIDE / 10
    wants = sorted((centres[tie.other] + tie.shift, tie.weight) for tie in ties)
    total, passed = sum(tie.weight for tie in ties), 0.0
    for i, (x, weight) in enumerate(wants):
        passed += weight
        if passed == total / 2:
            return (x + wants[i + 1][0]) / 2, total
        if passed > total / 2:
            break
    return x, total


def _settled(wants: Sequence[tuple[float, float]], offsets: Sequence[float]) -> list[float]:
    """The places nearest to those that are wanted, in order and far enough apart."""
    blocks: list[tuple[float, float, int]] = []  # mean of wants less offsets, weight, points
    for (x, heavy), offset in zip(wants, offsets, strict=True):
        mean, weight, many = x - offset, heavy, 1
        while blocks and blocks[-1][0] > mean:
            other, more, others = blocks.pop()
            mean = (mean * weight + other * more) / (weight + more)
            weight, many = weight + more, many + others
        blocks.append((mean, weight, many))
    means = (mean for mean, _, many in blocks for _ in range(many))
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _bands(
    found: Ranked, sizes: Sequence[Size], centres: Mapping[int, float]
) -> list[tuple[float, float]]:
    """Top and bottom of each rank; ranks are further apart where edges go far sideways."""
    rank_of = {point: i for i, rank in enumerate(found.ranks) for point in rank}
    sideways: dict[int, float] = defaultdict(float)
    for upper, lower in found.links:
        i = rank_of[upper]
        sideways[i] = max(sideways[i], abs(centres[upper] - centres[lower]))
    bands, y = [], 0.0
    for i, rank in enumerate(found.ranks):
        height = max(sizes[point][1] if point < len(sizes) else 0.0 for point in rank)
        bands.append((y, y + height))
        y += height + min(GAP + STEEPNESS * sideways[i], WIDEST_GAP)
    return bands
