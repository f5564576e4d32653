"""Samplers by name: ours, Optuna's, and anybody's as `module:Class`."""

import importlib
import importlib.util
import inspect
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import optuna
from optuna.samplers import BaseSampler

from tilewise.search.errors import BudgetError
from tilewise.search.model.analytical import Model
from tilewise.search.samplers.base import FreeSampler
from tilewise.search.samplers.distinct import Distinct
from tilewise.search.samplers.grid import GridSampler
from tilewise.search.samplers.local import LocalSampler
from tilewise.search.samplers.surrogate import SurrogateSampler
from tilewise.search.space.space import Space

PACKAGES = {"gp": ("torch", "gp"), "cmaes": ("cmaes", "search")}
"""What samplers need, and the extra that installs it."""
STARTUP = 8  # trials that TPE wants before it models


def make_sampler(
    name: str,
    model: Model,
    seed: int,
    trials: int,
    refused: Iterable[str] = (),
    *,
    is_shared: bool = False,
) -> BaseSampler:
    """The sampler called `name`, over the space of `model`; what it proposes is legal and new.

    Args:
        name: one of `tilewise.search.records.SAMPLERS`, or `module:Class`, a sampler of Optuna's
            protocol. Of `space`, `model`, `seed` and `trials` its constructor is given what it
            takes.
        model: of the space that is searched.
        seed: of its random numbers.
        trials: the budget, which decides how long it explores.
        refused: hashes of schedules that are not to be tried.
        is_shared: whether several machines try points at once. TPE then takes those that are under
            way for bad ones; ours does what comes to that anyway, and the others look at none.

    Raises:
        BudgetError: a package is absent, or there is no such class, or it is no sampler.
    """
    space = model.space
    if name == "surrogate":
        return SurrogateSampler(space, seed, refused, trials=trials, model=model)
    if name == "local":
        return LocalSampler(space, seed, refused)
    if name == "grid":
        return GridSampler(space, seed, refused)
    if name == "tpe":
        return over_space(_tpe(seed, is_shared=is_shared), space, seed, refused)
    made = _BUILT_IN[name](seed) if name in _BUILT_IN else _loaded(name, model, seed, trials)
    return over_space(made, space, seed, refused)


def over_space(
    sampler: BaseSampler, space: Space, seed: int = 0, refused: Iterable[str] = ()
) -> BaseSampler:
    """A sampler that proposes legal schedules, each once: `sampler` itself where it does."""
    return sampler if isinstance(sampler, FreeSampler) else Distinct(sampler, space, seed, refused)


def _tpe(seed: int, *, is_shared: bool) -> BaseSampler:
    return _quietly(
        lambda: optuna.samplers.TPESampler(
            seed=seed, multivariate=True, n_startup_trials=STARTUP, constant_liar=is_shared
        )
    )


def _gp(seed: int) -> BaseSampler:
    _require("gp")
    return _quietly(lambda: optuna.samplers.GPSampler(seed=seed))


def _cmaes(seed: int) -> BaseSampler:
    _require("cmaes")
    return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


def _random(seed: int) -> BaseSampler:
    return optuna.samplers.RandomSampler(seed=seed)


_BUILT_IN: dict[str, Callable[[int], BaseSampler]] = {
    "gp": _gp,
    "cmaes": _cmaes,
    "random": _random,
}


def _require(name: str) -> None:
    package, extra = PACKAGES[name]
    if importlib.util.find_spec(package) is None:
        raise BudgetError(
            f"sampler={name!r} needs the package {package}; install tilewise[{extra}]", "sampler"
        )


def _quietly(make: Callable[[], BaseSampler]) -> BaseSampler:
    """What `make` makes, without Optuna's remarks on what is experimental in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return make()


def _loaded(name: str, model: Model, seed: int, trials: int) -> BaseSampler:
    """The sampler that `module:Class` names, made with what its constructor takes."""
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
        raise BudgetError(f"sampler={name!r} is no class of optuna.samplers.BaseSampler", "sampler")
    offered = {"space": model.space, "model": model, "seed": seed, "trials": trials}
    try:
        wanted = inspect.signature(found).parameters
        return _quietly(lambda: found(**{k: v for k, v in offered.items() if k in wanted}))
    except Exception as error:
        raise BudgetError(
            f"sampler={name!r} cannot be made: {type(error).__name__}: {error}", "sampler"
        ) from error
