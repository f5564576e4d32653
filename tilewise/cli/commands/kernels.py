"""`tilewise kernel`, `asm` and `library`: tuned code to run, read and link."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilewise.backends.choose import Backend
from tilewise.cli.command import (
    DB,
    OUTPUT,
    PROBLEMS,
    SERVER,
    STORED,
    TARGET,
    Command,
    arg,
    backend_of,
)
from tilewise.cli.files import json_text, read_text, require_folder, write_bytes, write_text
from tilewise.cli.render import named
from tilewise.cli.tuning import TUNE_MISSING, check_trials, tune_missing
from tilewise.errors import BadInputError, MissingError, UnreadableError
from tilewise.fetch.folder import Folder
from tilewise.fetch.problems import read_list
from tilewise.kernels.problem import Problem, ProblemRange, parse_any, parse_problem, stem
from tilewise.library import MANIFEST, Library
from tilewise.requirements import BASE
from tilewise.search.records import CACHE_MODES, TuneRequest

if TYPE_CHECKING:  # the client loads httpx
    from tilewise.schema.results import ObjectFiles

MODULE, OBJECT, BITCODE, HEADER = "module", "object", "bitcode", "c-header"
ENDINGS = {OBJECT: ".o", BITCODE: ".bc"}


def kernel(options: argparse.Namespace) -> None:
    """Write the best schedule's kernel: a Python module, or machine code for C."""
    require_folder(options.output)
    if options.format in ENDINGS:
        _machine_code(options)
        return
    with backend_of(options) as backend:
        if options.format == HEADER:
            text, part = backend.object_files(options.problem, options.target).header, "header"
        else:
            text, part = backend.kernel(options.problem, options.target), "kernel"
    output = named(options.problem, **{part: text}) if options.json else text
    write_text(options.output, output)


def _machine_code(options: argparse.Namespace) -> None:
    """Write the object or bitcode, and its header."""
    place = Path(options.output or stem(parse_any(options.problem)) + ENDINGS[options.format])
    header = place.with_suffix(".h")
    if header == place:
        raise BadInputError(f"{place} would be the header's name; end it with another")
    for path in (place, header):
        require_folder(str(path))
    with backend_of(options) as backend:
        found = backend.object_files(options.problem, options.target)
    is_object = options.format == OBJECT
    write_bytes(str(place), found.object_bytes if is_object else found.bitcode_bytes)
    write_text(str(header), found.header)
    about: dict[str, object] = {
        "problem": found.problem,
        "target": found.target,
        "schedule": found.schedule,
        "symbol": found.symbol,
        "features": list(found.features),
        options.format: str(place),
        "header": str(header),
        "proof": found.proof,
    }
    text = json_text(about) if options.json else _files(about, options.format)
    sys.stdout.write(text)


def _files(about: dict[str, object], what: str) -> str:
    """Describe the files and the proof."""
    proof = about["proof"]
    assert isinstance(proof, dict)
    speed = f", {proof['gflops']:.1f} GFLOP/s" if proof.get("gflops") else ""
    ratio = f", {proof['ratio']:.2f} of our own call" if proof.get("ratio") else ""
    rows = {
        what: about[what],
        "header": about["header"],
        "symbol": about["symbol"],
        "proven": f"linked, run between guard pages, error {proof['max_error']:.3g} within "
        f"{proof['tolerance']:.3g}{speed}{ratio}",
    }
    return "".join(f"{name:<9} {value}\n" for name, value in rows.items())


def asm(options: argparse.Namespace) -> None:
    """Print the inner loop's assembly, its counts, and the bound that they imply."""
    parse_problem(options.problem)  # a loop is of one size
    with backend_of(options) as backend:
        found = backend.show(options.problem, options.target, match="range")
    from tilewise.kernels.native.assembly import inspect_result, render

    loop = inspect_result(found)
    about = {"problem": found["problem"], "hash": found["best"]["hash"]}
    text = json_text(about | loop.to_json()) if options.json else render(loop)
    sys.stdout.write(text)


def library(options: argparse.Namespace) -> None:
    """Build a static library of tuned kernels, with a C header and a manifest."""
    check_trials(options)
    problems = read_list(options.problems, read_text(options.problems), parse_any)
    folder = Folder(Path(options.output))
    with backend_of(options, options.began) as backend:
        if options.tune_missing:
            folder.require()
            missing = _missing(backend, problems, options)
            request = TuneRequest(options.trials, cache=options.cache or "hot")
            tune_missing(backend, missing, options.target, request)
        if missing := _missing(backend, problems, options):
            for one in missing:
                sys.stderr.write(f"tilewise: {one}: no schedule is stored\n")
            raise MissingError(
                f"{len(missing)} of {len(problems)} problems are not stored; "
                "--tune-missing searches for them"
            )
        folder.require()
        files = Library(_objects(backend, problems, options)).files()
    with folder.taken():
        for name, content in files.items():
            folder.write(name, content)
    manifest = json.loads(files[MANIFEST])
    output = json_text(manifest) if options.json else _summary(manifest, folder)
    sys.stdout.write(output)


def _missing(
    backend: Backend, problems: Sequence[Problem | ProblemRange], options: argparse.Namespace
) -> list[Problem | ProblemRange]:
    """Return the problems and ranges without a stored schedule."""
    sizes = [one for one in problems if isinstance(one, Problem)]
    names = [one.canonical for one in sizes]
    found = backend.look_up(names, options.target, (), {}, cache=options.cache) if names else ()
    lacking: list[Problem | ProblemRange] = []
    lacking += [one for one, row in zip(sizes, found, strict=True) if row.result is None]
    for one in (one for one in problems if isinstance(one, ProblemRange)):
        try:
            backend.show(one.canonical, options.target, options.cache)
        except (MissingError, UnreadableError):  # a search replaces a damaged result
            lacking.append(one)
    return lacking


def _objects(
    backend: Backend, problems: Sequence[Problem | ProblemRange], options: argparse.Namespace
) -> "list[ObjectFiles]":
    """Return the proven object of each problem."""
    made = []
    for number, problem in enumerate(problems, 1):
        if sys.stderr.isatty():
            sys.stderr.write(f"tilewise: {number}/{len(problems)} proves {problem}\n")
        made.append(backend.object_files(problem.canonical, options.target, options.cache))
    return made


def _summary(manifest: dict[str, object], folder: Folder) -> str:
    kernels = manifest["kernels"]
    assert isinstance(kernels, list)
    size = sum(one["bytes"] for one in kernels)
    rows = [f"{one['gflops']:8.1f} GFLOP/s  {one['alias']}\n" for one in kernels]
    counted = "1 kernel" if len(kernels) == 1 else f"{len(kernels)} kernels"
    return "".join(rows) + f"{counted}, {size} bytes of objects, in {folder.path}\n"


CACHE = "kernels tuned with these caches; default: hot if both are stored"
FORMAT = "output; object and bitcode come with a C header; default: module"

COMMANDS = (
    Command(
        "kernel", kernel, (
            *STORED,
            arg("--format", FORMAT, choices=(MODULE, OBJECT, BITCODE, HEADER), default=MODULE),
            OUTPUT,
        ),
        at_service=BASE,
        examples=(
            "kernel matmul:m=1024,n=512,k=2048,dtype=f32 -o matmul.py",
            "kernel matmul:m=1024,n=512,k=2048,dtype=f32 --format object -o matmul.o",
        ),
    ),
    Command("asm", asm, STORED, at_service="kernels",
            examples=("asm matmul:m=1024,n=512,k=2048,dtype=f32",)),
    Command(
        "library", library, (
            PROBLEMS,
            arg("-o --output", "folder to write", metavar="DIR", required=True),
            TARGET,
            arg("--cache", CACHE, choices=CACHE_MODES),
            *TUNE_MISSING,
            DB,
            SERVER,
        ),
        at_service="kernels",
        examples=("library problems.txt -o build/kernels --tune-missing",),
    ),
)  # fmt: skip
