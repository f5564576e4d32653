"""One function per command: choose where it runs, run it, print what came back."""

import argparse
import json
import os
import sys
from importlib import metadata
from typing import Any

from kernels.problem import parse_problem
from search.records import TuneRequest
from tilewise.backends.base import Backend, RemoteBackend, local_backend
from tilewise.cli.commands import air
from tilewise.cli.files import require_folder, write_text
from tilewise.cli.progress import progress
from tilewise.errors import BadInputError, MissingError, TilewiseError


def version() -> str:
    """Such as `tilewise 0.1.0`."""
    return f"tilewise {metadata.version('tilewise')}"


def tune(options: argparse.Namespace) -> None:
    """Search for the best schedule, store it, and print it."""
    request = TuneRequest(
        options.trials,
        options.seconds,
        options.seed,
        options.sampler,
        options.peers,
        options.cache,
    )
    with _backend(options, options.began) as backend, progress(request.trials) as report:
        result = backend.tune(options.problem, options.target, request, report)
    _print_result(result, options.json)


def show(options: argparse.Namespace) -> None:
    """Print the stored best, its measurements and its proof."""
    with _backend(options) as backend:
        result = backend.show(options.problem, options.target, options.cache)
    _print_result(result, options.json)


def script(options: argparse.Namespace) -> None:
    """Print the proven transform script."""
    require_folder(options.output)
    if options.flavor == "air" and not options.server:
        text = air.make_script(options)
    else:
        air.refuse_options(options)
        with _backend(options) as backend:
            text = backend.script(
                options.problem, options.target, options.flavor, options.with_payload
            )
    if options.json:
        named = {
            "problem": parse_problem(options.problem).canonical,
            "flavor": options.flavor,
            "script": text,
        }
        text = json.dumps(named, indent=2) + "\n"
    write_text(options.output, text)


def kernel(options: argparse.Namespace) -> None:
    """Print the best schedule's kernel as a Python module that runs on its own."""
    require_folder(options.output)
    with _backend(options) as backend:
        text = backend.kernel(options.problem, options.target)
    if options.json:
        text = (
            json.dumps(
                {"problem": parse_problem(options.problem).canonical, "kernel": text}, indent=2
            )
            + "\n"
        )
    write_text(options.output, text)


def asm(options: argparse.Namespace) -> None:
    """Print the inner loop's assembly, its counts, and the bound that they imply."""
    with _backend(options) as backend:
        found = backend.show(options.problem, options.target)
    try:
        from kernels.native.assembly.inner_loop import inspect_result, render
    except ModuleNotFoundError as error:
        raise TilewiseError(f"asm needs {error.name} here; install tilewise[kernels]") from error
    loop = inspect_result(found)
    named = {"problem": found["problem"], "hash": found["best"]["hash"]}
    text = json.dumps(named | loop.to_json(), indent=2) + "\n" if options.json else render(loop)
    sys.stdout.write(text)


def trials(options: argparse.Namespace) -> None:
    """Print every trial of a problem."""
    from tilewise.cli import render

    with _backend(options) as backend:
        rows = backend.trials(options.problem, options.target)
    rows = _timed_in(options, rows, default="hot" if options.format == "t4" else None)
    as_json = options.json and options.format != "t4"  # which is JSON already
    kind = "json" if as_json else options.format
    sys.stdout.write(render.trials(rows, kind))


def _timed_in(
    options: argparse.Namespace, rows: list[dict[str, Any]], default: str | None
) -> list[dict[str, Any]]:
    """The trials of one cache mode, or all; times of both are no one objective."""
    mode = options.cache or default
    found = [row for row in rows if mode in (None, row["cache"])]
    if not found:
        raise MissingError(f"no {mode} trials of {options.problem} are stored; see --cache")
    return found


def export_study(options: argparse.Namespace) -> None:
    """Write every trial into an Optuna storage, for optuna-dashboard and Optuna's plots."""
    try:
        from tilewise.formats import optuna_study
    except ModuleNotFoundError as error:
        raise TilewiseError(
            f"export-study needs {error.name} here; install tilewise[search]"
        ) from error
    with _backend(options) as backend:
        rows = backend.trials(options.problem, options.target)
    rows = _timed_in(options, rows, default="hot")
    _print_mapping(optuna_study.export(rows, options.storage, options.name), options.json)


def serve(options: argparse.Namespace) -> None:
    """Serve the HTTP API with embedded workers."""
    if not 0 <= options.port <= 65535:
        raise BadInputError(f"port={options.port} is out of range; give 0 to 65535")
    if not 0 <= options.workers <= 64:
        raise BadInputError(f"workers={options.workers} is out of range; give 0 to 64")
    local = _local_module()
    local.serve(options.host, options.port, options.workers, options.db)


def database(options: argparse.Namespace) -> None:
    """Bring the database to this version's schema, or check that it is."""
    state = _local_module().database(options.action, options.db)
    _print_mapping(state, options.json)


def doctor(options: argparse.Namespace) -> None:
    """Say what this machine is and what is missing."""
    from tilewise.cli.commands.doctor import examine

    _print_mapping(examine(), options.json)


def _named(problem: str, **parts: str) -> str:
    """Texts of a problem as a JSON object."""
    named = {"problem": parse_problem(problem).canonical, **parts}
    return json.dumps(named, indent=2) + "\n"


def _backend(options: argparse.Namespace, began: float | None = None) -> Backend:
    server = options.server or os.environ.get("TILEWISE_SERVER")
    if server and options.db:
        raise BadInputError("give --db or --server, not both: a service has its own database")
    return RemoteBackend(server) if server else local_backend(options.db, began)


def _local_module() -> Any:
    try:
        from tilewise.backends import local
    except ModuleNotFoundError as error:
        raise TilewiseError(
            f"this command needs {error.name}; install tilewise[service], or give --server URL"
        ) from error
    return local


def _print_result(result: dict[str, Any], as_json: bool) -> None:
    from tilewise.cli import render

    sys.stdout.write(json.dumps(result, indent=2) + "\n" if as_json else render.result(result))


def _print_mapping(mapping: dict[str, Any], as_json: bool) -> None:
    from tilewise.cli import render

    sys.stdout.write(json.dumps(mapping, indent=2) + "\n" if as_json else render.mapping(mapping))
