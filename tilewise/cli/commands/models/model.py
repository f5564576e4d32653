"""`tilewise model`: a model tuned, and written as one of three outputs."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilewise.backends.choose import named_server
from tilewise.cli import files
from tilewise.cli.aliases import value_of
from tilewise.cli.command import (
    DB,
    DIM,
    SERVER,
    WITH_PAYLOAD,
    Command,
    arg,
    backend_of,
    defaults_of,
    flag,
    in_group,
    of_request,
    refuse,
)
from tilewise.cli.commands.models.native import PLANNING, make_native, with_sizes
from tilewise.cli.commands.scripts import packs
from tilewise.cli.commands.scripts.iree_library import make_library_of_model
from tilewise.cli.tuning import tune_lacking
from tilewise.errors import BadInputError, TilewiseError, bad_input
from tilewise.kernels.errors import KernelsError, ModuleError
from tilewise.kernels.mlir.frontend.dims import parse_dims
from tilewise.kernels.problem import parse_any
from tilewise.kernels.quoting import quoted
from tilewise.kernels.target import resolve, target_kind
from tilewise.requirements import require
from tilewise.search.networks.request import ModelRequest, PlanChoices

if TYPE_CHECKING:
    from tilewise.kernels.dispatches.extraction.extract import Cut
    from tilewise.kernels.mlir.frontend.graph import ModuleProblem, Skipped

PROBLEMS, REPORT = "problems.txt", "report.json"


OF_NATIVE = (*defaults_of(PlanChoices), "times")
OF_LIBRARY = ("plan",)
OF_RUN = ("entry", "no_ops")
OF_PACKS = ("with_payload", *packs.OPTIONS)
OTHERS = "{{}} is not for --as {}; see tilewise model --help"

OUTPUTS = """\
which output is for whom:
  --as iree    Users of IREE. A library of tuned kernels for iree-compile; IREE keeps every op
               that it runs as fast. Supports all models that IREE compiles.
  --as native  Programs in C, C++, Rust or Python on x86-64. A shared library of the whole model
               with a C header, packed weights and a loader that needs NumPy alone; no runtime.
               Models whose every op is known here.
  --as packs   Authors of MLIR pipelines. One transform script that packs all operands in blocks
               and cancels adjacent pack/unpack pairs; nothing is searched.

  --run        Also run IREE's own code of the model, compare results, and time both
               (not for packs, which are always run and compared). Without --as: --as iree --run.
"""


def model(options: argparse.Namespace) -> None:
    """Tune a model; write it as an IREE library, a native network or a packed script."""
    runs_in_iree = options.way is None or (options.way == "iree" and options.executes)
    options.executes |= runs_in_iree
    if options.way == "packs":
        refuse(options, (*OF_NATIVE, *OF_LIBRARY, *OF_RUN), OTHERS.format("packs"))
        given = {one: value_of(options, one) for one in ("trials", "seed", "cache")}
        given["run"] = options.executes
        refuse(argparse.Namespace(**given), given, OTHERS.format("packs"))
        files.require_folder(options.output)
        with with_sizes(options):
            files.write_text(options.output, packs.make_packs(options, options.file))
        return
    if target_kind(options.target) == "iree":
        raise BadInputError(
            f"target {quoted(options.target)}: a model is compiled with our kernels; give a target "
            "cpu:NAME"
        )
    if options.way == "native":
        refuse(options, (*OF_PACKS, *OF_LIBRARY, *OF_RUN), OTHERS.format("native"))
        options.module, options.output = options.output, None
        with with_sizes(options):
            make_native(options)
        return
    if not runs_in_iree:
        refuse(options, (*OF_NATIVE, *OF_PACKS, *OF_RUN), OTHERS.format("iree"))
        files.write_text(options.output, make_library_of_model(options))
        return
    refuse(options, (*OF_NATIVE, *OF_PACKS, *OF_LIBRARY), OTHERS.format("iree --run"))
    run_in_iree(options)


def run_in_iree(options: argparse.Namespace) -> None:
    """Tune a model's problems, compile it with them and without, compare and time."""
    files.require_file(options.file)
    for child_needs in ("iree.compiler", "iree.runtime"):
        require(child_needs, "model", "service")
    source = Path(options.file)
    from tilewise.kernels.dispatches.extraction.extract import cut_module
    from tilewise.kernels.mlir.frontend.read import as_module
    from tilewise.model.examine import ExaminedModel, examine
    from tilewise.model.reference import COMPILE_S, check_entry
    from tilewise.model.report import report_text

    given = files.read_module_bytes(options.file)
    sizes, dim = parse_dims(options.dim or ())
    with bad_input(source.name, ModuleError):
        module = as_module(given, splits=True, sizes=sizes | (dim.at(0) if dim else {}))
    check_entry(source.name, module, options.entry, may_be_dynamic=dim is not None)
    with bad_input(source.name, KernelsError):
        cuts = [one.with_accuracy(options.accuracy) for one in cut_module(module, COMPILE_S, dim)]
    listed, skipped = _listed(source.name, cuts)
    folder = files.make_folder(options.output or f"{source.stem}.tilewise")
    if module is not given or options.dim:
        if (written := folder / f"{source.stem}.mlirbc").resolve() == source.resolve():
            raise BadInputError(f"{source}: its static form has the same name; change folder by -o")
        source = written
        files.write_bytes(str(source), module)
    lines = "".join(f"{one.problem}  # {one.count}\n" for one in listed)
    files.write_text(str(folder / PROBLEMS), lines)
    if named_server(options.server, options.db):  # whose `host` is another machine
        options.target = resolve(options.target).canonical
    request = ExaminedModel(
        source, listed, skipped, tuple(cuts), folder, options.target, options.cache, options.entry,
        not options.no_ops, options.accuracy, dim,
    )  # fmt: skip
    with backend_of(options) as backend:
        wanted = [parse_any(one.problem) for one in listed]
        tune_lacking(backend, wanted, options.target, options)
        report = examine(request, backend, _note)
    text = files.json_text(report.to_json())
    files.write_text(str(folder / REPORT), text)
    sys.stdout.write(text if options.json else report_text(report))
    _note(f"wrote {folder}")
    if report.disagreement:
        raise TilewiseError(report.disagreement)


def _listed(
    name: str, cuts: "Sequence[Cut]"
) -> "tuple[tuple[ModuleProblem, ...], tuple[Skipped, ...]]":
    """Return the problems of a model, as IREE computes them, and the ops without one."""
    from tilewise.kernels.mlir.frontend.graph import Skipped, grouped, why_none

    found = [one for one in cuts if one.problem]
    for narrow, wide in dict.fromkeys((one.narrow, one.problem) for one in found if one.narrow):
        _note(f"IREE widens the factors of {narrow}, and calls kernels of {wide}")
    skipped = tuple(Skipped(one.where.rpartition(" ")[2], one.reason, one.where)
                    for one in cuts if not one.problem)  # fmt: skip
    if not found:
        why = why_none(skipped)
        raise BadInputError(f"{name}: it has no matmul or convolution that can be tuned{why}")
    return grouped((one.problem, one.where) for one in found), skipped


def _note(text: str) -> None:
    sys.stderr.write(f"tilewise: {text}\n")


RUN = "run the model, compare it with IREE's own code, and time both"
OUTPUT = (
    "--run in IREE: the folder to fill, default FILE.tilewise; native: the folder of the "
    "network, default none; iree and packs: the script's file, default stdout"
)

COMMANDS = (
    Command(
        "model",
        model,
        (
            arg("file", "linalg, torch, StableHLO, TOSA or ONNX", metavar="FILE"),
            arg("--as", "output to write", dest="way", choices=("iree", "native", "packs")),
            flag("--run", RUN, dest="executes"),
            arg("-o --output", OUTPUT, metavar="PATH"),
            DIM,
            *of_request(ModelRequest),
            DB,
            SERVER,
            *in_group(
                "--as iree",
                arg("--plan", "use the kernels of this plan", metavar="PLAN.json"),
                arg("--entry", "--run: function to run; default: main", metavar="NAME"),
                flag("--no-ops", "--run: do not measure each op alone, which takes seconds"),
            ),
            *in_group("--as native", *PLANNING),
            *in_group("--as packs", WITH_PAYLOAD, *packs.BLOCKS),
        ),
        at_service="service",
        examples=(
            "model model.mlir --trials 32",
            "model model.mlir --as iree -o kernels.mlir",
            "model model.mlir --as native --run -o network",
            "model model.mlir --as packs -o packed.mlir",
        ),
        notes=OUTPUTS,
    ),
)
