"""`tilewise script --flavor iree-spec`: tuned sizes for IREE's own code."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewise.backends.choose import Backend
from tilewise.cli.command import backend_of
from tilewise.cli.commands.scripts.iree_library import wished
from tilewise.errors import BadInputError, MissingError
from tilewise.kernels.errors import CompilerAbsentError
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.quoting import quoted

if TYPE_CHECKING:
    from tilewise.kernels.mlir.tuning_spec.text import LeftOut, SpecEntry

FLAVOR = "iree-spec"
KIND = "iree:"


def make_spec(options: argparse.Namespace) -> dict[str, Any]:
    """Return `problems`, `script` and `left_out` of the requested problems.

    Raises BadInputError for options that do not apply, UnsupportedError for a problem that no spec
    covers, MissingError for one not searched through IREE, or if none gains.
    """
    from tilewise.kernels.mlir.tuning_spec.form import form_of

    if options.with_payload:
        raise BadInputError("--with-payload is not for --flavor iree-spec; IREE reads the spec")
    problems = wished(options.problems, parse_problem)
    for problem in problems:
        form_of(problem)
    with backend_of(options) as backend:
        scripts, left_out = _proven(backend, problems, target_of(options.target))
    if not scripts:
        raise MissingError("; ".join(f"{one.problem}: {one.reason}" for one in left_out))
    text, others = _joined(scripts)
    left_out += others
    for one in left_out:
        sys.stderr.write(f"tilewise: {one.problem} is left out: {one.reason}\n")
    gone = {one.problem for one in left_out}
    kept = [problem for problem in scripts if problem.canonical not in gone]
    _check(text, kept)
    return {
        "problems": [problem.canonical for problem in kept],
        "script": text,
        "left_out": [vars(one) for one in left_out],
    }


def target_of(text: str) -> str:
    """Return the target of IREE's code on a processor, such as `iree:host` for `host`."""
    if text.startswith(KIND):
        return text
    if text == "host":
        return f"{KIND}host"
    if text.startswith("cpu:"):
        return KIND + text.removeprefix("cpu:")
    raise BadInputError(f"target {quoted(text)} is none of host, cpu:NAME, iree:NAME")


def _proven(
    backend: Backend, problems: Sequence[Problem], target: str
) -> "tuple[dict[Problem, str], list[LeftOut]]":
    """Return the proven spec of each problem, and those whose proof failed."""
    from tilewise.kernels.mlir.tuning_spec.text import LeftOut

    scripts, left_out = dict[Problem, str](), []
    for problem in problems:
        try:
            found = backend.show(problem.canonical, target)
        except MissingError as error:
            raise MissingError(
                f"no search of {problem} through IREE is stored; "
                f"tilewise tune {problem} --target {target} makes one"
            ) from error
        proof = found["proof"]
        if proof is None or proof["failure"] is not None:
            reason = "it was not proven" if proof is None else proof["message"].partition("\n")[0]
            left_out.append(LeftOut(problem.canonical, reason))
        else:
            scripts[problem] = backend.script(problem.canonical, target, FLAVOR, False)
    return scripts, left_out


def _joined(scripts: dict[Problem, str]) -> "tuple[str, list[LeftOut]]":
    """Join all specs into one file; a single one is returned as it was proven."""
    from tilewise.kernels.mlir.tuning_spec.text import entry_of, joined

    if len(scripts) == 1:
        return next(iter(scripts.values())), []
    entries: list[SpecEntry] = [entry_of(text) for text in scripts.values()]
    lines = (line for text in scripts.values() for line in text.splitlines())
    ends = {line for line in lines if line.startswith(("// target:", "// mlir:"))}
    return joined(entries, [line.removeprefix("// ") for line in sorted(ends, reverse=True)])


def _check(text: str, problems: Sequence[Problem]) -> None:
    """Check that each entry of a joined file matches its own op, if IREE is installed."""
    from tilewise.kernels.mlir.tuning_spec.compiled import check_matched

    if len(problems) < 2:
        return
    try:
        check_matched(text, problems)
    except CompilerAbsentError:
        sys.stderr.write(
            "tilewise: IREE's compiler is not installed, so each entry was seen to match alone, "
            "not in this file\n"
        )
