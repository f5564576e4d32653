"""`tilewise serve` and `tilewise db`: the service, and the database of this machine."""

import argparse

from tilewise.cli.command import Command
from tilewise.cli.options import add_db
from tilewise.cli.output import print_mapping
from tilewise.errors import BadInputError
from tilewise.requirements import needed

LARGEST_PORT, MOST_WORKERS = 65535, 64
OTHERWISE = ", or give --server URL"


def serve(options: argparse.Namespace) -> None:
    """Serve the HTTP API with embedded workers."""
    if not 0 <= options.port <= LARGEST_PORT:
        raise BadInputError(f"port={options.port} is out of range; give 0 to {LARGEST_PORT}")
    if not 0 <= options.workers <= MOST_WORKERS:
        raise BadInputError(f"workers={options.workers} is out of range; give 0 to {MOST_WORKERS}")
    with needed("this command", "service", OTHERWISE):
        from tilewise.backends import administration
    administration.serve(options.host, options.port, options.workers, options.db)


def database(options: argparse.Namespace) -> None:
    """Bring the database to this version's schema, or check that it is."""
    with needed("this command", "service", OTHERWISE):
        from tilewise.backends import administration
    state = administration.database(options.action, options.db)
    print_mapping(state, as_json=options.json)


def add_serve_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise serve`."""
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="default: 8000")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="default: 1")
    add_db(parser)


def add_database_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed after `tilewise db`."""
    parser.add_argument("action", choices=("upgrade", "check"))
    add_db(parser)


COMMANDS = (
    Command("serve", serve, add_serve_options),
    Command("db", database, add_database_options),
)
