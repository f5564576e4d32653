"""Local search: one-parameter changes of the best schedule, then of the next best."""

from random import Random

from search.records import TrialRecord
from search.samplers.registry import IsFree
from search.space.points import Point
from search.space.space import Space


class LocalSearch:
    """Climbs from the fastest trials; whoever is best when a point is asked for is the centre."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._random = Random(seed)
        self._timed: list[tuple[float, int, Point]] = []

    def propose(self, is_free: IsFree) -> Point:
        """A free neighbour of the fastest trial that has one; a random point without any."""
        for _, _, centre in sorted(self._timed):
            near = list(self._space.neighbours(centre))
            self._random.shuffle(near)
            for point in near:
                if is_free(point):
                    return point
        return self._space.draw(self._random)

    def learn(self, trial: TrialRecord) -> None:
        """Keep a trial that was timed."""
        if trial.measurement is not None and self._space.holds(trial.params):
            entry = (trial.measurement.time_us, len(self._timed), trial.params)
            self._timed.append(entry)
