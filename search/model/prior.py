"""The first schedules to try: those that the analytical model (`search.model.analytical`) likes
best.

Nothing is timed here. From some points of every promising register tile a descent moves one
parameter at a time to where the modelled time is least, until nothing moves. The prior proposes
the best points of all descents. The first few differ in register tile or packs: an error of the
model in one respect then costs one trial.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, zip_longest
from math import log

from kernels.problem import Matmul, Problem
from kernels.schedule import Schedule
from kernels.target import Target
from search.model.analytical import Model
from search.space.methods.winograd import ALGORITHM, DIRECT, EFFECTIVE, WANTED, output_of
from search.space.parameters import Parameter, Size
from search.space.points import WHOLE, Point, Value
from search.space.space import Space
from search.space.tiles import (
    SPLIT_TILE_VECTORS,
    SplitTile,
    reads_in_place,
    split_tiles,
    tile_shape,
)

DESCENTS = 10  # plain points that a descent starts from
STREAMED_VECTORS = (1, 2)  # of tiles of all rows, beside panels that were packed ahead
MAX_SPLIT_POINTS = 8  # points of split tiles that are proposed
SWEPT_AT_ONCE = 8  # rows of a result up to which registers hold all, for a wide tile
MAX_SWEPT_POINTS = 6  # of swept ones that hold all rows
MAX_RIVAL_POINTS = 3  # of other swept ones, whose rivals pack B
LONG_STREAM = 32  # vectors of a row, from where caches deliver one row at a time best
SHORT_ROWS = 1024  # elements of rows of which a tile reads several
MAX_SWEEPS = 3  # of a descent over all parameters
EXAMINED_RATIO = 4  # legal points that are looked at, for each that is wanted
DIVERSE_PROPOSALS = 4  # the first so many differ in tile or packs
HOPELESS = 1.5  # times as long, by the model, as the direct method
OTHER_EVERY = 4  # proposals, of which one is of the method that the model likes less
LOG_TIME_TIE = 1e-6  # modelled times whose logarithms differ by less are equal


def prior_points(model: Model, most: int) -> list[Point]:
    """Up to `most` points of different schedules, the most promising first.

    Where a convolution can be computed by minimal filtering, these are points of the method that
    the model likes better, and, second and then every fourth time, of the other: the model may be
    wrong, and the fastest schedule with a script is a direct one.
    """
    names = [str(value) for value in model.space.values(ALGORITHM)]
    direct = _diverse(model, most, [DIRECT])
    if not names:
        return direct
    filtered = _diverse(model, most, [name for name in names if name != DIRECT])
    if not filtered or model.log_time(filtered[0]) > model.log_time(direct[0]) + log(HOPELESS):
        return direct
    liked, other = sorted((direct, filtered), key=lambda points: model.log_time(points[0]))
    chosen: list[Point] = []
    while (liked or other) and len(chosen) < most:
        takes_other = len(chosen) % OTHER_EVERY == 1
        source = (other or liked) if takes_other else (liked or other)
        chosen.append(source.pop(0))
    return chosen


def direct_schedules(problem: Problem, target: Target, most: int) -> list[Schedule]:
    """Up to `most` schedules of the direct method, untimed, the most promising first."""
    model = Model.shipped(Space(problem, target))
    return [model.space.schedule(point) for point in _diverse(model, most, [DIRECT])]


def _diverse(model: Model, most: int, algorithms: Sequence[str]) -> list[Point]:
    """Up to `most` points of some algorithms, the first of which differ in tile or packs."""
    points = list(islice(_legal(model, algorithms), EXAMINED_RATIO * most))
    leaders: dict[object, Point] = {}
    for point in points:
        shape, output = tile_shape(point["tile"]), output_of(point)
        kind: object = (point["pack_a"], point["pack_b"]) if shape.is_plain else point["unroll"]
        kind = kind if output is None else output
        if len(leaders) < DIVERSE_PROPOSALS:
            leaders.setdefault((point["tile"], kind), point)
    chosen = list(leaders.values())
    chosen += [point for point in points if point not in chosen]
    return chosen[:most]


def _legal(model: Model, algorithms: Sequence[str]) -> Iterator[Point]:
    """The points of `ranked` that are legal, each schedule once."""
    space, seen = model.space, set[str]()
    for point in ranked(model, algorithms):
        schedule = space.schedule(point)
        if schedule.hash not in seen and space.why_illegal(schedule) is None:
            seen.add(schedule.hash)
            yield point


def ranked(model: Model, algorithms: Sequence[str] = (DIRECT,)) -> Iterator[Point]:
    """Points of split, streamed and swept tiles, if any; then what the descents met, by time.

    Where split tiles compete with packing, both come in turn. Swept tiles of some rows at a time
    come behind the best that the descents met, which packs B or not.

    Args:
        model: of a space.
        algorithms: that points may have; a space without the choice has the direct one.
    """
    space, met = model.space, _descended(model, algorithms)
    split = islice(_split_points(space), MAX_SPLIT_POINTS)
    if reads_in_place(space.workload):
        yield from in_turn(met, split)
        return
    yield from split
    yield from _streamed_points(space)
    swept = _swept_points(space)
    at_once = _at_once(space, swept)
    yield from at_once
    rivals = [point for point in swept if point not in at_once]
    yield from islice(met, 1)
    yield from sorted(rivals, key=model.log_time)[:MAX_RIVAL_POINTS]
    yield from met


def in_turn(first: Iterator[Point], second: Iterator[Point]) -> Iterator[Point]:
    """The points of both, one of each while there are any."""
    for pair in zip_longest(first, second):
        yield from (point for point in pair if point is not None)


def _descended(model: Model, algorithms: Sequence[str]) -> Iterator[Point]:
    """What the descents met, by time."""
    space = model.space
    known: dict[tuple[Value, ...], tuple[float, int, Point]] = {}

    def cost(point: Point) -> float:
        key = tuple(point[p.name] for p in space.parameters)
        if key not in known:
            known[key] = (model.log_time(point), len(known), point)
        return known[key][0]

    for start in islice(_starts(model, algorithms), DESCENTS):
        _descend(space, start, cost)
    yield from (point for _, _, point in sorted(known.values(), key=lambda item: item[:2]))


def _descend(space: Space, point: Point, cost: Callable[[Point], float]) -> None:
    """Move one parameter at a time to where `cost` is least, the first of equals."""
    # The model was fitted on one thread, and is not asked about a division among several.
    fixed = ("parallel", ALGORITHM)
    moving = [p for p in space.parameters if p.name not in fixed]
    if output_of(point) is not None:
        moving = [p for p in moving if p.name in EFFECTIVE]
    for _ in range(MAX_SWEEPS):
        before = cost(point)
        for parameter in moving:
            near = [point | {parameter.name: value} for value in _tried_values(parameter)]
            point = min(near, key=lambda p: round(cost(p) / LOG_TIME_TIE))
        if cost(point) >= before:
            break


def _tried_values(parameter: Parameter) -> tuple[Value, ...]:
    """The values that a descent tries, in an order that says which of equals it takes."""
    if parameter.name == "tile":
        return tuple(v for v in parameter.values if tile_shape(v).is_plain)
    if isinstance(parameter, Size):
        return parameter.values[::-1]  # of sizes that cost the same, the larger: fewer loops
    return parameter.values


def _starts(model: Model, algorithms: Sequence[str]) -> list[Point]:
    """For each register tile a plain point, nothing cut, B packed or not; likely ones first."""
    space = model.space
    base: Point = {p.name: p.values[0] for p in space.parameters}
    uncut = ("depth", "cols", "rows", "image_rows", WANTED)
    base |= {name: WHOLE for name in uncut if name in base}
    base |= _division(space)
    choices: list[Point] = [{}]
    if ALGORITHM in base:
        choices = [{ALGORITHM: name} for name in algorithms]
    points = [
        base | {"tile": tile, "pack_b": pack} | choice
        for choice in choices
        for tile in space.values("tile")
        if tile_shape(tile).is_plain
        for pack in space.values("pack_b")
    ]
    return sorted(points, key=model.log_time)


def _division(space: Space) -> Point:
    """The columns, else the dim with most to divide: then no thread packs what another packs."""
    divisions = [str(value) for value in space.values("parallel") if "," not in str(value)]
    if not divisions:
        return {}
    threads, dims = space.target.threads, space.workload.dims
    wanted = [(dim, dims.extent(dim)) for dim in dims.lead]
    wanted.append((dims.col, dims.extent(dims.col) // (4 * space.workload.lanes)))
    for dim, parts in wanted:
        if f"{dim}={threads}" in divisions and parts >= threads:
            return {"parallel": f"{dim}={threads}"}
    rows = [dim for dim in dims.row_dims if f"{dim}={threads}" in divisions]
    if not rows:
        return {"parallel": divisions[-1]}
    return {"parallel": f"{max(rows, key=dims.extent)}={threads}"}


def _streamed_points(space: Space) -> list[Point]:
    """Points of tiles of all rows, which read panels that were packed ahead once, end to end.

    The narrow ones come first, which have the fewest columns under way; the model thinks that they
    read A too often.
    """
    workload = space.workload
    streams = workload.stored["B"].is_packed_ahead and True in space.values("prefetch")
    if not streams or not isinstance(space.problem, Matmul):
        return []
    rows = workload.extents[workload.dims.row]
    tiles = [f"{rows}x{vectors}" for vectors in STREAMED_VECTORS]
    base: Point = {p.name: p.values[0] for p in space.parameters}
    base |= dict.fromkeys(("depth", "cols", "rows"), WHOLE) | _division(space)
    base |= {"prefetch": True, "pack_a": True, "pack_b": True}
    return [base | {"tile": tile} for tile in tiles if tile in space.values("tile")]


def _swept_points(space: Space) -> list[Point]:
    """Points of swept tiles, one for each; none where no tile is swept."""
    base: Point = {p.name: p.values[0] for p in space.parameters}
    base |= dict.fromkeys(("depth", "cols", "rows"), WHOLE)
    base |= _division(space)
    return [base | {"tile": tile} for tile in space.values("tile") if tile_shape(tile).swept]


def _at_once(space: Space, swept: Sequence[Point]) -> list[Point]:
    """Those that hold few rows, all at once: the deep ones first, which prefetchers follow best."""
    rows = space.workload.dims.extent(space.workload.dims.row)
    if rows > SWEPT_AT_ONCE:
        return []
    shapes = [(tile_shape(point["tile"]), point) for point in swept]
    whole = [(shape.swept, point) for shape, point in shapes if shape.rows == rows]
    ordered = sorted(whole, key=lambda pair: -pair[0])
    return [point for _, point in ordered[:MAX_SWEPT_POINTS]]


def _split_points(space: Space) -> Iterator[Point]:
    """Points of split tiles, where there are any: large tiles first, nothing else cut.

    Long rows are read whole, one at a time; of short rows a tile reads all side by side. Where
    several of both factors are, tiles that load least come first, of whole and of short rows.
    """
    registers, workload = space.target.vector_registers, space.workload
    is_long = workload.dims.extent(workload.dims.stream) >= LONG_STREAM * workload.lanes

    def rank(tile: SplitTile) -> tuple[bool, int]:
        return tile.fits(registers) == is_long, -tile.rows * tile.cols

    base: Point = {p.name: p.values[0] for p in space.parameters}
    base |= dict.fromkeys(("depth", "cols", "rows"), WHOLE)
    base |= _division(space)
    if reads_in_place(workload):
        yield from _points_in_place(space, base)
        return
    for tile in sorted(split_tiles(workload), key=rank):
        wanted = 1 if tile.vectors >= max(SPLIT_TILE_VECTORS) else 2
        unroll = wanted if wanted in space.values("unroll") else 1
        yield base | {"tile": str(tile), "unroll": unroll}


def _points_in_place(space: Space, base: Point) -> Iterator[Point]:
    """Points of tiles that read several rows of both factors: little loaded, little cut off."""
    dims = space.workload.dims
    rows, cols = dims.extent(dims.row), dims.extent(dims.col)

    def slots(tile: SplitTile) -> float:
        computed = -(-rows // tile.rows) * -(-cols // tile.cols)
        return computed * (tile.rows * tile.cols + tile.rows + tile.cols)

    depth = _depth_of(space)
    for tile in sorted(split_tiles(space.workload), key=slots)[: MAX_SPLIT_POINTS // 2]:
        unroll = 2 if 2 in space.values("unroll") else 1
        for chunk in dict.fromkeys((WHOLE, depth)):
            yield base | {"tile": str(tile), "unroll": unroll, "depth": chunk}


def _depth_of(space: Space) -> Value:
    """A chunk of rows that stay in the first cache while the columns pass."""
    depth = next(p for p in space.parameters if p.name == "depth")
    assert isinstance(depth, Size)
    return depth.nearest(SHORT_ROWS)
