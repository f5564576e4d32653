"""`tilewise serve` and `tilewise db`: the service, and the database of this machine."""

import argparse

from tilewise.cli.command import Command
from tilewise.cli.options import add_db
from tilewise.cli.output import print_mapping
from tilewise.errors import BadInputError

LARGEST_PORT, MOST_WORKERS = 65535, 64
MOST_DAYS, LEAST_SAMPLES, MOST_SAMPLES = 36500, 3, 1000


def serve(options: argparse.Namespace) -> None:
    """Serve the HTTP API with embedded workers."""
    if not 0 <= options.port <= LARGEST_PORT:
        raise BadInputError(f"port={options.port} is out of range; give 0 to {LARGEST_PORT}")
    if not 0 <= options.workers <= MOST_WORKERS:
        raise BadInputError(f"workers={options.workers} is out of range; give 0 to {MOST_WORKERS}")
    from tilewise.backends import administration

    administration.serve(options.host, options.port, options.workers, options.db)


def database(options: argparse.Namespace) -> None:
    """Bring the database to this version's schema, check that it is, or thin what is old."""
    from tilewise.backends import administration

    if options.action != "prune":
        state = administration.database(options.action, options.db)
    else:
        _check_pruning(options)
        state = administration.prune(
            options.older_than, options.keep_samples, options.db,
            dry_run=options.dry_run, vacuum=options.vacuum,
        )  # fmt: skip
    print_mapping(state, as_json=options.json)


def _check_pruning(options: argparse.Namespace) -> None:
    if not 0 <= options.older_than <= MOST_DAYS:
        raise BadInputError(
            f"older-than={options.older_than} is out of range; give 0 to {MOST_DAYS} days"
        )
    if not LEAST_SAMPLES <= options.keep_samples <= MOST_SAMPLES:
        raise BadInputError(
            f"keep-samples={options.keep_samples} is out of range; "
            f"give {LEAST_SAMPLES} to {MOST_SAMPLES}"
        )


def add_serve_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise serve`."""
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; default: 127.0.0.1"
    )
    parser.add_argument("--port", type=int, default=8000, help="to listen on; default: 8000")
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="that search; default: 1"
    )
    add_db(parser)


def add_database_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise db`."""
    parser.add_argument("action", choices=("upgrade", "check", "prune"), help="what to do")
    add_db(parser)
    group = parser.add_argument_group("prune")
    group.add_argument(
        "--older-than", type=float, default=90.0, metavar="DAYS",
        help="thin the samples of trials that are older; default: 90",
    )  # fmt: skip
    group.add_argument(
        "--keep-samples", type=int, default=9, metavar="N", help="of each trial; default: 9"
    )
    group.add_argument("--dry-run", action="store_true", help="only say what would be done")
    group.add_argument(
        "--vacuum", action="store_true", help="give the space back to the disk; takes a while"
    )


COMMANDS = (
    Command(
        "serve",
        serve,
        add_serve_options,
        examples=(
            "serve",
            "serve --host 0.0.0.0 --port 8000 --workers 2",
        ),
    ),
    Command(
        "db",
        database,
        add_database_options,
        examples=(
            "db check",
            "db prune --older-than 30 --dry-run",
        ),
    ),
)
