"""Every point once, in an order whose every prefix is spread out."""

from collections.abc import Iterable
from math import gcd

from tilewise.search.samplers.base import SpaceSampler
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space

GOLDEN = 0.6180339887498949


class GridSampler(SpaceSampler):
    """Walks over all points by strides of the golden ratio of their number.

    Args:
        space: what is searched.
        seed: where the walk begins.
        refused: hashes of schedules that are not to be tried.
    """

    def __init__(self, space: Space, seed: int = 0, refused: Iterable[str] = ()) -> None:
        super().__init__(space, seed, refused)
        self._size = space.size
        self._stride = max(1, int(self._size * GOLDEN))
        while gcd(self._stride, self._size) != 1:
            self._stride += 1
        self._at = seed % self._size

    def propose(self) -> Point:
        """The next point of the walk."""
        self._at = (self._at + self._stride) % self._size
        index, point = self._at, Point()
        for parameter in self._space.parameters:
            index, digit = divmod(index, len(parameter.values))
            point[parameter.name] = parameter.values[digit]
        return point
