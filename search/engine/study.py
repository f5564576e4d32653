"""A search as an Optuna study, by ask and tell.

Points of the analytical model and of near problems are enqueued before the sampler proposes. The
study is in memory and can be rebuilt from stored trials. Trials have index parameters
(`tilewise.search.samplers.base`), the time in us as value, running medians as intermediate values,
and attributes `origin`, `hash` and `failure`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from statistics import median
from typing import Any

import optuna
from optuna.pruners import NopPruner
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from tilewise.search.errors import UsedUpError
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.levels import TimeModel
from tilewise.search.model.prior import prior_points
from tilewise.search.records import TrialRecord, TuneRequest
from tilewise.search.samplers.base import SCHEDULE, SPEED_FACTOR, distributions, params_of, point_of
from tilewise.search.samplers.registry import make_sampler, over_space
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space

PRIOR = 10  # the most promising of the analytical model, before the sampler proposes
PRIOR_OF = {"surrogate": 4}  # it knows the model, so that more of the like teaches it little
LEAD = 2  # of them, ahead of what near problems offer
TRANSFER = "transfer"
ORIGIN = "origin"

_STATES = {"timed": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


@dataclass(frozen=True)
class Proposal:
    """A legal new point to try; `origin` is `prior`, `transfer`, or the sampler's name."""

    trial: Trial
    point: Point
    origin: str


class SearchStudy:
    """The study of one search; `study` is Optuna's.

    `stored` are the job's finished trials, `starts` points of near problems, `refused` hashes of
    schedules not to be tried. `prior` and `sampler` replace the model's and the request's.

    Raises BudgetError if the request's sampler is unavailable.
    """

    def __init__(
        self,
        model: TimeModel,
        request: TuneRequest,
        stored: Sequence[TrialRecord] = (),
        starts: Iterable[Point] = (),
        refused: Iterable[str] = (),
        prior: Sequence[Point] | None = None,
        sampler: BaseSampler | None = None,
    ) -> None:
        self._space = space = model.space
        self._distributions = distributions(space)
        self._taken = {*refused, *(trial.schedule.hash for trial in stored)}
        self._is_used_up = False
        self._name = request.sampler if sampler is None else str(sampler)
        # A resumed sampler must not repeat the numbers that it drew before.
        seed = (request.seed + len(stored)) % 2**32
        if sampler is not None:
            chosen = over_space(sampler, space, seed, self._taken)
        else:
            name, trials, is_shared = request.sampler, request.trials, request.spread > 1
            chosen = make_sampler(name, model, seed, trials, self._taken, is_shared=is_shared)
        self.study = rebuilt(space, stored, chosen)
        if prior is None:
            assert isinstance(model, AnalyticalModel), "other models come with their prior"
            prior = prior_points(model, PRIOR)
        most = PRIOR_OF.get(self._name, PRIOR)
        self._enqueue(_beginning(prior[:most], starts), request.trials - len(stored))

    def _enqueue(self, offered: Iterator[tuple[Point, str]], most: int) -> None:
        """Enqueue up to `most` legal and new points before the sampler's."""
        for point, origin in offered:
            found = self._free(point)
            if found is not None and most > 0:
                self._taken.add(found)
                most -= 1
                attributes = {ORIGIN: origin, SCHEDULE: found}
                self.study.enqueue_trial(params_of(self._space, point), attributes)

    def ask(self) -> Proposal | None:
        """Return a legal and new point with its origin; None if none is left."""
        if self._is_used_up:
            return None
        try:
            trial = self.study.ask(self._distributions)
        except UsedUpError:
            self._is_used_up = True
            return None
        point = point_of(self._space, trial.params)
        origin = trial.user_attrs.get(ORIGIN)
        if origin is None:
            found = self._free(point)
            if found is None:  # a space of one point asks no sampler
                self.study.tell(trial, state=TrialState.FAIL)
                self._is_used_up = True
                return None
            self._taken.add(found)
            origin = self._name
            trial.set_user_attr(ORIGIN, origin)
            trial.set_user_attr(SCHEDULE, found)
        return Proposal(trial, point, origin)

    def _free(self, point: Point) -> str | None:
        """Return the hash of a point's schedule; None if it is illegal, refused or proposed."""
        found = self._space.legal_hash(point)
        return found if found not in self._taken else None

    def tell(self, proposal: Proposal, record: TrialRecord) -> None:
        """Record the outcome of a proposal: complete, pruned or failed."""
        trial = proposal.trial
        for name, value in _attributes(record).items():
            trial.set_user_attr(name, value)
        for count, time_us in _seen(record).items():
            trial.report(time_us, count)
        is_timed = record.state == "timed"  # Optuna derives the value of a pruned one
        value = record.measurement.time_us if record.measurement and is_timed else None
        self.study.tell(trial, value, _STATES[record.state])


def rebuilt(
    space: Space, stored: Iterable[TrialRecord], sampler: BaseSampler | None = None
) -> optuna.Study:
    """Return the in-memory study of stored trials; those of another space have no parameters."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # a study in memory is no news
    try:
        study = optuna.create_study(sampler=sampler, pruner=NopPruner(), direction="minimize")
    finally:
        optuna.logging.set_verbosity(verbosity)
    study.set_user_attr("problem", space.problem.canonical)
    study.set_user_attr("target", space.target.canonical)
    study.add_trials(_frozen(space, record) for record in stored)
    return study


def _frozen(space: Space, record: TrialRecord) -> FrozenTrial:
    holds = space.holds(record.params)
    return create_trial(
        state=_STATES[record.state],
        value=record.measurement.time_us if record.measurement else None,
        params=params_of(space, record.params) if holds else {},
        distributions=distributions(space) if holds else {},
        user_attrs=_attributes(record) | {ORIGIN: record.origin, SCHEDULE: record.schedule.hash},
        intermediate_values=_seen(record),
    )


def _seen(record: TrialRecord) -> dict[int, float]:
    """Return medians in us by number of samples: after 1, 2, 4, ... and all."""
    if record.measurement is None:
        return {}
    taken = [seconds / (record.speed_factor or 1.0) * 1e6 for seconds in record.samples]
    counts = (2**i for i in range(len(taken).bit_length()))
    seen = {count: median(taken[:count]) for count in counts}
    return seen | {max(1, len(taken)): record.measurement.time_us}


def _attributes(record: TrialRecord) -> dict[str, Any]:
    known = {
        "number": record.number,
        "gflops": record.measurement.gflops if record.measurement else None,
        "compile_s": record.compile_s,
        "rejected": record.rejected,
        SPEED_FACTOR: record.speed_factor,
        "max_error": record.max_error,
        "failure": record.failure,
        "message": record.message or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _beginning(prior: Sequence[Point], starts: Iterable[Point]) -> Iterator[tuple[Point, str]]:
    points = iter(prior)
    return chain(
        ((point, "prior") for point in islice(points, LEAD)),
        ((point, TRANSFER) for point in starts),
        ((point, "prior") for point in points),
    )
