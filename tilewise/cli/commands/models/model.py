"""`tilewise model`: a model's problems tuned, the model compiled with them, before and after."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tilewise.backends.choose import named_server
from tilewise.cli.command import Command
from tilewise.cli.files import (
    make_folder,
    read_module_bytes,
    require_file,
    write_bytes,
    write_text,
)
from tilewise.cli.options import add_db, add_server, add_tuning_of_lacking, backend_of
from tilewise.cli.tuning import missing, tune_missing
from tilewise.errors import BadInputError, TilewiseError
from tilewise.kernels.errors import KernelsError, ModuleError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.quoting import quoted
from tilewise.kernels.target import resolve, target_kind
from tilewise.requirements import require
from tilewise.search.records import TuneRequest

if TYPE_CHECKING:
    from tilewise.kernels.dispatches.cutting.cut import Pieces
    from tilewise.kernels.mlir.frontend.imported import Imported

PROBLEMS, REPORT = "problems.txt", "report.json"


def model(options: argparse.Namespace) -> None:
    """Tune a model's problems, compile it with them and without, and compare."""
    require_file(options.file)
    if target_kind(options.target) == "iree":
        raise BadInputError(
            f"target {quoted(options.target)}: a model is compiled with our kernels; give a target "
            "cpu:NAME"
        )
    for child_needs in ("iree.compiler", "iree.runtime"):
        require(child_needs, "model", "service")
    source = Path(options.file)
    from tilewise.model.entries import check_entry
    from tilewise.model.examine import Model, examine
    from tilewise.model.table import report_text

    given = read_module_bytes(options.file)
    module = _compilable(source.name, given)
    imported = _imported(source.name, module).with_accuracy(options.accuracy)
    check_entry(source.name, module, options.entry)
    pieces = _pieces(source.name, module).with_accuracy(options.accuracy)
    imported = imported.with_problems(
        [(one.whole, one.problem) for one in pieces.cuts if one.whole]
    )
    folder = make_folder(options.output or f"{source.stem}.tilewise")
    if module is not given:
        source = folder / f"{source.stem}.mlirbc"
        write_bytes(str(source), module)
    problems = [parse_problem(found.problem) for found in imported.problems]
    counts = {found.problem: found.count for found in imported.problems}
    lines = "".join(f"{one.canonical}  # {counts[one.canonical]}\n" for one in problems)
    write_text(str(folder / PROBLEMS), lines)
    if named_server(options.server):  # what a service takes `host` for is another machine
        options.target = resolve(options.target).canonical
    request = TuneRequest(options.trials, seed=options.seed, cache=options.cache)
    asked = Model(source, imported, pieces, folder, options.target, options.cache, options.entry,
                  not options.no_ops, options.accuracy)  # fmt: skip
    with backend_of(options) as backend:
        lacking = missing(backend, problems, options.target, options.cache)
        tune_missing(backend, lacking, options.target, request)
        report = examine(asked, backend, _note)
    text = json.dumps(report.to_json(), indent=2) + "\n"
    write_text(str(folder / REPORT), text)
    sys.stdout.write(text if options.json else report_text(report))
    _note(f"wrote {folder}")
    if report.disagreement:
        raise TilewiseError(report.disagreement)


def _compilable(name: str, given: bytes) -> bytes:
    """What IREE compiles: of an ONNX model a module."""
    from tilewise.kernels.mlir.frontend.onnx import as_module

    try:
        return as_module(given)
    except ModuleError as error:
        raise BadInputError(f"{name}: {error}") from error


def _imported(name: str, module: bytes) -> "Imported":
    from tilewise.kernels.mlir.frontend.imported import why_none
    from tilewise.kernels.mlir.frontend.read import read_module

    try:
        found = read_module(module)
    except ModuleError as error:
        raise BadInputError(f"{name}: {error}") from error
    if not found.occurrences:
        why = why_none(found.skipped)
        raise BadInputError(f"{name}: nothing in it multiplies or convolves what we know{why}")
    return found


def _pieces(name: str, module: bytes) -> "Pieces":
    """The model's ops in the form that they have where IREE's compiler looks for patterns."""
    from tilewise.kernels.dispatches.cutting.cut import cut_apart
    from tilewise.model.forms import SECONDS

    try:
        return cut_apart(module, SECONDS)
    except KernelsError as error:
        raise BadInputError(f"{name}: {error}") from error


def _note(text: str) -> None:
    sys.stderr.write(f"tilewise: {text}\n")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise model`."""
    parser.add_argument("file", metavar="FILE", help="linalg, torch, StableHLO, TOSA or ONNX")
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="folder to fill; default: FILE.tilewise"
    )
    parser.add_argument("--entry", metavar="NAME", help="function to run; default: main")
    add_tuning_of_lacking(parser, seeds="sampler and inputs")
    parser.add_argument(
        "--no-ops", action="store_true", help="do not measure each op alone, which takes seconds"
    )
    add_db(parser)
    add_server(parser)


COMMANDS = (
    Command(
        "model",
        model,
        add_options,
        at_service="service",
        examples=(
            "model model.mlir --trials 32",
            "model model.mlir --entry forward -o results",
        ),
    ),
)
