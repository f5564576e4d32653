"""A library of kernels for IREE, of schedules that are stored here."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewise.backends.base import Backend
from tilewise.errors import MissingError, TilewiseError
from tilewise.iree.models import Model, Replaced
from tilewise.kernels.errors import KernelsError, ProofError
from tilewise.kernels.problem import Problem
from tilewise.search.errors import RunnerError

if TYPE_CHECKING:  # it loads the compiler of kernels
    from tilewise.search.libraries.library import ProvenLibrary, Row, Wanted

Json = dict[str, Any]


def make_library(
    backend: Backend, problems: Sequence[Problem], target: str, models: Sequence[Model] = ()
) -> "ProvenLibrary":
    """Prove each problem's kernel inside IREE; the library of those that make it faster.

    Args:
        backend: where the schedules are.
        problems: those of models are added to them.
        target: this machine.
        models: whose ops are found in whatever form they have.

    Raises:
        MissingError: a problem has no schedule, or no kernel is served.
        TilewiseError: IREE is not installed, or a kernel cannot be made here.
    """
    of_models = [problem for model in models for problem in model.problems]
    unique = list({problem.key: problem for problem in (*problems, *of_models)}.values())
    canonical, wanted = _wanted(backend, unique, target)
    return library_of(wanted, canonical, models)


def library_of(
    wanted: Sequence["Wanted"], canonical: str, models: Sequence[Model]
) -> "ProvenLibrary":
    """The library of schedules that are known; the errors of `make_library`.

    Args:
        wanted: problems and schedules.
        canonical: the target, this machine.
        models: as of `make_library`.
    """
    from tilewise.kernels.dispatches.extraction.extract import patterns_of
    from tilewise.search.libraries.library import proven_library

    cuts = patterns_of([cut for model in models for cut in model.cuts])
    try:
        return proven_library(wanted, canonical, _say, cuts)
    except ProofError as error:
        raise MissingError(f"no kernel is served: {error}") from error
    except (KernelsError, RunnerError) as error:
        raise TilewiseError(str(error)) from error


def described(made: "ProvenLibrary", target: str, replaced: Sequence[Replaced]) -> str:
    """A library as `--json` prints it, with what it does to models."""
    rows = [row.to_json() for row in made.rows]
    found: Json = {
        "flavor": "iree",
        "target": target,
        "problems": [row for row in rows if row["served"]],
        "left_out": [row for row in rows if not row["served"]],
        "passes": [],  # of version 0.1: passes over rows between the problems
        "models": [one.to_json() for one in replaced],
        "script": made.text,
    }
    return json.dumps(found, indent=2) + "\n"


def _wanted(
    backend: Backend, problems: Sequence[Problem], target: str
) -> tuple[str, list["Wanted"]]:
    """The canonical target, and the stored schedule of each problem."""
    found, missing = [], []
    for problem in problems:
        try:
            found.append((problem, backend.show(problem.canonical, target)))
        except MissingError:
            missing.append(problem)
    if missing:
        for problem in missing:
            sys.stderr.write(f"tilewise: {problem}: no schedule is stored\n")
        raise MissingError(
            f"{len(missing)} of {len(problems)} problems are not stored; tilewise tune makes them: "
            f"{missing[0]}"
        )
    from tilewise.search.libraries.library import Wanted

    wanted = [Wanted(problem, stored["best"]["steps"]) for problem, stored in found]
    return found[0][1]["target"], wanted


def _say(row: "Row") -> None:
    """What came of a problem, for somebody who watches; what is left out, for everybody."""
    if row.reason:
        sys.stderr.write(f"tilewise: left out: {row.problem}: {row.reason}\n")
    elif sys.stderr.isatty():
        sys.stderr.write(f"tilewise: {row.problem}: {row.gain.ratio or 1:.2f}x IREE alone\n")
