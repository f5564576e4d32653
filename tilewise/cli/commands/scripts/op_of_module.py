"""`tilewise script MODULE.mlir --place P`: the script of one op, proven on the op as it stands."""

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kernels.errors import KernelsError, UnsupportedError
from kernels.problem import Problem, parse_problem
from kernels.problem.iteration import iteration_space
from kernels.schedule import Schedule
from tilewise.backends.base import Backend
from tilewise.cli.files import read_module_bytes
from tilewise.cli.options import backend_of
from tilewise.errors import BadInputError, MissingError, TilewiseError
from tilewise.iree.models import ENDINGS
from tilewise.requirements import require

if TYPE_CHECKING:  # they load MLIR's child processes
    from kernels.mlir.frontend.lone import LoneOp
    from kernels.mlir.proof.proof import Proof

MOST_PROOFS = 8
"""Schedules that are tried, fastest first, before a script is said not to prove."""


def is_of_op(options: argparse.Namespace) -> bool:
    """Whether a script of an op of a module is asked for.

    Raises:
        BadInputError: a place without a module, or another flavor's.
    """
    is_module = options.flavor == "cpu" and any(one.endswith(ENDINGS) for one in options.problems)
    if options.place is not None and not is_module:
        raise BadInputError("--place is of an op of MODULE.mlir, for --flavor cpu")
    return is_module


def make_of_op(options: argparse.Namespace) -> str:
    """The proven script of the op, with its function if asked; or what `--json` prints of it.

    Raises:
        BadInputError: no such module or op, or several.
        MissingError: no schedule of its problem is stored, or no script can be of the op.
        TilewiseError: no script proved, or the compiler is not installed.
    """
    if len(options.problems) > 1:
        raise BadInputError("a script is of one op; give one module, with --place")
    module = read_module_bytes(options.problems[0])
    require("iree.compiler", "a script of an op here", "kernels")
    from kernels.mlir.frontend.read import read_op
    from kernels.mlir.normalised.normal_form import schedulable
    from kernels.mlir.normalised.prove import with_op

    lone = read_op(module, options.place)
    try:
        problem = schedulable(lone)
    except UnsupportedError as error:
        raise MissingError(str(error)) from error
    with backend_of(options) as backend:
        schedule, proof = _proven(backend, lone, problem, options.target)
    text = with_op(lone, proof.script) if options.with_payload else proof.script
    if not options.json:
        return text
    told = _described(lone, problem, schedule, proof)
    return json.dumps({**told, "script": text}, indent=2) + "\n"


def _proven(
    backend: Backend, lone: "LoneOp", problem: Problem, target: str
) -> tuple[Schedule, "Proof"]:
    """The first proof that holds, of the stored schedules with the fastest first."""
    from kernels.mlir.normalised.prove import prove_lone

    why = ""
    for count, schedule in enumerate(_schedules(backend, lone, problem, target)):
        if count == MOST_PROOFS:
            break
        try:
            proof = prove_lone(lone, schedule)
        except KernelsError as error:
            why = str(error)
            continue
        if proof.ok:
            return schedule, proof
        why = f"{proof.failure}: {proof.message}"
    raise TilewiseError(f"{lone.found.where}: no script proved; the last one: {why}")


def _schedules(
    backend: Backend, lone: "LoneOp", problem: Problem, target: str
) -> Iterator[Schedule]:
    """Schedules of the problem that the op is in its module, then of the op's by itself."""
    wished = dict.fromkeys((*_within(lone, problem), problem))
    missing = []
    for one in wished:
        try:
            best = backend.show(one.canonical, target)["best"]
        except MissingError:
            missing.append(one.canonical)
            continue
        yield Schedule.from_json(best["steps"])
        timed = [
            trial
            for trial in backend.trials(one.canonical, target)
            if trial["state"] == "timed" and trial["hash"] != best["hash"]
        ]
        timed.sort(key=lambda trial: -trial["gflops"])
        for trial in timed:
            yield Schedule.from_json(trial["steps"])
    if len(missing) == len(wished):
        raise MissingError(
            f"no schedule of {' or '.join(missing)} is stored; tilewise tune makes one"
        )


def _within(lone: "LoneOp", problem: Problem) -> Iterator[Problem]:
    """The problem that the op is with what is around it, where a schedule speaks of the same loops.

    Weights that are constants, a bias, relu and padding are no matter of loops.
    """
    around = parse_problem(lone.within.problem)
    spaces = iteration_space(around), iteration_space(problem)
    if around.op == problem.op and spaces[0].extents == spaces[1].extents:
        yield around


def _described(
    lone: "LoneOp", problem: Problem, schedule: Schedule, proof: "Proof"
) -> dict[str, Any]:
    return {
        "problem": problem.canonical,
        "place": lone.found.where,
        "flavor": "cpu",
        "schedule": {"hash": schedule.hash, "steps": schedule.to_json()},
        "proof": {
            "max_error": proof.max_error,
            "tolerance": proof.tolerance,
            "gflops": proof.gflops,
            "mlir": proof.mlir,
        },
    }
