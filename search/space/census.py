"""Count the legal schedules of a space exactly, without enumerating them.

Once the register tile, the division among threads and the depth are chosen, the choices for the
columns (block, pack of B, prefetch) and those for the rows (block, pack of A) are independent:
neither changes the steps of the other, nor what the caches allow it. The schedules of each are
counted apart and multiplied. Tiles of equally many columns (or rows) share the count. So it is with
Winograd transforms, whose columns and tiles are cut independently.
"""

from itertools import product

from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.search.space.algorithms import ALGORITHM, DIRECT, PAST_CACHES, WANTED, channels_of
from tilewise.search.space.points import Point
from tilewise.search.space.schedules import schedule_of
from tilewise.search.space.space import Space

COLUMN_CHOICES = ("cols", "pack_b", "prefetch", "chunks")
ROW_CHOICES = ("rows", "image_rows", "pack_a")
SWEPT_CHOICES = ("parallel", "cols", "prefetch")


def count_schedules(space: Space) -> int:
    """Return the number of different legal schedules."""
    workload = space.workload
    if workload.nest.group:
        return _count_windows(space)
    free = len(space.values("outer")) * len(space.values("unroll"))
    base: Point = {p.name: p.values[0] for p in space.parameters}
    counts: dict[tuple[object, ...], int] = {}

    def count(point: Point, names: tuple[str, ...], operand: str, key: tuple[object, ...]) -> int:
        key = (operand, *key)
        if key not in counts:
            counts[key] = _count(space, point, names, operand)
        return counts[key]

    total = 0
    for tile in space.values("tile"):
        if tile.kind == "sweep":
            total += _count(space, base | {"tile": tile}, SWEPT_CHOICES)
            continue
        rows, cols = tile.rows, tile.cols(workload.lanes)
        is_alone = rows >= workload.rows
        for point, depth in _distinct_outer(space, base | {"tile": tile}):
            part = space.part_of(point, rows, cols)
            shared = (tile.partial_sums, depth)
            col = part[workload.nest.col]
            of_cols = count(point, COLUMN_CHOICES, "B", (cols, col, is_alone, *shared))
            of_rows = count(point, ROW_CHOICES, "A", (rows, *part.values(), *shared))
            total += free * of_cols * of_rows
    return total + _count_filtered(space, base)


def _count_filtered(space: Space, base: Point) -> int:
    """Different legal schedules of fewer products."""
    total, of_cols = 0, (channels_of(space.workload), "prefetch")
    counts: dict[object, int] = {}
    for algorithm in space.values(ALGORITHM):
        if algorithm == DIRECT:
            continue
        for tile in space.values("tile"):
            point = base | {ALGORITHM: algorithm, "tile": tile}
            for divided in _distinct_divisions(space, point):
                steps = schedule_of(space.workload, divided).steps
                of_each = []
                for names, operand in ((of_cols, "B"), ((WANTED,), "A")):
                    unit = tile.vectors if operand == "B" else tile.rows
                    key = (algorithm, operand, unit, divided.get("parallel"), steps[:3])
                    if key not in counts:
                        counts[key] = _count(space, divided, names, operand)
                    of_each.append(counts[key])
                total += of_each[0] * of_each[1]
    return total * len(space.values("unroll")) * max(1, len(space.values(PAST_CACHES)))


def _distinct_divisions(space: Space, base: Point) -> list[Point]:
    """Points with the divisions among threads that give different steps."""
    choices: list[Point] = [{"parallel": value} for value in space.values("parallel")]
    found: dict[object, Point] = {}
    for choice in choices or [{}]:
        point = base | choice
        found.setdefault(space.schedule(point), point)
    return list(found.values())


def _count_windows(space: Space) -> int:
    """Different schedules of a convolution with few channels in a group.

    Of a register tile with its lines, a division among threads and a step that may be there or
    not, the blocks of lines and of channels are independent.
    """
    free = len(space.values("outer")) * len(space.values("nontemporal"))
    base: Point = {p.name: p.values[-1] for p in space.parameters}
    seen: dict[Schedule, int] = {}
    for tile, lines, parallel in product(
        space.values("tile"), space.values("lines"), space.values("parallel") or ("none",)
    ):
        point = base | {"tile": tile, "lines": lines, "parallel": parallel}
        whole = schedule_of(space.workload, point)
        if whole not in seen:
            kinds = [
                {schedule_of(space.workload, point | {name: size}) for size in space.values(name)}
                for name in ("image_rows", "cols")
            ]
            seen[whole] = free * len(kinds[0]) * len(kinds[1])
    return sum(seen.values())


def _distinct_outer(space: Space, base: Point) -> list[tuple[Point, int | None]]:
    """Points with the divisions among threads and depths that give different steps."""
    found: dict[object, tuple[Point, int | None]] = {}
    for choice, depth in product(space.values("parallel") or ("",), space.values("depth")):
        divided: Point = {"parallel": choice} if choice else {}
        point = base | {"depth": depth} | divided
        schedule = schedule_of(space.workload, point)
        k_block = loop_nest(space.problem, schedule).k_block
        found.setdefault(schedule, (point, k_block.step if k_block else None))
    return list(found.values())


def _count(space: Space, base: Point, names: tuple[str, ...], operand: str = "") -> int:
    """Different legal schedules of `base` with each choice of `names`.

    With an operand they are legal if this one may be packed.
    """
    choices = {name: space.values(name) for name in names if space.values(name)}
    points = product(*choices.values())
    made = {space.schedule(base | dict(zip(choices, point, strict=True))) for point in points}
    if operand:
        largest = base | {name: options[-1] for name, options in choices.items()}  # whole, packed
        if space.why_illegal(space.schedule(largest), operand) is None:
            return len(made)
    return sum(space.why_illegal(schedule, operand) is None for schedule in made)
