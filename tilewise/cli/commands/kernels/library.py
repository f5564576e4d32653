"""`tilewise library`: the kernels of a list of problems, in one static library for C."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilewise.backends.base import Backend
from tilewise.cli.command import Command
from tilewise.cli.files import read_text, require_file
from tilewise.cli.options import add_db, add_server, backend_of
from tilewise.cli.tuning import tune_missing
from tilewise.errors import MissingError
from tilewise.fetch.folder import Folder
from tilewise.fetch.problems import read_problems
from tilewise.kernels.problem import Problem
from tilewise.library.files import MANIFEST, Library
from tilewise.search.records import TuneRequest

if TYPE_CHECKING:  # it loads httpx
    from tilewise.schema.results import ObjectFiles


def library(options: argparse.Namespace) -> None:
    """Make a static library of tuned kernels, with a C header and a manifest."""
    require_file(options.problems)
    problems = read_problems(options.problems, read_text(options.problems))
    folder = Folder(Path(options.output))
    with backend_of(options, options.began) as backend:
        if options.tune_missing:
            folder.require()
            missing = _missing(backend, problems, options.target)
            tune_missing(backend, missing, options.target, TuneRequest(options.trials))
        if missing := _missing(backend, problems, options.target):
            for one in missing:
                sys.stderr.write(f"tilewise: {one}: no schedule is stored\n")
            raise MissingError(
                f"{len(missing)} of {len(problems)} problems are not stored; "
                "--tune-missing searches for them"
            )
        files = Library(_objects(backend, problems, options.target)).files()
    with folder.taken():
        for name, content in files.items():
            folder.write(name, content)
    manifest = json.loads(files[MANIFEST])
    told = json.dumps(manifest, indent=2) + "\n" if options.json else _told(manifest, folder)
    sys.stdout.write(told)


def _missing(backend: Backend, problems: Sequence[Problem], target: str) -> list[Problem]:
    """The problems of which no schedule is stored."""
    found = backend.look_up([problem.canonical for problem in problems], target, (), {})
    return [one for one, answer in zip(problems, found, strict=True) if answer.result is None]


def _objects(backend: Backend, problems: Sequence[Problem], target: str) -> "list[ObjectFiles]":
    """The proven object of each."""
    made = []
    for number, problem in enumerate(problems, 1):
        if sys.stderr.isatty():
            sys.stderr.write(f"tilewise: {number}/{len(problems)} proves {problem}\n")
        made.append(backend.object_files(problem.canonical, target))
    return made


def _told(manifest: dict[str, object], folder: Folder) -> str:
    kernels = manifest["kernels"]
    assert isinstance(kernels, list)
    size = sum(one["bytes"] for one in kernels)
    rows = [f"{one['gflops']:8.1f} GFLOP/s  {one['alias']}\n" for one in kernels]
    counted = "1 kernel" if len(kernels) == 1 else f"{len(kernels)} kernels"
    return "".join(rows) + f"{counted}, {size} bytes of objects, in {folder.path}\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise library`."""
    parser.add_argument(
        "problems", metavar="PROBLEMS.txt", help="a problem a line, # comments; or a suite's JSON"
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", required=True, help="the folder of its files"
    )
    parser.add_argument(
        "--target", default="host", metavar="T", help="processor, threads; default: host"
    )
    parser.add_argument("--tune-missing", action="store_true", help="search for what is missing")
    parser.add_argument(
        "--trials", type=int, default=64, metavar="N", help="of those searches; default: 64"
    )
    add_db(parser)
    add_server(parser)


COMMANDS = (
    Command(
        "library",
        library,
        add_options,
        at_service="kernels",
        examples=("library problems.txt -o build/kernels --tune-missing",),
    ),
)
