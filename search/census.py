"""How many different legal schedules a space holds, exactly, without listing them.

Given the register tile, the division among threads and the depth, what is chosen for the
columns (block, pack of B, prefetch) and what is chosen for the rows (block, pack of A) do
not depend on each other: neither in the steps that they give, nor in what the caches allow.
So the schedules of each are counted apart and multiplied.
"""

from itertools import product

from search.parameters import Parameter, Point, Value
from search.space import Space

COLS = ("cols", "pack_b", "prefetch")
ROWS = ("rows", "image_rows", "pack_a")


def count_schedules(space: Space) -> int:
    """The number of different legal schedules."""
    values = {p.name: p.values for p in space.parameters}
    base: Point = {name: options[0] for name, options in values.items()}
    free = len(values["outer"]) * len(values["unroll"])
    total = 0
    for tile in values["tile"]:
        for division, depth in _distinct_outer(space, base | {"tile": tile}):
            here = base | {"tile": tile, "depth": depth} | division
            cols = _count(space, here, {n: values[n] for n in COLS if n in values}, "B")
            rows = _count(space, here, {n: values[n] for n in ROWS if n in values}, "A")
            total += free * cols * rows
    return total


def _distinct_outer(space: Space, base: Point) -> list[tuple[Point, Value]]:
    """Divisions among threads and depths that give different steps."""
    division: Parameter | None = space.parameter("parallel")
    depth = space.parameter("depth")
    assert depth is not None
    found: dict[str, tuple[Point, Value]] = {}
    for choice in division.values if division else ("",):
        for value in depth.values:
            divided: Point = {"parallel": choice} if division else {}
            point = base | {"depth": value} | divided
            found.setdefault(space.schedule(point).hash, (divided, value))
    return list(found.values())


def _count(space: Space, base: Point, choices: dict[str, tuple[Value, ...]], operand: str) -> int:
    """Different schedules of `base` with each of `choices`, as far as `operand` may be packed."""
    largest = base | {name: options[-1] for name, options in choices.items()}  # whole, packed
    all_fit = space.why_illegal(space.schedule(largest), operand) is None
    seen = set()
    for chosen in product(*choices.values()):
        schedule = space.schedule(base | dict(zip(choices, chosen, strict=True)))
        if schedule in seen:
            continue
        if all_fit or space.why_illegal(schedule, operand) is None:
            seen.add(schedule)
    return len(seen)
