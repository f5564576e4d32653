"""Searches for what a list of problems lacks, one after the other."""

import sys
from collections.abc import Sequence
from functools import partial

from kernels.errors import KernelsError
from kernels.problem import Problem
from search.records import TuneRequest
from tilewise.backends.base import Backend
from tilewise.cli.progress import progress
from tilewise.errors import BadInputError, TilewiseError


def tune_missing(
    backend: Backend, missing: Sequence[Problem], target: str, request: TuneRequest
) -> None:
    """Search for what is not stored; a search that fails costs no other problem."""
    for problem in missing:
        backend.submit(problem.canonical, target, request)
    for number, problem in enumerate(missing, 1):
        sys.stderr.write(f"tilewise: {number}/{len(missing)} tunes {problem}\n")
        try:
            work = (problem.canonical, target)
            with progress(request, partial(backend.peak, *work)) as watcher:
                backend.tune(*work, request, watcher.trial, watcher.phase)
        except BadInputError:
            raise
        except (KernelsError, TilewiseError) as error:
            sys.stderr.write(f"tilewise: {problem}: {error}\n")
