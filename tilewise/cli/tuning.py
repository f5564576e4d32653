"""Tune the problems of a list that have no stored schedule."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from tilewise import errors
from tilewise.backends.base import ignore_trial
from tilewise.backends.choose import Backend
from tilewise.cli.command import flag, of_request, only_if
from tilewise.cli.progress import progress
from tilewise.kernels.errors import KernelsError, TargetError
from tilewise.kernels.problem import Problem, ProblemRange, parse_any
from tilewise.schema.base import Json
from tilewise.search.errors import SearchError
from tilewise.search.networks.request import ModelRequest
from tilewise.search.progress import SearchPhase
from tilewise.search.records import CacheMode, TuneRequest

TUNE_MISSING = (
    flag("--tune-missing", "tune missing problems"),
    *of_request(TuneRequest, "trials", unset=True),
)
AHEAD = 64  # searches submitted ahead to a service, unless it has a lower limit


def check_trials(options: argparse.Namespace) -> None:
    """Fill in the trials of `--tune-missing`; refuse them without it."""
    default = {"trials": TuneRequest.trials}
    only_if(options.tune_missing, options, default, "{} is for --tune-missing")


def missing(
    backend: Backend, problems: Sequence[Problem | ProblemRange], target: str, cache: CacheMode
) -> list[Problem | ProblemRange]:
    """Return the problems without a stored schedule of this toolchain, nor a range with one."""
    lacking = []
    for problem in problems:
        try:
            found = backend.show(problem.canonical, target, cache, match="range")
        except (errors.MissingError, errors.UnreadableError):  # a search replaces a damaged result
            found = {"stale": True}
        if found["stale"]:
            lacking.append(problem)
        elif whole := (found.get("match") or {}).get("range"):
            sys.stderr.write(f"tilewise: {problem}: takes its variant of {whole}\n")
    return lacking


def tune_shown(
    backend: Backend, problem: str, target: str, request: TuneRequest, *, again: bool = False
) -> Json:
    """Tune a problem or a range with its progress on stderr, and return what is stored."""
    tune = partial(backend.tune, problem, target, request, again=again)
    if isinstance(parse_any(problem), ProblemRange):
        return tune(ignore_trial, _say_phase)
    with progress(request, partial(backend.peak, problem, target)) as watcher:
        return tune(watcher.trial, watcher.phase)


def _say_phase(phase: SearchPhase) -> None:
    """Print the phase of a range's tuning."""
    does = "searches" if phase.name == "samples" else "times the finalists at"
    sys.stderr.write(f"tilewise: {does} sample {phase.done + 1} of {phase.total}\n")


def tune_missing(
    backend: Backend, lacking: Sequence[Problem | ProblemRange], target: str, request: TuneRequest
) -> None:
    """Tune the problems and ranges one after another; a failed search affects no other.

    Raises BadInputError, NoAnswerError or TargetError if no problem can be tuned because of it.
    """
    submitted, ahead, refused = 0, AHEAD, list[errors.TilewiseError]()
    for number, problem in enumerate(lacking, 1):
        submitted = max(submitted, number - 1)
        try:  # all workers have work; the searches report what fails
            while submitted < min(number - 1 + ahead, len(lacking)):
                with suppress(errors.BadInputError, errors.MissingError, errors.UnreadableError):
                    backend.submit(lacking[submitted].canonical, target, request)
                submitted += 1
        except errors.TilewiseError:  # each further refusal would take the client's patience
            ahead = submitted - number + 1
        sys.stderr.write(f"tilewise: {number}/{len(lacking)} tunes {problem}\n")
        try:
            tune_shown(backend, problem.canonical, target, request)
            ahead = ahead or AHEAD
        except TargetError:
            raise
        except (KernelsError, SearchError, errors.TilewiseError) as error:
            if isinstance(error, errors.BadInputError | errors.NoAnswerError):
                refused.append(error)
                if len(refused) == len(lacking):
                    raise refused[0] from None
            sys.stderr.write(f"tilewise: {problem}: {error}\n")


def tune_lacking(
    backend: Backend,
    problems: Sequence[Problem | ProblemRange],
    target: str,
    options: argparse.Namespace,
) -> None:
    """Tune the problems of a model that have no stored schedule, as the options say."""
    request = ModelRequest.of(options).search
    lacking = missing(backend, problems, target, options.cache)
    tune_missing(backend, lacking, target, request)
