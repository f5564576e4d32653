"""A point of one problem, adapted to another.

A block keeps its size, to fill the same cache. The size is snapped to the values that the new
problem has. A dim that was not cut and is about as long stays uncut.
"""

from tilewise.search.space.methods.algorithms import ALGORITHM, nearest_algorithm
from tilewise.search.space.parameters import Parameter, RegisterTile, Size, default
from tilewise.search.space.points import WHOLE, Point, Value
from tilewise.search.space.space import Space
from tilewise.search.space.tiles import are_alike, tile_shape


def adapt(space: Space, former: Space, params: Point) -> Point | None:
    """The point of `space` that keeps the sizes of one of `former`; None when none is like it."""
    point: Point = {}
    for parameter in space.parameters:
        old = former.parameter(parameter.name)
        value = default(parameter) if old is None else _value(parameter, old, params[old.name])
        if value is None:
            return None
        point[parameter.name] = value
    return _without_unused_blocks(point, params)


def _without_unused_blocks(point: Point, params: Point) -> Point:
    """The point; where blocks were those of an end and no longer are, no other blocks come up.

    Nothing was cut by the sizes that stand beside such a tile, and nothing is known of them.
    """
    if not tile_shape(params["tile"]).ends or tile_shape(point["tile"]).ends:
        return point
    return point | {name: WHOLE for name in ("cols", "rows") if name in point}


def _value(parameter: Parameter, old: Parameter, value: Value) -> Value | None:
    """The value that stands for `value` of the former problem's parameter."""
    if isinstance(parameter, Size) and isinstance(old, Size):
        return _size(parameter, old, value)
    if isinstance(parameter, RegisterTile):
        return _tile(parameter, value)
    if parameter.name == ALGORITHM:
        return nearest_algorithm(parameter.values, value)
    return value if value in parameter.values else default(parameter)


def _size(parameter: Size, old: Size, value: Value) -> Value:
    if value == WHOLE and parameter.extent < 2 * old.extent:
        return WHOLE
    return parameter.nearest(old.size(value))


def _tile(parameter: RegisterTile, value: Value) -> Value | None:
    """The same tile, else the one nearest in shape of its kind.

    One that begins at the nearer end gives way to one that does, or where there is none to the
    same one without. What was timed in order stays in order.
    """
    if value in parameter.values:
        return value
    shape = tile_shape(value)
    alike = [v for v in parameter.values if are_alike(tile_shape(v), shape)]
    wanted = parameter.encode_shape(shape)

    def far(other: Value) -> tuple[bool, float]:
        found = tile_shape(other)
        pairs = zip(parameter.encode_shape(found), wanted, strict=True)
        return found.ends != shape.ends, sum((a - b) ** 2 for a, b in pairs)

    return min(alike, key=far, default=None)
