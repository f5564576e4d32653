"""`tilewise model --as packs`: one script that packs a whole module, proven on it."""

import argparse
import re
import sys
from typing import TYPE_CHECKING

from tilewise.cli.command import arg, check_range, refuse, time_limit
from tilewise.cli.files import json_text, read_module_bytes
from tilewise.errors import BadInputError, MissingError, TilewiseError
from tilewise.kernels.quoting import quoted
from tilewise.kernels.target import resolve
from tilewise.requirements import require

if TYPE_CHECKING:  # they load MLIR's child processes
    from tilewise.kernels.mlir.frontend.read import ReadLimits
    from tilewise.kernels.mlir.network.packing import Blocks, OpBlocks
    from tilewise.kernels.mlir.network.plan import PackPlan
    from tilewise.kernels.mlir.proof.proof import ScriptProof

OPTIONS = ("channels", "rows", "blocks", "seconds")
MOST_OF_A_BLOCK = 4096
SECONDS, MEMORY_BYTES = 600.0, 16 << 30
_BLOCKS = re.compile(r"([1-9]\d{0,5})=(\d{1,5}),(\d{1,5}),(\d{1,5})")


BLOCKS = (
    arg("--channels", "longest block of channels; default: a vector of f32", type=int, metavar="N"),
    arg("--rows", "longest block of a matmul's rows; default: none", type=int, metavar="N"),
    arg("--blocks", "blocks of op I: rows, columns, depth; 0: none", action="append",
        metavar="I=R,C,D"),
    time_limit("time limit of the proof; default: 600", None),
)  # fmt: skip
"""Options that say how long the blocks are, and what is proven."""


def is_of_packs(options: argparse.Namespace) -> bool:
    """Return whether a script of a whole module is requested.

    Raises BadInputError for options that do not go together.
    """
    if options.packs:
        if options.flavor != "cpu" or options.place is not None:
            raise BadInputError("--packs is of a whole module, without --flavor and --place")
        if len(options.problems) > 1:
            raise BadInputError("packs are of one module; give one")
        return True
    refuse(options, OPTIONS, "{} is for --packs")
    return False


def make_packs(options: argparse.Namespace, path: str) -> str:
    """Return the proven script, with its payload if requested, or its JSON.

    Raises BadInputError for an unusable module or blocks, MissingError if no op can be packed,
    TilewiseError if the proof fails.
    """
    if options.accuracy == "strict":
        raise BadInputError("--accuracy strict: packed scripts use direct loops only; leave it out")
    if options.db or options.server:
        raise BadInputError("packs are made here and not stored; leave out --db and --server")
    module = read_module_bytes(path)
    require("iree.compiler", "a script of a module here", "kernels")
    from tilewise.kernels.mlir.frontend.read import ReadLimits
    from tilewise.kernels.mlir.transform.module import with_function

    limits = ReadLimits(SECONDS if options.seconds is None else options.seconds, MEMORY_BYTES)
    plan, proof = _proven(options, path, module, limits)
    text = with_function(plan.payload, proof.script) if options.with_payload else proof.script
    if not options.json:
        sys.stderr.write(_summary(plan, proof))
        return text
    found = {"max_error": proof.max_error, "tolerance": proof.tolerance, "mlir": proof.mlir}
    document = {**plan.to_json(), "proof": found, "script": text}
    return json_text(document)


def _proven(
    options: argparse.Namespace, path: str, module: bytes, limits: "ReadLimits"
) -> "tuple[PackPlan, ScriptProof]":
    """Return the plan of the module and the proof of its script."""
    from tilewise.kernels.mlir.network.pack import pack_module, prove_packs

    plan = pack_module(module, _blocks(options), limits)
    if not plan.packed:
        why = f"; {plan.left[0].where} {plan.left[0].reason}" if plan.left else ""
        raise MissingError(f"{quoted(path)} has no op that can be packed{why}")
    proof = prove_packs(plan, limits=limits)
    if not proof.ok:
        raise TilewiseError(
            f"the script did not prove: {proof.failure}: {_error_line(proof.message)}"
        )
    return plan, proof


def _error_line(message: str) -> str:
    """Return the line of a message with the error, or its first."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), lines[0] if lines else "")


def _blocks(options: argparse.Namespace) -> "Blocks":
    from tilewise.kernels.mlir.network.packing import Blocks

    lanes = resolve(options.target).lanes("f32")
    of_ops = dict(given := list(map(_of_op, options.blocks or ())))
    if len(of_ops) < len(given):
        raise BadInputError("--blocks: several are of one op; give each op once")
    return Blocks(
        channels=_size("channels", options.channels, lanes),
        rows=_size("rows", options.rows, 0),
        of_ops=of_ops,
    )


def _size(name: str, given: int | None, usual: int) -> int:
    if given is None:
        return usual
    check_range(name, given, 0, MOST_OF_A_BLOCK)
    return given


def _of_op(text: str) -> "tuple[int, OpBlocks]":
    from tilewise.kernels.mlir.network.packing import OpBlocks

    found = _BLOCKS.fullmatch(text)
    if found is None:
        raise BadInputError(f"blocks={quoted(text)}: give NUMBER=ROWS,COLUMNS,DEPTH, as 3=0,16,16")
    number, *sizes = map(int, found.groups())
    return number, OpBlocks(*sizes)


def _summary(plan: "PackPlan", proof: "ScriptProof") -> str:
    """Describe the packs and the proof."""
    from tilewise.kernels.mlir.network.plan import header_lines

    lines = [
        f"packed:   {len(plan.packed)} ops, applied in {plan.apply_s:.2f} s",
        *header_lines(plan.counts, plan.left),
        f"error:    {proof.max_error:.3g}, allowed {proof.tolerance:.3g}",
    ]
    return "".join(f"{line}\n" for line in lines)
