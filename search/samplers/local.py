"""Local search: one-parameter changes of the best schedule, then of the next best."""

from collections.abc import Iterable

from tilewise.search.samplers.base import SpaceSampler
from tilewise.search.samplers.history import Told
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
