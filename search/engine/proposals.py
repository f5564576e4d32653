"""Which schedule comes next: the prior's first, then those of near problems, then a sampler's.

Nothing is proposed twice. Any number can be asked for before the first has been timed.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from random import Random

from search.model.analytical import Model
from search.model.prior import prior_points
from search.records import TrialRecord, TuneRequest
from search.samplers.registry import make_sampler
from search.space.points import Point

Proposal = tuple[Point, str]

PRIOR = 10  # the most promising of the analytical model, before the sampler is asked
PRIOR_OF = {"surrogate": 4}  # it knows the model, so that more of the like teaches it little
LEAD = 2  # of them, ahead of what near problems offer
GIVES_WAY = 1  # of them, where near problems offer something
TRANSFER = "transfer"


class Proposals:
    """The points to try, in order, each with its origin.

    Args:
        model: of the space that may be tried.
        request: sampler and seed.
        stored: trials of this job that are finished.
        starts: points that did well on near problems, best first.
        refused: hashes of schedules that are not to be tried.
        prior: the analytical model's choice, where it is known already.
    """

    def __init__(
        self,
        model: Model,
        request: TuneRequest,
        stored: Sequence[TrialRecord] = (),
        starts: Iterable[Point] = (),
        refused: Iterable[str] = (),
        prior: Sequence[Point] | None = None,
    ) -> None:
        self._space = model.space
        self._name = request.sampler
        # A resumed sampler must not repeat the numbers that it drew before.
        seed = (request.seed + len(stored)) % 2**32
        self._random = Random(seed)
        self._sampler = make_sampler(request.sampler, model, seed, request.trials)
        self._taken = set(refused)
        most = PRIOR_OF.get(request.sampler, PRIOR)
        starts = list(starts)
        if starts:
            most -= GIVES_WAY
        chosen = prior_points(model, most) if prior is None else prior[:most]
        self._first = _beginning(chosen, starts)
        for trial in stored:
            self.learn(trial)

    def next(self) -> Proposal | None:
        """A point whose schedule is legal and new, with its origin; None when none is left."""
        for point, origin in self._first:
            if self._is_free(point):
                return self._take(point, origin)
        point = self._sampler.propose(self._is_free)
        if not self._is_free(point):
            beside = self._space.free_point_beside(point, self._is_free, self._random)
            if beside is None:
                return None
            point = beside
        return self._take(point, self._name)

    def learn(self, trial: TrialRecord) -> None:
        """Take in a finished trial."""
        self._taken.add(trial.schedule.hash)
        self._sampler.learn(trial)

    def _take(self, point: Point, origin: str) -> Proposal:
        self._taken.add(self._space.schedule(point).hash)
        return point, origin

    def _is_free(self, point: Point) -> bool:
        found = self._space.legal_hash(point)
        return found is not None and found not in self._taken


def _beginning(prior: Sequence[Point], starts: Iterable[Point]) -> Iterator[Proposal]:
    points = iter(prior)
    return chain(
        ((point, "prior") for point in islice(points, LEAD)),
        ((point, TRANSFER) for point in starts),
        ((point, "prior") for point in points),
    )
