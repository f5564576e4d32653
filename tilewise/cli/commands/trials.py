"""`tilewise trials` and `tilewise export-study`: every stored trial, also for other tools."""

import argparse
import sys

from tilewise.backends.base import Json
from tilewise.cli.command import Command
from tilewise.cli.options import add_cache_filter, add_stored, backend_of
from tilewise.cli.output import print_mapping
from tilewise.errors import MissingError
from tilewise.formats.trials import FORMATS, trials_text
from tilewise.requirements import BASE


def trials(options: argparse.Namespace) -> None:
    """Print every trial of a problem."""
    rows = _stored(options, default="hot" if options.format == "t4" else None)
    as_json = options.json and options.format != "t4"  # which is JSON already
    sys.stdout.write(trials_text(rows, "json" if as_json else options.format))


def export_study(options: argparse.Namespace) -> None:
    """Write every trial into an Optuna storage, for optuna-dashboard and Optuna's plots."""
    from tilewise.formats import optuna_study

    rows = _stored(options, default="hot")
    told = optuna_study.export(rows, options.storage, options.name)
    print_mapping(told, as_json=options.json)


def _stored(options: argparse.Namespace, default: str | None) -> list[Json]:
    """The trials of one cache mode, or all; times of both are no one objective."""
    with backend_of(options) as backend:
        rows = backend.trials(options.problem, options.target)
    mode = options.cache or default
    found = [row for row in rows if mode in (None, row["cache"])]
    if not found:
        raise MissingError(f"no {mode} trials of {options.problem} are stored; see --cache")
    return found


def add_trials_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise trials`."""
    add_stored(parser)
    parser.add_argument(
        "--format", choices=FORMATS, default="table", help="how they are written; default: table"
    )
    add_cache_filter(parser, "all; of t4: hot")


def add_study_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise export-study`."""
    add_stored(parser)
    parser.add_argument(
        "--storage", required=True, metavar="URL", help="of Optuna's, as sqlite:///study.db"
    )
    parser.add_argument("--name", help="of the study; default: the problem and the target")
    add_cache_filter(parser, "hot")


COMMANDS = (
    Command(
        "trials",
        trials,
        add_trials_options,
        at_service=BASE,
        examples=(
            "trials matmul:m=1024,n=512,k=2048,dtype=f32",
            "trials matmul:m=1024,n=512,k=2048,dtype=f32 --format csv",
        ),
    ),
    Command(
        "export-study",
        export_study,
        add_study_options,
        at_service="search",
        examples=(
            "export-study matmul:m=1024,n=512,k=2048,dtype=f32 --storage sqlite:///study.db",
        ),
    ),
)
