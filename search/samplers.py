"""Where the next point comes from: Optuna's samplers by name, or a walk over the grid.

Every parameter is an index into its ordered values, so that all samplers see order
where there is one. The study lives in memory and is rebuilt from the stored trials.
"""

import importlib.util
import warnings
from math import gcd, log, prod
from random import Random
from typing import Any, Protocol

from search.errors import BudgetError
from search.records import TrialRecord
from search.space import Parameter, Point, Space

GOLDEN = 0.6180339887498949


class Sampler(Protocol):
    """Proposes points and learns from finished trials."""

    def propose(self) -> Point:
        """The next point to try; it may mean a schedule that was tried already."""
        ...

    def learn(self, trial: TrialRecord) -> None:
        """Take in one finished trial."""
        ...


def make_sampler(name: str, space: Space, seed: int) -> Sampler:
    """The sampler called `name`; BudgetError when it needs a package that is absent."""
    if name == "grid":
        return GridWalk(space, seed)
    return OptunaSampler(name, space, seed)


class GridWalk:
    """Every point once, by strides of the golden ratio, so that any prefix is spread out."""

    def __init__(self, space: Space, seed: int) -> None:
        self._parameters = space.parameters
        self._size = prod(len(p.values) for p in self._parameters)
        self._stride = max(1, int(self._size * GOLDEN))
        while gcd(self._stride, self._size) != 1:
            self._stride += 1
        self._at = seed % self._size

    def propose(self) -> Point:
        """The next point of the walk."""
        self._at = (self._at + self._stride) % self._size
        index, point = self._at, Point()
        for parameter in self._parameters:
            index, digit = divmod(index, len(parameter.values))
            point[parameter.name] = parameter.values[digit]
        return point

    def learn(self, trial: TrialRecord) -> None:
        """A walk learns nothing."""


class OptunaSampler:
    """An Optuna study by ask and tell, minimising the logarithm of the time."""

    def __init__(self, name: str, space: Space, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna
        self._parameters = space.parameters
        self._distributions: dict[str, optuna.distributions.BaseDistribution] = {
            p.name: optuna.distributions.IntDistribution(0, len(p.values) - 1)
            for p in self._parameters
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._study = optuna.create_study(sampler=self._make(name, seed))

    def _make(self, name: str, seed: int) -> Any:
        samplers = self._optuna.samplers
        if name == "tpe":
            return samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=8)
        if name == "random":
            return samplers.RandomSampler(seed=seed)
        needs = {"gp": "torch", "cmaes": "cmaes"}[name]
        if importlib.util.find_spec(needs) is None:
            raise BudgetError(
                f"sampler={name!r} needs the package {needs}; install tilewise[{name}]", "sampler"
            )
        if name == "gp":
            return samplers.GPSampler(seed=seed)
        return samplers.CmaEsSampler(seed=seed)

    def propose(self) -> Point:
        """Ask the study; the asked trial is closed, since `learn` adds what was really run."""
        trial = self._study.ask(self._distributions)
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        return {p.name: p.values[int(trial.params[p.name])] for p in self._parameters}

    def learn(self, trial: TrialRecord) -> None:
        """Add a trial that was timed; failures teach nothing that dedupe does not."""
        if trial.measurement is None or not self._known(trial.params):
            return
        indices = {p.name: p.values.index(trial.params[p.name]) for p in self._parameters}
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params=indices,
                distributions=self._distributions,
                value=log(trial.measurement.time_us),
            )
        )

    def _known(self, point: Point) -> bool:
        return all(point.get(p.name) in p.values for p in self._parameters)


def step_aside(parameters: tuple[Parameter, ...], point: Point, random: Random) -> Point:
    """A neighbour of `point`: one parameter moved to a value next to its own."""
    movable = [p for p in parameters if len(p.values) > 1]
    if not movable:
        return point
    parameter = random.choice(movable)
    near = parameter.neighbours(point[parameter.name])
    return point | {parameter.name: random.choice(near)}
