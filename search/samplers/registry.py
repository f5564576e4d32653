"""Samplers by name: ours, Optuna's, and any other as `module:Class`."""

import importlib
import importlib.util
import inspect
import warnings
from collections.abc import Iterable, Sequence
from math import gcd
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tilewise.search.errors import BudgetError
from tilewise.search.model.levels import TimeModel
from tilewise.search.records import SAMPLERS
from tilewise.search.samplers.base import (
    FreeSampler,
    Reported,
    SpaceSampler,
    distributions,
    point_of,
)
from tilewise.search.samplers.surrogate import SurrogateSampler
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space


class LocalSampler(SpaceSampler):
    """Tries neighbours of the fastest trial that has free ones."""

    def __init__(self, space: Space, seed: int = 0, refused: Iterable[str] = ()) -> None:
        super().__init__(space, seed, refused)
        self._timed: list[tuple[float, int, Point]] = []

    def learn(self, reported: Reported) -> None:
        """Keep a trial that was timed."""
        if reported.time is not None:
            self._timed.append((reported.time, len(self._timed), reported.point))

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


class Distinct(FreeSampler):
    """Moves another sampler's points where they are illegal or were tried.

    The study has the points that were really tried, so the other sampler learns from those.
    """

    def __init__(
        self, sampler: BaseSampler, space: Space, seed: int = 0, refused: Iterable[str] = ()
    ) -> None:
        super().__init__(space, seed, refused, sampler)

    def __str__(self) -> str:
        return str(self._sampler)

    def wanted(self, study: Study, trial: FrozenTrial, reported: list[Reported]) -> Point:
        """Return the other sampler's point, with what it samples independently."""
        inferred = self._sampler.infer_relative_search_space(study, trial)
        params = dict(self._sampler.sample_relative(study, trial, inferred))
        for name, distribution in distributions(self._space).items():
            if distribution.single():
                params[name] = 0
            elif name not in params:
                params[name] = self._sampler.sample_independent(study, trial, name, distribution)
        return point_of(self._space, params)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Forward to the other sampler."""
        self._sampler.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Forward to the other sampler."""
        self._sampler.after_trial(study, trial, state, values)


PACKAGES = {"gp": ("torch", "gp"), "cmaes": ("cmaes", "search")}
"""What samplers need, and the extra that installs it."""
STARTUP = 8  # trials that TPE wants before it models


def make_sampler(
    name: str,
    model: TimeModel,
    seed: int,
    trials: int,
    refused: Iterable[str] = (),
    *,
    is_shared: bool = False,
) -> BaseSampler:
    """Return the sampler called `name` over the space of `model`; its points are new.

    A `module:Class` of Optuna's protocol gets those of `space`, `model`, `seed` and `trials` that
    its constructor takes. `is_shared` makes TPE treat points under way on other machines as bad.

    Raises BudgetError for a missing package or class, or one that is no sampler.
    """
    space = model.space
    if name == "surrogate":
        return SurrogateSampler(space, seed, refused, trials=trials, model=model)
    if name == "local":
        return LocalSampler(space, seed, refused)
    if name == "grid":
        return GridSampler(space, seed, refused)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if name in SAMPLERS:
            made = _optunas(name, seed, is_shared=is_shared)
        else:
            made = _loaded(name, model, seed, trials)
    return over_space(made, space, seed, refused)


def over_space(
    sampler: BaseSampler, space: Space, seed: int = 0, refused: Iterable[str] = ()
) -> BaseSampler:
    """Return a sampler of new legal schedules: `sampler` itself if it is one."""
    return sampler if isinstance(sampler, FreeSampler) else Distinct(sampler, space, seed, refused)


def _optunas(name: str, seed: int, *, is_shared: bool) -> BaseSampler:
    """Return a sampler of Optuna's by our name of it."""
    package, extra = PACKAGES.get(name, ("optuna", "search"))
    if importlib.util.find_spec(package) is None:
        raise BudgetError(
            f"sampler={name!r} needs the package {package}; install tilewise[{extra}]", "sampler"
        )
    samplers = optuna.samplers
    match name:
        case "tpe":
            return samplers.TPESampler(
                seed=seed, multivariate=True, n_startup_trials=STARTUP, constant_liar=is_shared
            )
        case "gp":
            return samplers.GPSampler(seed=seed)
        case "cmaes":
            return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
    return samplers.RandomSampler(seed=seed)


def _loaded(name: str, model: TimeModel, seed: int, trials: int) -> BaseSampler:
    """Return the sampler of `module:Class`, made with what its constructor takes."""
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:  # a user's module may fail in any way
        raise BudgetError(
            f"sampler={name!r} cannot be loaded: {type(error).__name__}: {error}", "sampler"
        ) from error
    if not (isinstance(found, type) and issubclass(found, BaseSampler)):
        raise BudgetError(
            f"sampler={name!r} is not a subclass of optuna.samplers.BaseSampler", "sampler"
        )
    offered = {"space": model.space, "model": model, "seed": seed, "trials": trials}
    try:
        wanted = inspect.signature(found).parameters
        return found(**{k: v for k, v in offered.items() if k in wanted})
    except Exception as error:
        raise BudgetError(
            f"sampler={name!r} cannot be made: {type(error).__name__}: {error}", "sampler"
        ) from error
