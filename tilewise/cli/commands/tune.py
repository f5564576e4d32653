"""`tilewise tune` and `tilewise show`: a search, and what is stored of earlier ones."""

import argparse
import sys
from functools import partial

from tilewise.cli.command import Command
from tilewise.cli.options import add_stored, backend_of
from tilewise.cli.output import print_result
from tilewise.cli.progress import progress
from tilewise.requirements import BASE
from tilewise.search.records import CACHE_MODES, DEFAULT_SAMPLER, SAMPLERS, TuneRequest


def tune(options: argparse.Namespace) -> None:
    """Search for the best schedule, store it, and print it."""
    request = TuneRequest(
        options.trials,
        options.seconds,
        options.seed,
        options.sampler,
        options.peers,
        options.cache,
        options.spread,
    )
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
    parser.add_argument(
        "--trials", type=int, default=64, metavar="N", help="schedules tried; default: 64"
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="for everything")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="I", help="of sampler and inputs; default: 0"
    )
    parser.add_argument(
        "--sampler",
        default=DEFAULT_SAMPLER,
        metavar="NAME",
        help=f"one of {', '.join(SAMPLERS)}, or MODULE:CLASS, a sampler of Optuna's protocol; "
        f"default: {DEFAULT_SAMPLER}",
    )
    parser.add_argument(
        "--cache",
        choices=CACHE_MODES,
        default="hot",
        help="cold: operands are evicted before every sample; default: hot",
    )
    parser.add_argument(
        "--spread",
        type=int,
        default=1,
        metavar="N",
        help="machines of a cluster that may share the search; with --server; default: 1",
    )
    parser.add_argument("--peers", action="store_true", help="time OpenBLAS in the same rounds")
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
