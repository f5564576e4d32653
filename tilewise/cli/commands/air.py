"""Scripts of flavor `air`: chosen by a model and proven here, or fetched from a service."""

import argparse
from typing import Any

from kernels.errors import ProofError, UnsupportedError
from kernels.problem import parse_problem
from kernels.quoting import quoted
from tilewise.cli.commands.doctor import is_present
from tilewise.errors import BadInputError, MissingError, TilewiseError

MOST_BYTES = 2**40
OPTIONS = ("l1_bytes", "l2_bytes", "result")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is declared about a machine that is not this one; only `air` takes it."""
    group = parser.add_argument_group("flavor air")
    group.add_argument("--l1-bytes", type=int, metavar="N", help="of a core; default: 65536")
    group.add_argument("--l2-bytes", type=int, metavar="N", help="of a block; default: 524288")
    group.add_argument("--result", choices=("l3", "l2"), help="where C is unpacked to; default: l3")


def refuse_options(options: argparse.Namespace) -> None:
    """Raise BadInputError if what describes a machine was given where no script is made here."""
    for name in OPTIONS:
        if getattr(options, name) is not None:
            flag = name.replace("_", "-")
            if options.flavor == "air":
                raise BadInputError(f"--{flag} is for a script that is made here, without --server")
            raise BadInputError(f"--{flag} is for --flavor air, not {options.flavor}")


def make_script(options: argparse.Namespace) -> str:
    """The proven script, with its payload if asked.

    Raises:
        BadInputError: an option that means nothing here.
        MissingError: no air script covers the problem.
        TilewiseError: the script did not prove, or the compiler is not installed.
    """
    problem = parse_problem(options.problem)
    if options.db:
        raise BadInputError("an air script is made here and not stored; leave out --db")
    if options.target != "host":
        raise BadInputError(
            f"target={options.target!r}: an air script is for declared memories, not a processor; "
            "leave out --target"
        )
    given: dict[str, Any] = {}
    for name in OPTIONS[:2]:
        value = getattr(options, name)
        if value is None:
            continue
        if not 1 <= value <= MOST_BYTES:
            raise BadInputError(f"{name}={quoted(value)} is out of range; give 1 to {MOST_BYTES}")
        given[name] = value
    try:
        made = _script_for(problem, given, options.result or "l3")
    except UnsupportedError as error:
        raise MissingError(str(error)) from error
    except ProofError as error:
        raise TilewiseError(str(error)) from error
    text: str = made.module if options.with_payload else made.text
    return text


def _script_for(problem: Any, memories: dict[str, Any], result: str) -> Any:
    if not is_present("iree.compiler"):  # the child needs it; better said before it fails
        raise TilewiseError(
            "an air script needs iree-base-compiler here; install tilewise[kernels]"
        )
    from kernels.mlir.air import Memories, script_for

    return script_for(problem, Memories(**memories), "l2" if result == "l2" else "l3")
