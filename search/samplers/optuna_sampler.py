"""Optuna's samplers. Every parameter is an index into its ordered values.

So all of them see order where there is one. The study lives in memory and is rebuilt from
the stored trials.
"""

import importlib.util
import warnings
from math import log
from typing import Any

from search.errors import BudgetError
from search.records import TrialRecord
from search.samplers.registry import IsFree
from search.space.points import Point
from search.space.space import Space

PACKAGES = {"gp": "torch", "cmaes": "cmaes"}
STARTUP = 8  # trials that TPE wants before it models


class OptunaSampler:
    """An Optuna study by ask and tell, minimising the logarithm of the time."""

    def __init__(self, name: str, space: Space, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna
        self._space = space
        self._distributions: dict[str, optuna.distributions.BaseDistribution] = {
            p.name: optuna.distributions.IntDistribution(0, len(p.values) - 1)
            for p in space.parameters
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._study = optuna.create_study(sampler=self._make(name, seed))

    def _make(self, name: str, seed: int) -> Any:
        samplers = self._optuna.samplers
        if name == "tpe":
            return samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=STARTUP)
        if name == "random":
            return samplers.RandomSampler(seed=seed)
        needs = PACKAGES[name]
        if importlib.util.find_spec(needs) is None:
            raise BudgetError(
                f"sampler={name!r} needs the package {needs}; install tilewise[{name}]", "sampler"
            )
        if name == "gp":
            return samplers.GPSampler(seed=seed)
        return samplers.CmaEsSampler(seed=seed)

    def propose(self, _is_free: IsFree | None = None) -> Point:
        """Ask the study; the asked trial is closed, since `learn` adds what was really run."""
        trial = self._study.ask(self._distributions)
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        return {p.name: p.values[int(trial.params[p.name])] for p in self._space.parameters}

    def learn(self, trial: TrialRecord) -> None:
        """Add a trial that was timed; failures teach nothing that dedupe does not."""
        if trial.measurement is None or not self._space.holds(trial.params):
            return
        indices = {p.name: p.values.index(trial.params[p.name]) for p in self._space.parameters}
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params=indices,
                distributions=self._distributions,
                value=log(trial.measurement.time_us),
            )
        )
