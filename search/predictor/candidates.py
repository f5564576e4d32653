"""The candidates of a prediction: a bounded number of points, found in a few milliseconds.

A search can afford the descents of `tilewise.search.model.prior`. Here each start goes through the
parameters once, with some of the values and the likeliest register tiles.

Where measurements made a rule for tiles that the model misjudges, the points of the rule come
first and stay first: few trials of other problems say anything about them.
"""

from collections.abc import Sequence
from itertools import chain, islice, zip_longest
from operator import itemgetter
from typing import NamedTuple

from tilewise.search.model.amounts import FMA_LATENCY, FMA_UNITS, LOADS_PER_CYCLE
from tilewise.search.model.analytical import AnalyticalModel, amounts
from tilewise.search.model.initial_candidates import plain_point
from tilewise.search.model.prior import PACKED_KINDS, with_rules
from tilewise.search.space.algorithms import ALGORITHM, DIRECT, EFFECTIVE, algorithm_of
from tilewise.search.space.parameters import Parameter, RegisterTile, Size
from tilewise.search.space.points import Point, TilePoint, Value
from tilewise.search.space.space import Space

MOST = 32  # candidates of a problem
MOST_TILES = 6  # register tiles that a start tries
MOST_SIZES = 5  # sizes of a block, likewise
MOST_ALGORITHMS = 2  # in addition to the direct method, those with the largest tiles


class Candidate(NamedTuple):
    """A point with its amounts and the logarithm of its modelled cycles."""

    point: Point
    amounts: tuple[float, ...]
    log_cycles: float


def candidate(model: AnalyticalModel, point: Point) -> Candidate:
    """Return a point with what the model says of it."""
    counted = tuple(amounts(model.space, point).values())
    return Candidate(point, counted, model.log_cycles(counted))


class Candidates(NamedTuple):
    """Points of a space that need not be legal.

    Attributes:
        some: up to `MOST` different ones, in the order of the prior.
        is_ruled: whether this order decides, not a predictor.
    """

    some: list[Candidate]
    is_ruled: bool


def candidates(model: AnalyticalModel) -> Candidates:
    """Return the candidates of a space."""
    space = model.space
    met: dict[tuple[Value, ...], Candidate] = {}

    def look(point: Point) -> Candidate:
        key = space.key(point)
        if key not in met:
            met[key] = candidate(model, point)
        return met[key]

    def improved(point: Point, names: Sequence[str]) -> Point:
        for name, values in tried.items():
            if name in names:
                near = [look(point | {name: value}) for value in values]
                point = min([look(point), *near], key=itemgetter(2)).point
        return point

    algorithms = [str(name) for name in space.values(ALGORITHM)] or [DIRECT]
    tried = {one.name: _tried(space, one) for one in space.parameters}
    base = plain_point(space) | {"tile": tried["tile"][0]}
    names = [name for name in tried if name not in ("parallel", ALGORITHM)]
    found = [improved(base | {"pack_b": pack}, names) for pack in space.values("pack_b")]
    if not space.workload.nest.group:
        again = [one.name for one in space.parameters if isinstance(one, RegisterTile | Size)]
        improved(min(map(look, found), key=itemgetter(2)).point, again)
    for name in algorithms[1:][-MOST_ALGORITHMS:]:
        improved(base | {ALGORITHM: name}, EFFECTIVE)
    by_time = sorted(met.values(), key=itemgetter(2))
    points = [one.point for one in by_time]
    rules = with_rules(model, algorithms, iter(points))
    ruled = list(islice(filter(space.holds, rules), MOST))
    fast = next((point for point in points if algorithm_of(point)), None)
    if fast is not None and look(fast).log_cycles < look(ruled[0]).log_cycles:
        ruled.insert(0, fast)  # the rules are for the direct method
    both = chain.from_iterable(zip_longest(ruled, points[:MOST], fillvalue=points[0]))
    some = list({space.key(point): look(point) for point in both}.values())[:MOST]
    is_special = ruled[0]["tile"].kind != "outer" and ruled[0] != points[0]
    return Candidates(some, bool(space.workload.nest.group) or is_special)


def _tried(space: Space, parameter: Parameter) -> Sequence[Value]:
    """Return some of the values of a parameter, spread out."""
    if isinstance(parameter, RegisterTile):
        return _likely_tiles(space)
    if isinstance(parameter, Size):
        return parameter.values[:: -(-len(parameter.values) // MOST_SIZES)] + parameter.values[-1:]
    return parameter.values


def _likely_tiles(space: Space) -> list[TilePoint]:
    """Return the register tiles that compute the result in the fewest cycles."""
    workload, lanes = space.workload, space.workload.lanes

    def cycles(tile: TilePoint) -> float:
        rows, vectors = tile.rows, tile.vectors
        tiles = -(-workload.rows // rows) * -(-workload.cols // (vectors * lanes))
        busy = max(rows * vectors / FMA_UNITS, FMA_LATENCY, (rows + vectors) / LOADS_PER_CYCLE)
        return tiles * (busy + 1 / (rows * vectors))

    if workload.nest.group:
        return list(space.values("tile"))  # there are few, and what they share decides
    tiles = [tile for tile in space.values("tile") if tile.kind in PACKED_KINDS]
    return sorted(tiles or space.values("tile"), key=cycles)[:MOST_TILES]
