"""`tilewise script --flavor iree`: tuned kernels for IREE's compiler."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilewise.backends.choose import named_server
from tilewise.cli.aliases import OF_PLANS, value_of
from tilewise.cli.command import backend_of, refuse
from tilewise.cli.files import read_module_bytes, read_text, require_file, require_folder
from tilewise.cli.tuning import tune_lacking
from tilewise.errors import BadInputError
from tilewise.fetch.problems import Read, read_list
from tilewise.kernels.errors import CompilerError
from tilewise.kernels.mlir.frontend.dims import exact_dims
from tilewise.kernels.problem import ProblemRange, parse_any
from tilewise.kernels.target import resolve
from tilewise.model.libraries import (
    ENDINGS,
    UserModel,
    chosen,
    described,
    library_of,
    make_library,
    read_model,
    read_plan,
    replaced_by,
)
from tilewise.requirements import require

if TYPE_CHECKING:  # it loads the compiler of kernels
    from tilewise.search.libraries.library import ProvenLibrary

LISTS = (".json", ".txt")


def make_iree(options: argparse.Namespace) -> str:
    """Return the library of the problems, or its JSON.

    Raises BadInputError for a malformed problem or list, MissingError without a stored schedule or
    gain, TilewiseError if something is not installed.
    """
    if options.with_payload:
        raise BadInputError("--with-payload: a library for IREE is applied to a user's module")
    _require_iree()
    if options.plan:
        path, *others = options.problems
        if others or not path.endswith(ENDINGS):
            raise BadInputError("--plan: give the one model that was planned, as MODEL.mlir")
        return _of_plan(options, path)
    given = [one for one in options.problems if not one.endswith(ENDINGS)]
    problems = wished(given, parse_any)
    models = [
        read_model(path, read_module_bytes(path), options.accuracy or "standard", options.dim or ())
        for path in options.problems
        if path.endswith(ENDINGS)
    ]
    target = resolve(options.target).canonical  # not what a service would take `host` for
    with backend_of(options) as backend:
        made = make_library(backend, problems, target, models)
    return _describe(made, target, models, options)


def make_library_of_model(options: argparse.Namespace) -> str:
    """Return the library of one model, tuning what is not stored.

    Raises as `make_iree` does.
    """
    require_folder(options.output)
    _require_iree()
    if options.plan:
        return _of_plan(options, options.file)
    content = read_module_bytes(options.file)
    model = read_model(options.file, content, options.accuracy or "standard", options.dim or ())
    target = resolve(options.target).canonical  # not what a service would take `host` for
    with backend_of(options) as backend:
        tune_lacking(backend, model.problems, target, options)
        made = make_library(backend, (), target, [model], options.cache)
    return _describe(made, target, [model], options)


def _require_iree() -> None:
    for module in ("iree.compiler", "iree.runtime"):
        require(module, "a library for IREE", "service")


def _of_plan(options: argparse.Namespace, path: str) -> str:
    """Return the library of what a plan chose for its model."""
    own = [name for name in OF_PLANS if value_of(options, name) is not None]
    refuse(options, own, "{}: the plan sets it; leave it out")
    plan = read_plan(options.plan, read_text(options.plan))
    target = resolve(plan.target).canonical
    exact_dims(options.dim or ())
    model = read_model(path, read_module_bytes(path), plan.accuracy, options.dim or ())
    wanted, notes = chosen(plan)
    lacking = {cut.problem for cut in model.cuts} - {str(one.found) for one in wanted}
    for note in (*notes, *(f"{one}: the plan has no kernel for it" for one in lacking)):
        sys.stderr.write(f"tilewise: {note}\n")
    if not wanted or len(lacking) == len({cut.problem for cut in model.cuts}):
        raise BadInputError(f"{options.plan} is not a plan of {path}, or has no schedule")
    return _describe(library_of(wanted, target, [model]), target, [model], options)


def _describe(
    made: "ProvenLibrary", target: str, models: Sequence[UserModel], options: argparse.Namespace
) -> str:
    """Return the library's text or JSON; report its effect on models."""
    replaced = []
    for model in models:
        try:
            replaced.append(one := replaced_by(made, model))
            effect = f"{one.calls} of {one.ops} ops call a kernel"
        except CompilerError as error:
            effect = f"the ops that call a kernel are not counted: {error}"
        sys.stderr.write(f"tilewise: {model.path}: {effect}\n")
    return described(made, target, replaced) if options.json else made.text


def is_made_here(options: argparse.Namespace) -> bool:
    """Return whether the flavor is `iree` and the command, not a service, makes it."""
    if options.flavor != "iree" or not named_server(options.server, options.db):
        return bool(options.flavor == "iree")
    first, *others = options.problems
    is_file = first.endswith((*ENDINGS, *LISTS))
    is_range = not is_file and isinstance(parse_any(first), ProblemRange)
    return bool(options.plan) or bool(others) or is_file or is_range


def wished(given: Sequence[str], parse: Callable[[str], Read]) -> list[Read]:
    """Return what `parse` makes of strings, suites (`.json`) and lists (`.txt`), each once.

    Raises BadInputError for an unusable file, ProblemError for a malformed string.
    """
    found = list[Read]()
    for one in given:
        if one.endswith(LISTS):
            require_file(one)
            found += read_list(one, read_text(one), parse)
        else:
            found.append(parse(one))
    return list({problem.key: problem for problem in found}.values())
