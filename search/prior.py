"""The first schedules to try: those that the analytical model (`search.model`) likes best.

The model is asked, not the machine: from some points of every promising register tile, one
parameter at a time is moved to where the modelled time is least, until nothing moves. The
best of what was met on the way are proposed, but the first few with different register
tiles and packs, so that an error of the model in one respect costs one trial.
"""

from collections.abc import Iterator
from itertools import islice

from search.model import log_time
from search.parameters import WHOLE, Point, Value, tile_shape
from search.space import Space

TILES_TRIED = 10  # register tiles that a descent starts from
SPLITS_TRIED = 4
SWEEPS = 3
DIVERSE = 4  # proposals that differ in tile or packs
TIE = 1e-6


def prior_points(space: Space, most: int) -> list[Point]:
    """Up to `most` points of different schedules, the most promising first."""
    seen: set[str] = set()
    kinds: set[tuple[Value, ...]] = set()
    chosen: list[Point] = []
    left: list[Point] = []
    for point in ranked(space):
        schedule = space.schedule(point)
        if schedule.hash in seen or space.why_illegal(schedule):
            continue
        seen.add(schedule.hash)
        kind = (point["tile"], point["pack_a"], point["pack_b"])
        if kind in kinds and len(chosen) < DIVERSE:
            left.append(point)
            continue
        kinds.add(kind)
        chosen.append(point)
        if len(chosen) >= most:
            return chosen
        if len(chosen) == DIVERSE:
            chosen += left[: most - len(chosen)]
            left.clear()
    return (chosen + left)[:most]


def ranked(space: Space) -> Iterator[Point]:
    """The points that the descents met, by their modelled time."""
    known: dict[tuple[Value, ...], tuple[float, int, Point]] = {}

    def cost(point: Point) -> float:
        key = tuple(point[p.name] for p in space.parameters)
        if key not in known:
            known[key] = (log_time(space, point), len(known), point)
        return known[key][0]

    for start in _starts(space):
        point = start
        for _ in range(SWEEPS):
            before = cost(point)
            for parameter in space.parameters:
                near = [point | {parameter.name: value} for value in parameter.values]
                point = min(near, key=lambda p: (round(cost(p) / TIE), near.index(p)))
            if cost(point) >= before:
                break
    return (point for _, _, point in sorted(known.values(), key=lambda item: item[:2]))


def _starts(space: Space) -> Iterator[Point]:
    """For each of the best register tiles a middling point: nothing cut, B packed or not."""
    base: Point = {p.name: p.values[0] for p in space.parameters}
    for name in ("depth", "cols", "rows", "image_rows"):
        if name in base:
            base[name] = WHOLE
    tile = space.parameter("tile")
    assert tile is not None
    pack_b = space.parameter("pack_b")
    assert pack_b is not None
    points = [base | {"tile": t, "pack_b": b} for t in tile.values for b in pack_b.values]
    points.sort(key=lambda point: log_time(space, point))
    plain = (p for p in points if not tile_shape(p["tile"])[2])
    split = (p for p in points if tile_shape(p["tile"])[2])
    yield from islice(split, SPLITS_TRIED)
    yield from islice(plain, TILES_TRIED)
