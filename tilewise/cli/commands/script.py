"""`tilewise script`: the proven transform script, stored, fetched, or made here."""

import argparse

from tilewise.backends.choose import named_server
from tilewise.cli.aliases import note_alias
from tilewise.cli.command import (
    DB,
    DIM,
    OUTPUT,
    SERVER,
    TARGET,
    WITH_PAYLOAD,
    Command,
    arg,
    backend_of,
    flag,
    in_group,
    of_request,
    refuse,
)
from tilewise.cli.commands.scripts.iree_library import is_made_here, make_iree
from tilewise.cli.commands.scripts.op_of_module import is_of_op, make_of_op
from tilewise.cli.commands.scripts.packs import BLOCKS, is_of_packs, make_packs
from tilewise.cli.commands.scripts.tuning_spec import FLAVOR, make_spec
from tilewise.cli.files import json_text, require_folder, write_text
from tilewise.cli.render import named
from tilewise.errors import BadInputError, MissingError
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.quoting import quoted
from tilewise.kernels.target import target_kind
from tilewise.model.libraries import ENDINGS
from tilewise.requirements import BASE, require
from tilewise.search.networks.request import ModelRequest

FLAVORS = ("cpu", "air", "iree", "iree-spec")
OWN_CODE = ("cpu", "iree")
MOST_BYTES = 2**40
MEMORIES = ("l1_bytes", "l2_bytes")
AIR_OPTIONS = (*MEMORIES, "result")


def script(options: argparse.Namespace) -> None:
    """Print the proven transform script."""
    require_folder(options.output)
    if options.plan and options.flavor != "iree":
        raise BadInputError("--plan is for --flavor iree; tilewise plan makes a plan")
    if target_kind(options.target) == "iree" and options.flavor in OWN_CODE:
        raise BadInputError(
            f"target {quoted(options.target)}: IREE's own code has a tuning spec and no script of "
            f"flavor {options.flavor}; give --flavor iree-spec, or a target cpu:NAME"
        )
    _check_accuracy(options)
    is_of_model = any(one.endswith(ENDINGS) for one in options.problems)
    if options.dim and not (options.flavor == "iree" and is_of_model):
        raise BadInputError("--dim is for --flavor iree and a model; see tilewise model --help")
    makes_air = options.flavor == "air" and not named_server(options.server, options.db)
    if not makes_air:
        other = f"is for --flavor air, not {options.flavor}"
        why = "works only without --server" if options.flavor == "air" else other
        refuse(options, AIR_OPTIONS, f"{{}} {why}")
    if is_of_packs(options):
        (path,) = options.problems
        write_text(options.output, make_packs(options, path))
        note_alias(options, path, "packs", options.output)
        return
    if is_of_op(options):
        write_text(options.output, make_of_op(options))
        return
    if is_made_here(options):
        write_text(options.output, make_iree(options))
        if len(options.problems) == 1 and options.problems[0].endswith(ENDINGS):
            note_alias(options, options.problems[0], "iree", options.output)
        return
    if options.flavor == FLAVOR:
        made = make_spec(options)
        text = json_text({"flavor": FLAVOR, **made})
        write_text(options.output, text if options.json else made["script"])
        return
    problem = the_problem(options)
    if makes_air:
        text = make_air(options, problem)
    else:
        with backend_of(options) as backend:
            text = backend.script(problem, options.target, options.flavor, options.with_payload)
    if options.json:
        text = named(problem, flavor=options.flavor, script=text)
    write_text(options.output, text)


def _check_accuracy(options: argparse.Namespace) -> None:
    """Raise BadInputError for an accuracy without a model."""
    if options.accuracy and not any(one.endswith(ENDINGS) for one in options.problems):
        raise BadInputError(
            f"--accuracy {options.accuracy} is of MODEL.mlir; a problem says it itself, as "
            "matmul:m=64,n=64,k=64,dtype=f32,accuracy=strict"
        )


def the_problem(options: argparse.Namespace) -> str:
    """Return the only problem; raise BadInputError for several."""
    if len(options.problems) > 1:
        raise BadInputError(
            f"{len(options.problems)} problems: give one; only --flavor iree-spec, and "
            "--flavor iree without --server, take several"
        )
    problem: str = options.problems[0]
    return problem


def make_air(options: argparse.Namespace, given: str) -> str:
    """Return the proven air script, with its payload if requested.

    Raises BadInputError for options that do not apply, MissingError if no air script covers the
    problem, ProofError if the proof fails.
    """
    problem = parse_problem(given)
    if options.db:
        raise BadInputError("an air script needs no database; leave out --db")
    if options.target != "host":
        raise BadInputError(
            f"target={options.target!r}: an air script is for declared memories, not a processor; "
            "leave out --target"
        )
    declared = {name: getattr(options, name) for name in MEMORIES}
    for name, value in declared.items():
        if value is not None and not 1 <= value <= MOST_BYTES:
            raise BadInputError(f"{name}={quoted(value)} is out of range; give 1 to {MOST_BYTES}")
    known = {name: value for name, value in declared.items() if value is not None}
    # The child needs it; report it before it fails.
    require("iree.compiler", "an air script here", "kernels")
    from tilewise.kernels.mlir.air import Memories, script_for

    try:
        made = script_for(problem, Memories(**known), options.result or "l3")
    except UnsupportedError as error:
        raise MissingError(str(error)) from error
    return made.module if options.with_payload else made.text


WHAT = (
    "such as matmul:m=64,n=64,k=64,dtype=f32; for flavors iree and iree-spec also several, "
    "suites and lists; for iree also MODEL.mlir, for cpu one op of it"
)
PLACE = "op of MODEL.mlir, as printed by tilewise import, or its number"
PLAN = "for flavor iree: use the kernels of this plan.json of MODEL.mlir"
PACKS = "pack every op of MODEL.mlir and cancel adjacent pack/unpack pairs"

COMMANDS = (
    Command(
        "script",
        script,
        (
            arg("problems", WHAT, metavar="PROBLEM", nargs="+"),
            arg("--place", PLACE, metavar="P"),
            TARGET,
            *of_request(ModelRequest, "accuracy", unset=True),
            DB,
            SERVER,
            arg("--flavor", "consumer of the script; default: cpu", choices=FLAVORS, default="cpu"),
            WITH_PAYLOAD,
            OUTPUT,
            arg("--plan", PLAN, metavar="FILE"),
            DIM,
            *in_group("a whole module", flag("--packs", PACKS), *BLOCKS),
            *in_group(
                "flavor air",
                arg("--l1-bytes", "bytes of a core; default: 65536", type=int, metavar="N"),
                arg("--l2-bytes", "bytes of a block; default: 524288", type=int, metavar="N"),
                arg("--result", "memory that C is unpacked to; default: l3", choices=("l3", "l2")),
            ),
        ),
        at_service=BASE,
        examples=(
            "script matmul:m=1024,n=512,k=2048,dtype=f32 -o matmul.mlir",
            "script matmul:m=1024,n=512,k=2048,dtype=f32 --with-payload",
            "script model.mlir --place 1",
            "script model.mlir --flavor iree -o kernels.mlir",
        ),
    ),
)
