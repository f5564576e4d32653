"""`tilewise tune` and `tilewise show`: a search, and what is stored of earlier ones."""

import argparse
import sys
from functools import partial

from tilewise.cli.command import Command
from tilewise.cli.options import add_request, add_stored, backend_of
from tilewise.cli.output import print_result
from tilewise.cli.progress import progress
from tilewise.requirements import BASE
from tilewise.search.records import CACHE_MODES, TuneRequest


def tune(options: argparse.Namespace) -> None:
    """Search for the best schedule, store it, and print it."""
    request = TuneRequest.of(options)
    if ":" in request.sampler and "" not in sys.path:
        sys.path.insert(0, "")  # where a user's own module lies
    work = (options.problem, options.target)
    with (
        backend_of(options, options.began) as backend,
        progress(request, partial(backend.peak, *work)) as watcher,
    ):
        result = backend.tune(*work, request, watcher.trial, watcher.phase, again=options.again)
    print_result(result, as_json=options.json)


def show(options: argparse.Namespace) -> None:
    """Print the stored best, its measurements and its proof."""
    with backend_of(options) as backend:
        result = backend.show(options.problem, options.target, options.cache)
    print_result(result, as_json=options.json, with_machine=True)


def add_tune_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise tune`."""
    add_stored(parser)
    add_request(parser, TuneRequest)
    parser.add_argument(
        "--again",
        action="store_true",
        help="time the finalists of the stored result again and keep the better result; --trials "
        "then counts only where nothing is stored",
    )


def add_show_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise show`."""
    add_stored(parser)
    parser.add_argument("--cache", choices=CACHE_MODES, help="of which state; default: hot if both")


COMMANDS = (
    Command(
        "tune",
        tune,
        add_tune_options,
        at_service=BASE,
        examples=(
            "tune matmul:m=1024,n=512,k=2048,dtype=f32",
            "tune conv2d:n=1,h=56,w=56,ci=64,co=64,kh=3,kw=3,pad=1,dtype=f32 --trials 128 --peers",
            "tune matmul:m=1024,n=512,k=2048,dtype=f32 --target cpu:host,threads=2",
            "tune matmul:m=1024,n=512,k=2048,dtype=f32 --server http://localhost:8000",
        ),
    ),
    Command(
        "show",
        show,
        add_show_options,
        at_service=BASE,
        examples=(
            "show matmul:m=1024,n=512,k=2048,dtype=f32",
            "show matmul:m=1024,n=512,k=2048,dtype=f32 --json",
        ),
    ),
)
