"""A library of kernels for IREE, of schedules that are stored here."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernels.errors import KernelsError, ProofError
from kernels.problem import Problem
from search.errors import RunnerError
from tilewise.backends.base import Backend
from tilewise.errors import MissingError, TilewiseError
from tilewise.requirements import require

if TYPE_CHECKING:  # it loads the compiler of kernels
    from search.libraries.library import ProvenLibrary, Row, Wanted

Json = dict[str, Any]


def make_library(backend: Backend, problems: Sequence[Problem], target: str) -> "ProvenLibrary":
    """Prove each problem's kernel inside IREE; the library of those that make it faster.

    Raises:
        MissingError: a problem has no schedule, or no kernel is served.
        TilewiseError: IREE is not installed, or a kernel cannot be made here.
    """
    require("iree.compiler", "a library for IREE here", "kernels")
    require("iree.runtime", "the proof of a library for IREE", "peers")
    from search.libraries.library import proven_library

    canonical, wanted = _wanted(backend, problems, target)
    try:
        return proven_library(wanted, canonical, _say)
    except ProofError as error:
        raise MissingError(f"no kernel is served: {error}") from error
    except (KernelsError, RunnerError) as error:
        raise TilewiseError(str(error)) from error


def described(made: "ProvenLibrary", target: str) -> str:
    """A library as `--json` prints it."""
    rows = [row.to_json() for row in made.rows]
    found: Json = {
        "flavor": "iree",
        "target": target,
        "problems": [row for row in rows if row["served"]],
        "left_out": [row for row in rows if not row["served"]],
        "script": made.text,
    }
    return json.dumps(found, indent=2) + "\n"


def _wanted(
    backend: Backend, problems: Sequence[Problem], target: str
) -> tuple[str, list["Wanted"]]:
    """The canonical target, and the stored schedule of each problem."""
    from search.libraries.library import Wanted

    canonical, wanted, missing = "", [], []
    for problem in problems:
        try:
            found = backend.show(problem.canonical, target)
        except MissingError:
            missing.append(problem)
            continue
        canonical = found["target"]
        wanted.append(Wanted(problem, found["best"]["steps"]))
    if missing:
        for problem in missing:
            sys.stderr.write(f"tilewise: {problem}: no schedule is stored\n")
        raise MissingError(
            f"{len(missing)} of {len(problems)} problems are not stored; tilewise tune makes them: "
            f"{missing[0]}"
        )
    return canonical, wanted


def _say(row: "Row") -> None:
    """What came of a problem, for somebody who watches; what is left out, for everybody."""
    if row.reason:
        sys.stderr.write(f"tilewise: left out: {row.problem}: {row.reason}\n")
    elif sys.stderr.isatty():
        sys.stderr.write(f"tilewise: {row.problem}: {row.gain.ratio or 1:.2f}x IREE alone\n")
