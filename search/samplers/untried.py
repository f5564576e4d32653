"""Values that no trial has had yet, of the parameters that have few.

What a model knows of a value that was never tried is what it believed from the start, and by that
belief it is not tried: a search that fears to unroll by eight, because other processors do not
like it, never learns that it is the best here. A sampler's uncertainty does not help. Beside a
point that was timed it is small, and yet one such change moves a time by 5 to 20%, either way, on
one problem and not on the next. So each value gets one trial, in the best that is known, as
one-at-a-time plans do (Daniel, One-at-a-Time Plans, Journal of the American Statistical
Association 68, 1973). What later searches correct the model by
(`tilewise.search.transfer.calibration`) has them, too.
"""

from collections.abc import Iterator

from tilewise.search.space.points import Point, Value
from tilewise.search.space.space import Space

FEW_VALUES = 4  # packs, loop orders, unroll factors; sizes of blocks where a dim is tiny


class Untried:
    """The values of a space's parameters, as long as no trial has had them."""

    def __init__(self, space: Space) -> None:
        self._left: dict[str, list[Value]] = {
            p.name: list(p.values) for p in space.parameters if len(p.values) <= FEW_VALUES
        }

    def take_out(self, point: Point) -> None:
        """The values of `point` have their trial."""
        for name, values in self._left.items():
            if point[name] in values:
                values.remove(point[name])

    def in_place_of(self, best: Point) -> Iterator[Point]:
        """`best` with each of the values that are left, one at a time."""
        for name, values in self._left.items():
            for value in values:
                yield best | {name: value}
