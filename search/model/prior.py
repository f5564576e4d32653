"""The first schedules to try: the best by the analytical model
(`tilewise.search.model.analytical`).

Nothing is timed here. From some points of every promising register tile a descent moves one
parameter at a time to where the modelled time is least, until nothing moves. The prior proposes
the best points of all descents. The first few differ in register tile or packs: an error of the
model in one respect then costs one trial.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, zip_longest
from math import inf, log

from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import Target
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.initial_candidates import (
    MAX_OF_KIND,
    at_once,
    fetched_points,
    joined_points,
    matrix_points,
    plain_point,
    sharing_words,
    skinny_points,
    split_points,
    streamed_points,
)
from tilewise.search.space.algorithms import ALGORITHM, DIRECT, EFFECTIVE, algorithm_of
from tilewise.search.space.parameters import Parameter, RegisterTile, Size
from tilewise.search.space.points import Point, Value
from tilewise.search.space.schedules import schedule_of
from tilewise.search.space.space import Space
from tilewise.search.space.tiles import reads_in_place

DESCENTS = 10  # plain points that a descent starts from
LEAST_DESCENTS = 2  # from points of each algorithm
EXAMINED_RATIO = 4  # legal points that are looked at, for each that is wanted
DIVERSE_PROPOSALS = 4  # the first so many differ in tile or packs
HOPELESS = 1.5  # times as long, by the model, as the direct method
OTHER_EVERY = 4  # proposals, of which one is of the method that the model likes less
PACKED_KINDS = ("outer", "matrix")  # of tiles that multiply panels, which descents move among
LOG_TIME_TIE = 1e-6  # modelled times whose logarithms differ by less are equal


def prior_points(model: AnalyticalModel, most: int) -> list[Point]:
    """Return up to `most` points of different schedules, the most promising first.

    Where there is a fast algorithm, these are points of the one that the model likes better, and,
    second and then every fourth time, of the other: the model may be wrong, and the fastest
    schedule with a script is a direct one.
    """
    names = [str(value) for value in model.space.values(ALGORITHM)]
    direct = _diverse(model, most, [DIRECT])
    if not names:
        return direct
    fast = _diverse(model, most, [name for name in names if name != DIRECT])
    if not fast or model.log_time(fast[0]) > model.log_time(direct[0]) + log(HOPELESS):
        return direct
    liked, other = sorted((direct, fast), key=lambda points: model.log_time(points[0]))
    chosen: list[Point] = []
    while (liked or other) and len(chosen) < most:
        takes_other = len(chosen) % OTHER_EVERY == 1
        source = (other or liked) if takes_other else (liked or other)
        chosen.append(source.pop(0))
    return chosen


def direct_schedules(problem: Problem, target: Target, most: int) -> list[Schedule]:
    """Return up to `most` untimed schedules that can have scripts, the most promising first."""
    model = AnalyticalModel.shipped(Space(problem, target, has_scripts=True))
    return [schedule_of(model.space.workload, point) for point in _diverse(model, most, [DIRECT])]


def _diverse(model: AnalyticalModel, most: int, algorithms: Sequence[str]) -> list[Point]:
    """Up to `most` points of some algorithms, the first of which differ in tile or packs."""
    points = list(islice(_legal(model, algorithms), EXAMINED_RATIO * most))
    leaders: dict[object, Point] = {}
    for point in points:
        tile = point["tile"]
        packs = (point["pack_a"], point["pack_b"])
        kind: object = packs if tile.kind in PACKED_KINDS else point["unroll"]
        kind = point[ALGORITHM] if algorithm_of(point) else kind
        if len(leaders) < DIVERSE_PROPOSALS:
            leaders.setdefault((tile, kind), point)
    chosen = list(leaders.values())
    chosen += [point for point in points if point not in chosen]
    return chosen[:most]


def _legal(model: AnalyticalModel, algorithms: Sequence[str]) -> Iterator[Point]:
    """The legal points of special tiles, if any, and of what descents met; each schedule once."""
    space, seen = model.space, set[str]()
    ruled = with_rules(model, algorithms, _descended(model, algorithms))
    for point in filter(space.holds, ruled):
        schedule = space.schedule(point)
        if schedule.hash not in seen and space.why_illegal(schedule) is None:
            seen.add(schedule.hash)
            yield point


def with_rules(
    model: AnalyticalModel, algorithms: Sequence[str], met: Iterator[Point]
) -> Iterator[Point]:
    """Return the points of `met`, interleaved with those of tiles that the model misjudges.

    Where split tiles compete with packing, both come in turn. So do skinny tiles that share words
    and those of all rows, else small blocks. The best of other skinny tiles comes behind the best
    that the descents met, which packs B or not. Points whose B is fetched ahead come
    before what the descents met.
    """
    space = model.space
    yield from matrix_points(space)
    split = islice(split_points(space), MAX_OF_KIND)
    if reads_in_place(space.workload):
        yield from in_turn(met, split)
        return
    yield from split
    if DIRECT in algorithms:
        yield from streamed_points(space)
    skinny = skinny_points(space)
    whole, shared = at_once(space, skinny), sharing_words(space, skinny)
    yield from in_turn(iter(shared), iter(whole or joined_points(space)))
    if DIRECT in algorithms:
        yield from fetched_points(space)
    rivals = [point for point in skinny if point not in (*whole, *shared)]
    yield from islice(met, 1)
    if rivals:
        yield min(rivals, key=model.log_time)
    yield from met


def in_turn(first: Iterator[Point], second: Iterator[Point]) -> Iterator[Point]:
    """Return the points of both, alternating."""
    for pair in zip_longest(first, second):
        yield from (point for point in pair if point is not None)


def _descended(model: AnalyticalModel, algorithms: Sequence[str]) -> Iterator[Point]:
    """What the descents met, by time."""
    space = model.space
    known: dict[tuple[Value, ...], tuple[float, int, Point]] = {}

    def cost(point: Point) -> float:
        key = space.key(point)
        if key not in known:
            known[key] = (model.log_time(point), len(known), point)
        return known[key][0]

    for start in _likely(_starts(model, algorithms)):
        _descend(space, start, cost)
    yield from (point for _, _, point in sorted(known.values(), key=lambda item: item[:2]))


def _likely(starts: Sequence[Point]) -> list[Point]:
    """The first `DESCENTS`, and some of each algorithm that has too few: cut, it may be better."""
    chosen = list(starts[:DESCENTS])
    for name in dict.fromkeys(point.get(ALGORITHM) for point in starts):
        of_name = [point for point in starts if point.get(ALGORITHM) == name]
        chosen += [point for point in of_name[:LEAST_DESCENTS] if point not in chosen]
    return chosen


def _descend(space: Space, point: Point, cost: Callable[[Point], float]) -> None:
    """Move one parameter at a time to where `cost` is least, the first of equals."""
    # The model was fitted on one thread, and does not judge a division among several.
    fixed = ("parallel", ALGORITHM)
    moving = [p for p in space.parameters if p.name not in fixed]
    if algorithm_of(point):
        moving = [p for p in moving if p.name in EFFECTIVE]
    before = inf
    while cost(point) < before:
        before = cost(point)
        for parameter in moving:
            near = [point | {parameter.name: value} for value in _tried_values(parameter)]
            point = min(near, key=lambda p: round(cost(p) / LOG_TIME_TIE))


def _tried_values(parameter: Parameter) -> tuple[Value, ...]:
    """The values that a descent tries, in an order that says which of equals it takes."""
    if isinstance(parameter, RegisterTile):
        return tuple(v for v in parameter.values if v.kind in PACKED_KINDS)
    if isinstance(parameter, Size):
        return parameter.values[::-1]  # of sizes that cost the same, the larger: fewer loops
    return parameter.values


def _starts(model: AnalyticalModel, algorithms: Sequence[str]) -> list[Point]:
    """For each register tile a plain point, nothing cut, B packed or not; likely ones first."""
    space = model.space
    base = plain_point(space)
    choices = [{ALGORITHM: name} for name in algorithms] if ALGORITHM in base else [{}]
    points = [
        base | {"tile": tile, "pack_b": pack} | choice
        for choice in choices
        for tile in space.values("tile")
        if tile.kind in PACKED_KINDS
        for pack in space.values("pack_b")
    ]
    return sorted(points, key=model.log_time)
