"""What commands and backends exchange; every backend returns the same objects."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewise.errors import MissingError
from tilewise.schema.base import Json
from tilewise.search.records import TrialState

if TYPE_CHECKING:
    from tilewise.kernels.problem import Problem

Known = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class TrialSeen:
    """A finished trial as a watcher sees it.

    Attributes:
        number: 0, 1, ... within the job.
        failure: class of the failure, if any.
        interval: 95% interval of the speed; None if there was one sample.
        best: the fastest so far by present knowledge; None where only trials are reported.
    """

    number: int
    state: TrialState
    failure: str | None = None
    gflops: float | None = None
    interval: tuple[float, float] | None = None
    best: "TrialSeen | None" = None


OnTrialSeen = Callable[[TrialSeen], None]


def ignore_trial(_trial: TrialSeen) -> None:
    """Ignore trials."""


def prediction_of(
    problem: "Problem", target: str, predicted: Json | None, job: int | None = None
) -> Json:
    """Return the object of `show --predict`; raise MissingError if nothing was predicted."""
    if predicted is None:
        how = "tilewise tune finds one on such a machine"
        raise MissingError(
            f"no schedule of {problem} is stored, and none can be predicted for {target}; "
            + (how if job is None else f"job {job} searches for one")
        )
    key, text = problem.key, problem.canonical
    return {"problem": text, "key": key, "target": target, "best": predicted, "proof": None}
