"""Requests for whole models: the one declaration of what they are tuned and planned with."""

from dataclasses import dataclass
from typing import Literal, TypedDict

from tilewise.kernels.problem import Accuracy
from tilewise.search.records import CacheMode, Request, TuneRequest, option

Layouts = Literal["model", "all"]
"""Which layouts are tried: those that the model has, or all that kernels can do."""


@dataclass(frozen=True)
class ModelRequest(Request):
    """How the problems of a model are tuned."""

    target: str = option("host", "processor and threads", "T")
    trials: int = option(
        TuneRequest.trials, "schedules tried for each problem without a stored one", "N"
    )
    seed: int = option(TuneRequest.seed, "seed of sampler and inputs", "I")
    cache: CacheMode = option(
        TuneRequest.cache, "cold: schedules timed with weights in memory, not in caches"
    )
    accuracy: Accuracy = option(
        "standard", "rounding of a model's problems; strict: no fast algorithms"
    )

    @property
    def search(self) -> TuneRequest:
        """Return the request of each problem; raise BudgetError for impossible trials or seed."""
        return TuneRequest.of(self)


@dataclass(frozen=True)
class PlanChoices(Request):
    """What plans have besides; `name`, which lists show, is not an option of the command line."""

    layouts: Layouts = option(
        "all", "layouts to choose from: the model's, or all that kernels support"
    )
    name: str | None = option(None, "")


@dataclass(frozen=True)
class PlanRequest(ModelRequest, PlanChoices):
    """How a model is tuned and planned."""


class ModelOptions(TypedDict, total=False):
    """The fields of `ModelRequest` as keyword arguments; missing ones take its defaults."""

    target: str
    trials: int
    seed: int
    cache: str
    accuracy: Accuracy


class PlanOptions(ModelOptions, total=False):
    """The fields of `PlanRequest` as keyword arguments; missing ones take its defaults."""

    layouts: str
    name: str
