"""`tilewise tune`, `show` and `trials`."""

import argparse
import sys

from tilewise.cli.command import STORED, Command, arg, backend_of, cache_filter, flag, of_request
from tilewise.cli.files import json_text
from tilewise.cli.render import prediction_text, print_result
from tilewise.cli.tuning import tune_shown
from tilewise.errors import BadInputError, MissingError
from tilewise.formats.trials import FORMATS, trials_text
from tilewise.kernels.problem import ProblemRange, parse_any
from tilewise.requirements import BASE
from tilewise.schema.base import Json
from tilewise.search.records import CACHE_MODES, TuneRequest

FORMAT = "output format; default: table"
AGAIN = (
    "time the finalists of the stored result again and keep the better result, or store those of "
    "an earlier toolchain under the present one; --trials then only applies if nothing is stored"
)


def tune(options: argparse.Namespace) -> None:
    """Search for the best schedule, store it, and print it."""
    request = TuneRequest.of(options)
    if ":" in request.sampler and "" not in sys.path:
        sys.path.insert(0, "")  # where a user's own module lies
    work = (options.problem, options.target, request)
    with backend_of(options, options.began) as backend:
        found = tune_shown(backend, *work, again=options.again)
    print_result(found, as_json=options.json)


def show(options: argparse.Namespace) -> None:
    """Print the stored best, its measurements and its proof."""
    if options.trials and (not options.predict or options.cache == "cold"):
        raise BadInputError("--trials works only with --predict, for hot caches")
    with backend_of(options) as backend:
        try:
            found = backend.show(options.problem, options.target, options.cache, match="range")
        except MissingError:
            is_range = isinstance(parse_any(options.problem), ProblemRange)
            if not options.predict or is_range or options.cache == "cold":
                raise
            predicted = backend.predict(options.problem, options.target, options.trials)
            sys.stdout.write(json_text(predicted) if options.json else prediction_text(predicted))
            return
    print_result(found, as_json=options.json, with_machine=True)


def trials(options: argparse.Namespace) -> None:
    """Print every trial of a problem."""
    rows = _stored(options, default="hot" if options.format == "t4" else None)
    as_json = options.json and options.format != "t4"  # which is JSON already
    sys.stdout.write(trials_text(rows, "json" if as_json else options.format))


def _stored(options: argparse.Namespace, default: str | None) -> list[Json]:
    """Return the trials of one cache mode, or all."""
    with backend_of(options) as backend:
        rows = backend.trials(options.problem, options.target)
    mode = options.cache or default
    found = [row for row in rows if mode in (None, row["cache"])]
    if not found:
        raise MissingError(f"no {mode} trials of {options.problem} are stored; see --cache")
    return found


COMMANDS = (
    Command(
        "tune",
        tune,
        (*STORED, *of_request(TuneRequest), flag("--again", AGAIN)),
        at_service=BASE,
        examples=(
            "tune matmul:m=1024,n=512,k=2048,dtype=f32",
            "tune matmul:m=1024,n=512,k=2048,dtype=f32 --trials 128 --peers",
            "tune matmul:m=1024,n=512,k=2048,dtype=f32 --target cpu:host,threads=2",
            "tune matmul:m=1..256,n=512,k=2048,dtype=f32 --trials 16",
            "tune matmul:m=1024,n=512,k=2048,dtype=f32 --server http://localhost:8000",
        ),
    ),
    Command(
        "show",
        show,
        (
            *STORED,
            arg("--cache", "of these caches; default: hot if both", choices=CACHE_MODES),
            flag("--predict", "predict one for hot caches if none is stored; not timed or proven"),
            arg("--trials", "with --predict, queue a search", type=int, default=0, metavar="N"),
        ),
        at_service=BASE,
        examples=(
            "show matmul:m=1024,n=512,k=2048,dtype=f32",
            "show matmul:m=1024,n=512,k=2048,dtype=f32 --json",
        ),
    ),
    Command(
        "trials",
        trials,
        (
            *STORED,
            arg("--format", FORMAT, choices=FORMATS, default="table"),
            cache_filter("all; of t4: hot"),
        ),
        at_service=BASE,
        examples=(
            "trials matmul:m=1024,n=512,k=2048,dtype=f32",
            "trials matmul:m=1024,n=512,k=2048,dtype=f32 --format csv",
        ),
    ),
)
