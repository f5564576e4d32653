"""`tilewise script MODULE.mlir --place P`: the script of one op, proven in place."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tilewise.backends.choose import Backend
from tilewise.cli.command import backend_of
from tilewise.cli.files import json_text, read_module_bytes
from tilewise.errors import BadInputError, MissingError
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.model.libraries import ENDINGS
from tilewise.requirements import require


def is_of_op(options: argparse.Namespace) -> bool:
    """Return whether a script of an op of a module is requested.

    Raises BadInputError for a place without a module, or with another flavor.
    """
    is_module = options.flavor == "cpu" and any(one.endswith(ENDINGS) for one in options.problems)
    if options.place is not None and not is_module:
        raise BadInputError("--place is of an op of MODULE.mlir, for --flavor cpu")
    return is_module


def make_of_op(options: argparse.Namespace) -> str:
    """Return the op's proven script, with its function if requested, or its JSON.

    Raises BadInputError for a missing or ambiguous op, MissingError without a stored schedule or a
    possible script, ProofError if none is proven.
    """
    if len(options.problems) > 1:
        raise BadInputError("a script is of one op; give one module, with --place")
    module = read_module_bytes(options.problems[0])
    require("iree.compiler", "a script of an op", "service")
    from tilewise.kernels.mlir.frontend.read import read_op
    from tilewise.kernels.mlir.op_scripts.choice import first_proven, fitting, problems_of
    from tilewise.kernels.mlir.op_scripts.prove import with_op

    lone = read_op(module, options.place).with_accuracy(options.accuracy or "standard")
    try:
        problems = problems_of(lone)
    except UnsupportedError as error:
        raise MissingError(str(error)) from error
    with backend_of(options) as backend:
        fit = partial(fitting, lone)
        found = first_proven(lone, _schedules(backend, problems, options.target, fit))
    script = found.proof.script
    text = with_op(lone, script) if options.with_payload else script
    return json_text(found.to_json(text)) if options.json else text


def _schedules(
    backend: Backend,
    problems: Sequence[Problem],
    target: str,
    fit: Callable[[Problem, Schedule], Schedule],
) -> Iterator[Schedule]:
    """Yield the stored schedules of each problem: that of its own script, then by speed.

    The fastest native kernel need not be the fastest script, which a proof has chosen. `fit`
    returns what the op can use of a schedule; equal ones are yielded once.
    """
    from tilewise.kernels.mlir.op_scripts.choice import readable

    missing, given = [], set()
    for one in problems:
        try:
            found = backend.show(one.canonical, target)
        except MissingError:
            missing.append(one.canonical)
            continue
        best, proof = found["best"], found["proof"]
        timed = [
            trial
            for trial in backend.trials(one.canonical, target)
            if trial["state"] == "timed" and trial["hash"] != best["hash"]
        ]
        timed.sort(key=lambda trial: -trial["gflops"])
        of_script = [proof] if proof and not proof["failure"] and proof.get("steps") else []
        for stored in readable(each["steps"] for each in (*of_script, best, *timed)):
            schedule = fit(one, stored)
            if schedule.hash not in given:
                given.add(schedule.hash)
                yield schedule
    if len(missing) == len(problems):
        raise MissingError(
            f"no schedule of {' or '.join(missing)} is stored; tilewise tune makes one"
        )
