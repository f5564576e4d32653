"""A point of one problem, adapted to another.

A block keeps its size, to fill the same cache. The size is snapped to the values that the new
problem has. A dim that was not cut and is about as long stays uncut.
"""

from tilewise.search.space.methods.algorithms import ALGORITHM, nearest_algorithm
from tilewise.search.space.parameters import Parameter, RegisterTile, Size, default
from tilewise.search.space.points import WHOLE, Point, TilePoint, Value
from tilewise.search.space.space import Space


def adapt(space: Space, former: Space, params: Point) -> Point | None:
    """The point of `space` that keeps the sizes of one of `former`; None when none is like it."""
    point: Point = {}
    for parameter in space.parameters:
        old = former.parameter(parameter.name)
        value = default(parameter) if old is None else _value(parameter, old, params[old.name])
        if value is None:
            return None
        point[parameter.name] = value
    return point


def _value(parameter: Parameter, old: Parameter, value: Value) -> Value | None:
    """The value that stands for `value` of the former problem's parameter."""
    if isinstance(parameter, Size) and isinstance(old, Size):
        return _size(parameter, old, value)
    if isinstance(parameter, RegisterTile):
        assert isinstance(value, TilePoint)
        return _tile(parameter, value)
    if parameter.name == ALGORITHM:
        return nearest_algorithm(parameter.values, value)
    return value if value in parameter.values else default(parameter)


def _size(parameter: Size, old: Size, value: Value) -> Value:
    if value == WHOLE and parameter.extent < 2 * old.extent:
        return WHOLE
    return parameter.nearest(old.size(value))


def _tile(parameter: RegisterTile, tile: TilePoint) -> TilePoint | None:
    """The same tile, else the one nearest in shape of its kind."""
    if tile in parameter.values:
        return tile
    alike = [other for other in parameter.values if other.kind == tile.kind]
    wanted = parameter.encode(tile)

    def far(other: TilePoint) -> float:
        pairs = zip(parameter.encode(other), wanted, strict=True)
        return sum((a - b) ** 2 for a, b in pairs)

    return min(alike, key=far, default=None)
