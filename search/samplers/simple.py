"""Local search and a low-discrepancy grid."""

from collections.abc import Iterable
from math import gcd

from tilewise.search.samplers.base import Reported, SpaceSampler
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space


class LocalSampler(SpaceSampler):
    """Tries neighbours of the fastest trial that has free ones."""

    def __init__(self, space: Space, seed: int = 0, refused: Iterable[str] = ()) -> None:
        super().__init__(space, seed, refused)
        self._timed: list[tuple[float, int, Point]] = []

    def learn(self, told: Reported) -> None:
        """Keep a trial that was timed."""
        if told.time is not None:
            self._timed.append((told.time, len(self._timed), told.point))

    def propose(self) -> Point:
        """Return a free neighbour of the fastest trial, else a random point."""
        for _, _, centre in sorted(self._timed):
            near = list(self._space.neighbours(centre))
            self._random.shuffle(near)
            for point in near:
                if self._history.is_free(point):
                    return point
        return self._space.draw(self._random)


GOLDEN = 0.6180339887498949


class GridSampler(SpaceSampler):
    """Visits all points in strides of the golden ratio, starting at `seed`."""

    def __init__(self, space: Space, seed: int = 0, refused: Iterable[str] = ()) -> None:
        super().__init__(space, seed, refused)
        self._size = space.size
        self._stride = max(1, int(self._size * GOLDEN))
        while gcd(self._stride, self._size) != 1:
            self._stride += 1
        self._at = seed % self._size

    def propose(self) -> Point:
        """Return the next point."""
        self._at = (self._at + self._stride) % self._size
        index, point = self._at, Point()
        for parameter in self._space.parameters:
            index, digit = divmod(index, len(parameter.values))
            point[parameter.name] = parameter.values[digit]
        return point
