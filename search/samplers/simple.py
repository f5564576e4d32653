"""Local search, and a grid whose every prefix is spread out."""

from collections.abc import Iterable
from math import gcd

from tilewise.search.samplers.base import SpaceSampler, Told
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space


class LocalSampler(SpaceSampler):
    """Climbs from the fastest trials; whoever is best when a point is asked for is the centre."""

    def __init__(self, space: Space, seed: int = 0, refused: Iterable[str] = ()) -> None:
        super().__init__(space, seed, refused)
        self._timed: list[tuple[float, int, Point]] = []

    def learn(self, told: Told) -> None:
        """Keep a trial that was timed."""
        if told.time is not None:
            self._timed.append((told.time, len(self._timed), told.point))

    def propose(self) -> Point:
        """A free neighbour of the fastest trial that has one; a random point without any."""
        for _, _, centre in sorted(self._timed):
            near = list(self._space.neighbours(centre))
            self._random.shuffle(near)
            for point in near:
                if self._history.is_free(point):
                    return point
        return self._space.draw(self._random)


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
